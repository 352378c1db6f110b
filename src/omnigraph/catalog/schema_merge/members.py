"""What stands in the body of a merged type: its own properties and its constraints."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from omnigraph.catalog.schema_merge.aspects import (
    annotation_state,
    follow_annotations,
    merge_annotations,
    merge_constraints,
    merge_type,
)
from omnigraph.catalog.schema_merge.names import settle_names
from omnigraph.catalog.schema_merge.schema_conflicts import Decisions
from omnigraph.catalog.schema_merge.three_way import PLACES, MatchedProperty, MatchedType, Side
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
class Members:
    """Properties that the type declares itself, by key, and constraints over keys."""

    properties: Mapping[str, Property]
    constraints: tuple[Constraint, ...]

    def named(self, inherited: Mapping[str, str]) -> tuple[tuple[Property, ...], tuple[Constraint, ...]]:
        """The same with names in place of keys; `inherited` has those of properties declared elsewhere."""
        names = {**inherited, **{key: prop.name for key, prop in self.properties.items()}}
        properties = (
            replace(prop, annotations=follow_annotations(prop.annotations, names))
            for prop in self.properties.values()
        )
        return tuple(properties), tuple(canonical_constraint(item, names) for item in self.constraints)


def property_state(triple: MatchedProperty, prop: Property, columns: Mapping[str, str]) -> Hashable:
    """Everything that makes a change of the property a change."""
    notes = annotation_state(prop.annotations, columns)
    return triple.key, prop.name, canonical_type(prop.type), notes, prop.inherited


def merge_members(decisions: Decisions, owner: MatchedType, presence: Presence) -> Members:
    """Merge the bodies of a type that both sides have, or take that of one side.

    What a node inherits is not decided here: it follows from its interfaces.
    """
    if presence != "both":
        return _members_of(owner, presence)
    declared = {
        triple.key: prop
        for triple in owner.properties.values()
        if not _is_inherited(triple) and (prop := _merge_property(decisions, owner, triple))
    }
    bodies = owner.types.map(lambda item: item.constraints)
    constraints = merge_constraints(decisions, owner.entity, bodies, owner.columns)
    return _with_distinct_names(decisions, owner, Members(declared, constraints))


def _members_of(owner: MatchedType, side: Side) -> Members:
    columns = owner.columns.of(side) or {}
    properties = {
        columns[prop.name]: _keyed(prop, columns)
        for prop in owner.types.require(side).properties
        if not prop.inherited
    }
    body = owner.types.require(side).constraints
    return Members(properties, tuple(canonical_constraint(item, columns) for item in body))


def _keyed(prop: Property, columns: Mapping[str, str]) -> Property:
    return replace(prop, annotations=follow_annotations(prop.annotations, columns))


def _is_inherited(triple: MatchedProperty) -> bool:
    """Whether the merged type leaves the property to an interface."""
    base, ours, theirs = (None if part is None else part.inherited for part in triple.properties.parts)
    if ours is None or theirs is None:
        return bool(ours or theirs)
    if base is None:
        return ours and theirs
    return ours if ours != base else theirs


def _entity(owner: MatchedType, triple: MatchedProperty) -> str:
    return f"{owner.entity}.{triple.label}"


def _merge_property(decisions: Decisions, owner: MatchedType, triple: MatchedProperty) -> Property | None:
    found, columns = triple.properties, owner.columns
    entity = _entity(owner, triple)
    if found.ours is None or found.theirs is None:
        return _one_sided(decisions, owner, triple)
    names = found.map(lambda item: item.name)
    side = decisions.settle(entity, "name", names, names, fresh=found.is_fresh)
    return Property(
        names.require(side),
        merge_type(decisions, entity, found.map(lambda item: item.type)),
        merge_annotations(decisions, entity, found.map(lambda item: item.annotations), columns),
    )


def _one_sided(decisions: Decisions, owner: MatchedType, triple: MatchedProperty) -> Property | None:
    """A property that one side has: it was added there, or dropped on the other side, or on both."""
    found = triple.properties
    side: Side = "ours" if found.theirs is None else "theirs"
    prop, entity = found.of(side), _entity(owner, triple)
    if prop is None:
        return None
    if found.base is not None:
        if _is_changed(owner, triple, side):
            use = "changes it"
        elif triple.key in {key for _, key in set(_uses(owner, PLACES[side])) - set(_uses(owner, 0))}:
            use = "refers to it"
        else:
            return None
        other = "theirs" if side == "ours" else "ours"
        message = f"{other} drops {entity}, {side} {use}"
        if decisions.pick(entity, "existence", message, found.map(property_text)) != side:
            return None
    return _keyed(prop, owner.columns.of(side) or {})


def _is_changed(owner: MatchedType, triple: MatchedProperty, side: Side) -> bool:
    before, after = (
        None if prop is None else property_state(triple, prop, owner.columns.parts[place] or {})
        for place, prop in ((0, triple.properties.base), (PLACES[side], triple.properties.of(side)))
    )
    return before != after


def _uses(owner: MatchedType, place: int) -> Iterator[tuple[str, str]]:
    """Each reference to a property by a constraint or an embedding: the text of the user, and the key."""
    item, columns = owner.types.parts[place], owner.columns.parts[place] or {}
    if item is None:
        return
    for text, constraint in constraint_keys(item.constraints, columns).items():
        yield from ((text, column) for column in constrained_columns(constraint))
    for prop in item.properties:
        if prop.embed is not None:
            yield columns[prop.name], columns.get(prop.embed.source, prop.embed.source)


def _with_distinct_names(decisions: Decisions, owner: MatchedType, members: Members) -> Members:
    """The members under names that differ, and without what refers to a property that is not there."""
    names = settle_names(
        decisions,
        {key: owner.properties[key].properties.map(lambda item: item.name) for key in members.properties},
        {key: prop.name for key, prop in members.properties.items()},
        entity=lambda name: f"{owner.entity}.{name}",
    )
    inherited = {key for key, triple in owner.properties.items() if _is_inherited(triple)}
    gone = owner.properties.keys() - names.keys() - inherited

    def stays(note: Annotation) -> bool:
        return note.name != "embed" or note.value not in gone

    properties = {
        key: replace(prop, name=names[key], annotations=tuple(filter(stays, prop.annotations)))
        for key, prop in members.properties.items()
        if key in names
    }
    constraints = tuple(item for item in members.constraints if not constrained_columns(item) & gone)
    return Members(properties, constraints)
