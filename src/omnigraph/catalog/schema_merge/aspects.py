"""How one aspect of a type or property merges: its type, its annotations, its body constraints.

States are compared with the keys of properties in place of their names, so that a rename on one side is no
change of what refers to the property.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from omnigraph.catalog.schema_merge.schema_conflicts import Decisions
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


def merge_type(decisions: Decisions, entity: str, types: ThreeWay[PropType]) -> PropType:
    """The merged type of a property; values that both sides added to an enum are all allowed."""
    found = types.map(canonical_type)
    base, ours, theirs = found.base, found.require("ours"), found.require("theirs")
    texts = found.map(str)
    if base is None:
        side = decisions.settle(entity, "type", found, texts, fresh=True)
        return found.require(side)
    nullable = ours.nullable if ours.nullable != base.nullable else theirs.nullable
    union = _extended(base, ours, theirs)
    if union is not None:
        return replace(base, enum_values=union, nullable=nullable)
    side = decisions.settle(entity, "type", found.map(lambda item: item.core), texts, fresh=False)
    return replace(found.require(side), nullable=nullable)


def _extended(base: PropType, ours: PropType, theirs: PropType) -> tuple[str, ...] | None:
    """The values of an enum that kept all it had on both sides."""
    if base.enum_values is None or ours.enum_values is None or theirs.enum_values is None:
        return None
    before = set(base.enum_values)
    if not (before <= set(ours.enum_values) and before <= set(theirs.enum_values)):
        return None
    return tuple(sorted({*ours.enum_values, *theirs.enum_values}))


def follow_annotations(annotations: Iterable[Annotation], names: Mapping[str, str]) -> tuple[Annotation, ...]:
    """Annotations without rename hints, with the property that an embedding is made from under another name.

    >>> follow_annotations((Annotation("embed", "body"),), {"body": "text"})
    (Annotation(name='embed', value='text', kwargs=()),)
    """
    return tuple(
        replace(item, value=names.get(str(item.value), item.value)) if item.name == "embed" else item
        for item in annotations
        if item.name != RENAME_HINT
    )


def annotation_state(annotations: Iterable[Annotation], names: Mapping[str, str]) -> tuple[str, ...]:
    """What is compared of annotations: texts, because in Python 1 equals 1.0 and True."""
    return tuple(annotation_keys(follow_annotations(annotations, names)))


def merge_annotations(
    decisions: Decisions,
    entity: str,
    annotations: ThreeWay[tuple[Annotation, ...]],
    columns: ThreeWay[Mapping[str, str]],
) -> tuple[Annotation, ...]:
    """The merged annotations, embeddings with keys; each name is merged by itself."""
    if annotations.base is None:
        return _settle_annotations(decisions, entity, annotations, columns, fresh=True)
    names = {item.name for part in annotations.parts for item in part or ()}
    found: list[Annotation] = []
    for name in sorted(names - {RENAME_HINT}):
        named = annotations.map(partial(_named, name))
        found.extend(_settle_annotations(decisions, entity, named, columns, fresh=False))
    return tuple(found)


def _named(name: str, annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    return tuple(item for item in annotations if item.name == name)


def _settle_annotations(
    decisions: Decisions,
    entity: str,
    annotations: ThreeWay[tuple[Annotation, ...]],
    columns: ThreeWay[Mapping[str, str]],
    *,
    fresh: bool,
) -> tuple[Annotation, ...]:
    states, texts = [], []
    for part, names in zip(annotations.parts, columns.parts, strict=True):
        states.append(None if part is None else annotation_state(part, names or {}))
        texts.append(" ".join(map(annotation_text, follow_annotations(part or (), {}))) or None)
    side = decisions.settle(entity, "annotations", ThreeWay(*states), ThreeWay(*texts), fresh=fresh)
    return follow_annotations(annotations.require(side), columns.of(side) or {})


def merge_constraints(
    decisions: Decisions,
    entity: str,
    constraints: ThreeWay[tuple[Constraint, ...]],
    columns: ThreeWay[Mapping[str, str]],
) -> tuple[Constraint, ...]:
    """The merged body constraints, columns as keys.

    Each uniqueness rule and each index is kept or gone by itself. Bounds and patterns are merged for each
    property, and the key for the type, as two of them would say something that neither side said.
    """
    listed = [
        constraint_keys(part or (), names or {})
        for part, names in zip(constraints.parts, columns.parts, strict=True)
    ]
    fresh = constraints.is_fresh
    slots = {_slot(item) for part in listed for item in part.values()}
    groups = [sorted(slots)] if fresh else [[slot] for slot in sorted(slots)]
    found: list[Constraint] = []
    for group in groups:
        held = [{key: item for key, item in part.items() if _slot(item) in group} for part in listed]
        texts = [
            " ".join(_constraint_text(item, names or {}) for item in part.values()) or None
            for part, names in zip(held, columns.parts, strict=True)
        ]
        states = ThreeWay(*(tuple(part) for part in held))
        side = decisions.settle(entity, "constraints", states, ThreeWay(*texts), fresh=fresh)
        found.extend(ThreeWay(*held).require(side).values())
    return tuple(found)


def _slot(constraint: Constraint) -> tuple[str, ...]:
    kind = type(constraint).__name__
    if isinstance(constraint, Range | Check):
        return (kind, constraint.property)
    return (kind,) if isinstance(constraint, Key) else (kind, *constraint.columns)


def _constraint_text(constraint: Constraint, names: Mapping[str, str]) -> str:
    return constraint_text(canonical_constraint(constraint, {key: name for name, key in names.items()}))
