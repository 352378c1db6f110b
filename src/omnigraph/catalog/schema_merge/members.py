"""Merge of the bodies of types: declared properties and body constraints."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from omnigraph.catalog.schema_merge.aspects import (
    annotation_state,
    merge_annotations,
    merge_constraints,
    merge_type,
    rename_embed_sources,
)
from omnigraph.catalog.schema_merge.names import resolve_names
from omnigraph.catalog.schema_merge.schema_conflicts import ConflictResolver
from omnigraph.catalog.schema_merge.three_way import SIDE_INDEX, MatchedProperty, MatchedType, Side
from omnigraph.catalog.schema_text import property_text
from omnigraph.catalog.shape import (
    canonical_constraint,
    canonical_type,
    constrained_columns,
    constraint_keys,
)
from omnigraph.lang.schema import Annotation, Constraint, Property

Presence: TypeAlias = Side | Literal["both"]


@dataclass(frozen=True, slots=True)
class MergedMembers:
    """Declared properties of a merged type by key, and its constraints with keys as columns."""

    properties: Mapping[str, Property]
    constraints: tuple[Constraint, ...]

    def named(self, inherited: Mapping[str, str]) -> tuple[tuple[Property, ...], tuple[Constraint, ...]]:
        """Return properties and constraints with names instead of keys; `inherited` has further names by key."""
        names = {**inherited, **{key: prop.name for key, prop in self.properties.items()}}
        properties = (
            replace(prop, annotations=rename_embed_sources(prop.annotations, names))
            for prop in self.properties.values()
        )
        return tuple(properties), tuple(canonical_constraint(item, names) for item in self.constraints)


def property_state(matched: MatchedProperty, prop: Property, columns: Mapping[str, str]) -> Hashable:
    """Return the comparable state of a property."""
    notes = annotation_state(prop.annotations, columns)
    return matched.key, prop.name, canonical_type(prop.type), notes, prop.inherited


def merge_members(resolver: ConflictResolver, owner: MatchedType, presence: Presence) -> MergedMembers:
    """Merge the bodies of a type that both sides have, or return the body of one side.

    Inherited properties are not merged here, because they follow from the interfaces.
    """
    if presence != "both":
        return _members_of(owner, presence)
    declared = {
        matched.key: prop
        for matched in owner.properties.values()
        if not _is_inherited(matched) and (prop := _merge_property(resolver, owner, matched))
    }
    bodies = owner.types.map(lambda item: item.constraints)
    constraints = merge_constraints(resolver, owner.entity, bodies, owner.columns)
    return _with_distinct_names(resolver, owner, MergedMembers(declared, constraints))


def _members_of(owner: MatchedType, side: Side) -> MergedMembers:
    columns = owner.columns.of(side) or {}
    properties = {
        columns[prop.name]: _keyed(prop, columns)
        for prop in owner.types.require(side).properties
        if not prop.inherited
    }
    body = owner.types.require(side).constraints
    return MergedMembers(properties, tuple(canonical_constraint(item, columns) for item in body))


def _keyed(prop: Property, columns: Mapping[str, str]) -> Property:
    return replace(prop, annotations=rename_embed_sources(prop.annotations, columns))


def _is_inherited(matched: MatchedProperty) -> bool:
    """Return whether the merged type inherits the property."""
    base, ours, theirs = (None if part is None else part.inherited for part in matched.properties.parts)
    if ours is None or theirs is None:
        return bool(ours or theirs)
    if base is None:
        return ours and theirs
    return ours if ours != base else theirs


def _entity(owner: MatchedType, matched: MatchedProperty) -> str:
    return f"{owner.entity}.{matched.label}"


def _merge_property(
    resolver: ConflictResolver, owner: MatchedType, matched: MatchedProperty
) -> Property | None:
    versions, columns = matched.properties, owner.columns
    entity = _entity(owner, matched)
    if versions.ours is None or versions.theirs is None:
        return _one_sided_property(resolver, owner, matched)
    names = versions.map(lambda item: item.name)
    side = resolver.choose_side(entity, "name", names, names, added=versions.is_added)
    return Property(
        names.require(side),
        merge_type(resolver, entity, versions.map(lambda item: item.type)),
        merge_annotations(resolver, entity, versions.map(lambda item: item.annotations), columns),
    )


def _one_sided_property(
    resolver: ConflictResolver, owner: MatchedType, matched: MatchedProperty
) -> Property | None:
    """Merge a property that at most one side has: added by that side, or dropped by the other one or by both."""
    versions = matched.properties
    side: Side = "ours" if versions.theirs is None else "theirs"
    prop, entity = versions.of(side), _entity(owner, matched)
    if prop is None:
        return None
    if versions.base is not None or resolver.is_undecided(entity):
        if resolver.is_undecided(entity):
            use = "keeps it"
        elif _is_changed(owner, matched, side):
            use = "changes it"
        elif matched.key in {key for _, key in set(_uses(owner, SIDE_INDEX[side])) - set(_uses(owner, 0))}:
            use = "refers to it"
        else:
            return None
        other = "theirs" if side == "ours" else "ours"
        message = f"{other} drops {entity}, {side} {use}"
        if resolver.resolve(entity, "existence", message, versions.map(property_text)) != side:
            return None
    return _keyed(prop, owner.columns.of(side) or {})


def _is_changed(owner: MatchedType, matched: MatchedProperty, side: Side) -> bool:
    before, after = (
        None if prop is None else property_state(matched, prop, owner.columns.parts[index] or {})
        for index, prop in ((0, matched.properties.base), (SIDE_INDEX[side], matched.properties.of(side)))
    )
    return before != after


def _uses(owner: MatchedType, index: int) -> Iterator[tuple[str, str]]:
    """Yield each reference to a property: the text of the constraint or the key of the embedding, and its key."""
    item, columns = owner.types.parts[index], owner.columns.parts[index] or {}
    if item is None:
        return
    for text, constraint in constraint_keys(item.constraints, columns).items():
        yield from ((text, column) for column in constrained_columns(constraint))
    for prop in item.properties:
        if prop.embed is not None:
            yield columns[prop.name], columns.get(prop.embed.source, prop.embed.source)


def _with_distinct_names(
    resolver: ConflictResolver, owner: MatchedType, members: MergedMembers
) -> MergedMembers:
    """Return the members with unique names, without references to dropped properties."""
    names = resolve_names(
        resolver,
        {key: owner.properties[key].properties.map(lambda item: item.name) for key in members.properties},
        {key: prop.name for key, prop in members.properties.items()},
        entity=lambda name: f"{owner.entity}.{name}",
    )
    inherited = {key for key, matched in owner.properties.items() if _is_inherited(matched)}
    dropped = owner.properties.keys() - names.keys() - inherited

    def is_kept(annotation: Annotation) -> bool:
        return annotation.name != "embed" or annotation.value not in dropped

    properties = {
        key: replace(prop, name=names[key], annotations=tuple(filter(is_kept, prop.annotations)))
        for key, prop in members.properties.items()
        if key in names
    }
    constraints = tuple(item for item in members.constraints if not constrained_columns(item) & dropped)
    return MergedMembers(properties, constraints)
