"""Merge of single aspects of a type or property: type, annotations, body constraints.

States are compared with property keys instead of names, so that a rename on one side is not a change of the
constraints and embeddings that refer to the property.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from omnigraph.catalog.schema_merge.schema_conflicts import ConflictResolver
from omnigraph.catalog.schema_merge.three_way import ThreeWay
from omnigraph.catalog.shape import (
    RENAME_HINT,
    annotation_keys,
    canonical_constraint,
    canonical_type,
    constraint_keys,
)
from omnigraph.lang.pg.schema_notation import annotation_text, constraint_text
from omnigraph.lang.schema import Annotation, Check, Constraint, Key, Range
from omnigraph.lang.types import PropType


def merge_type(resolver: ConflictResolver, entity: str, types: ThreeWay[PropType]) -> PropType:
    """Return the merged type of a property; an enum has the values that either side added."""
    canonical = types.map(canonical_type)
    base, ours, theirs = canonical.base, canonical.require("ours"), canonical.require("theirs")
    texts = canonical.map(str)
    if base is None or resolver.is_undecided(entity, "type"):
        side = resolver.choose_side(entity, "type", canonical, texts, added=True)
        return canonical.require(side)
    nullable = ours.nullable if ours.nullable != base.nullable else theirs.nullable
    union = _extended(base, ours, theirs)
    if union is not None:
        return replace(base, enum_values=union, nullable=nullable)
    side = resolver.choose_side(entity, "type", canonical.map(lambda item: item.core), texts, added=False)
    return replace(canonical.require(side), nullable=nullable)


def _extended(base: PropType, ours: PropType, theirs: PropType) -> tuple[str, ...] | None:
    """Return the union of the values of an enum that neither side narrowed, or None."""
    if base.enum_values is None or ours.enum_values is None or theirs.enum_values is None:
        return None
    before = set(base.enum_values)
    if not (before <= set(ours.enum_values) and before <= set(theirs.enum_values)):
        return None
    return tuple(sorted({*ours.enum_values, *theirs.enum_values}))


def rename_embed_sources(
    annotations: Iterable[Annotation], names: Mapping[str, str]
) -> tuple[Annotation, ...]:
    """Return annotations without rename hints and with renamed source properties of embeddings.

    >>> rename_embed_sources((Annotation("embed", "body"),), {"body": "text"})
    (Annotation(name='embed', value='text', kwargs=()),)
    """
    return tuple(
        replace(item, value=names.get(str(item.value), item.value)) if item.name == "embed" else item
        for item in annotations
        if item.name != RENAME_HINT
    )


def annotation_state(annotations: Iterable[Annotation], names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the comparable form of annotations: JSON texts, because in Python 1 equals 1.0 and True."""
    return tuple(annotation_keys(rename_embed_sources(annotations, names)))


def merge_annotations(
    resolver: ConflictResolver,
    entity: str,
    annotations: ThreeWay[tuple[Annotation, ...]],
    columns: ThreeWay[Mapping[str, str]],
) -> tuple[Annotation, ...]:
    """Return the merged annotations, with keys as sources of embeddings; each name is merged separately."""
    if annotations.base is None:
        return _choose_annotations(resolver, entity, annotations, columns, added=True)
    names = {item.name for part in annotations.parts for item in part or ()}
    merged: list[Annotation] = []
    for name in sorted(names - {RENAME_HINT}):
        named = annotations.map(partial(_named, name))
        merged.extend(_choose_annotations(resolver, entity, named, columns, added=False))
    return tuple(merged)


def _named(name: str, annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    return tuple(item for item in annotations if item.name == name)


def _choose_annotations(
    resolver: ConflictResolver,
    entity: str,
    annotations: ThreeWay[tuple[Annotation, ...]],
    columns: ThreeWay[Mapping[str, str]],
    *,
    added: bool,
) -> tuple[Annotation, ...]:
    states, texts = [], []
    for part, names in zip(annotations.parts, columns.parts, strict=True):
        states.append(None if part is None else annotation_state(part, names or {}))
        texts.append(" ".join(map(annotation_text, rename_embed_sources(part or (), {}))) or None)
    side = resolver.choose_side(entity, "annotations", ThreeWay(*states), ThreeWay(*texts), added=added)
    return rename_embed_sources(annotations.require(side), columns.of(side) or {})


def merge_constraints(
    resolver: ConflictResolver,
    entity: str,
    constraints: ThreeWay[tuple[Constraint, ...]],
    columns: ThreeWay[Mapping[str, str]],
) -> tuple[Constraint, ...]:
    """Return the merged body constraints, with keys as columns.

    Each unique constraint and each index is merged separately. Bounds and patterns are merged per property, and
    the key per type, because a combination of two would be a constraint that neither side declares.
    """
    listed = [
        constraint_keys(part or (), names or {})
        for part, names in zip(constraints.parts, columns.parts, strict=True)
    ]
    added = constraints.is_added
    slots = {_slot(item) for part in listed for item in part.values()}
    groups = [sorted(slots)] if added else [[slot] for slot in sorted(slots)]
    merged: list[Constraint] = []
    for group in groups:
        held = [{key: item for key, item in part.items() if _slot(item) in group} for part in listed]
        texts = [
            " ".join(_constraint_text(item, names or {}) for item in part.values()) or None
            for part, names in zip(held, columns.parts, strict=True)
        ]
        states = ThreeWay(*(tuple(part) for part in held))
        side = resolver.choose_side(entity, "constraints", states, ThreeWay(*texts), added=added)
        merged.extend(ThreeWay(*held).require(side).values())
    return tuple(merged)


def _slot(constraint: Constraint) -> tuple[str, ...]:
    """Return the unit that constraints are merged by; a unit has at most one constraint."""
    kind = type(constraint).__name__
    if isinstance(constraint, Range | Check):
        return (kind, constraint.property)
    return (kind,) if isinstance(constraint, Key) else (kind, *constraint.columns)


def _constraint_text(constraint: Constraint, names: Mapping[str, str]) -> str:
    return constraint_text(canonical_constraint(constraint, {key: name for name, key in names.items()}))
