"""Merge of types: the draft of the merged schema, which is then compiled like any schema."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

from omnigraph.catalog.schema_merge.aspects import annotation_state, merge_annotations
from omnigraph.catalog.schema_merge.members import MergedMembers, Presence, merge_members, property_state
from omnigraph.catalog.schema_merge.names import resolve_names
from omnigraph.catalog.schema_merge.schema_conflicts import ConflictResolver
from omnigraph.catalog.schema_merge.three_way import SIDE_INDEX, MatchedCatalogs, MatchedType, Side, ThreeWay
from omnigraph.catalog.schema_text import type_text
from omnigraph.catalog.shape import constraint_keys
from omnigraph.lang.schema import Annotation, AnyType, Cardinality, EdgeType, NodeType, TypeKind

_KINDS: tuple[TypeKind, ...] = ("interface", "node", "edge")


@dataclass(frozen=True, slots=True)
class DraftType:
    """A merged type. It refers to other types and properties by key, because their names may still change."""

    matched: MatchedType
    presence: Presence
    name: str
    annotations: tuple[Annotation, ...]
    implements: tuple[str, ...]
    ends: tuple[str, ...]
    cardinality: Cardinality
    members: MergedMembers


def merge_types(resolver: ConflictResolver, catalogs: MatchedCatalogs) -> dict[str, DraftType]:
    """Return the merged types by key; every type that one of them refers to is included."""
    presences = ((key, _presence(resolver, catalogs, matched)) for key, matched in catalogs.types.items())
    drafts = {
        key: _draft(resolver, catalogs.types[key], catalogs, presence)
        for key, presence in presences
        if presence is not None
    }
    return _without_dangling_references(_with_distinct_names(resolver, drafts))


def _presence(resolver: ConflictResolver, catalogs: MatchedCatalogs, matched: MatchedType) -> Presence | None:
    """Return the sides that the merged type comes from; None when the merge drops it."""
    types = matched.types
    if types.ours is not None and types.theirs is not None:
        return "both"
    if types.ours is None and types.theirs is None:
        return None
    side: Side = "ours" if types.theirs is None else "theirs"
    if resolver.is_undecided(matched.entity):
        use = "keeps it"
    elif types.base is None:
        return side
    elif _is_changed(catalogs, matched, side):
        use = "changes it"
    elif _is_referenced(catalogs, matched, side):
        use = "refers to it"
    else:
        return None
    other = "theirs" if side == "ours" else "ours"
    message = f"{other} drops {matched.entity}, {side} {use}"
    chosen = resolver.resolve(matched.entity, "existence", message, types.map(type_text))
    return side if chosen == side else None


def _is_changed(catalogs: MatchedCatalogs, matched: MatchedType, side: Side) -> bool:
    return _state(catalogs, matched, 0) != _state(catalogs, matched, SIDE_INDEX[side])


def _is_referenced(catalogs: MatchedCatalogs, matched: MatchedType, side: Side) -> bool:
    """Return whether a type of the side has a new reference to it, or is changed but dropped by the other side."""
    for other in catalogs.types.values():
        index = SIDE_INDEX[side]
        if matched.key not in _references(catalogs, other, index):
            continue
        if _references(catalogs, other, index) != _references(catalogs, other, 0):
            return True
        if None in (other.types.ours, other.types.theirs) and _is_changed(catalogs, other, side):
            return True
    return False


def _references(catalogs: MatchedCatalogs, matched: MatchedType, index: int) -> tuple[str, ...]:
    item = matched.types.parts[index]
    return () if item is None else _implements(catalogs, item, index) + _ends(catalogs, item, index)


def _state(catalogs: MatchedCatalogs, matched: MatchedType, index: int) -> Hashable:
    """Return the comparable state of a type, without inherited properties."""
    item, columns = matched.types.parts[index], matched.columns.parts[index] or {}
    if item is None:
        return None
    properties = frozenset(
        property_state(matched.properties[columns[prop.name]], prop, columns)
        for prop in item.properties
        if not prop.inherited
    )
    return (
        item.name,
        annotation_state(item.annotations, {}),
        frozenset(_implements(catalogs, item, index)),
        _ends(catalogs, item, index),
        _cardinality(item),
        tuple(constraint_keys(item.constraints, columns)),
        properties,
    )


def _implements(catalogs: MatchedCatalogs, item: AnyType, index: int) -> tuple[str, ...]:
    keys = catalogs.keys.parts[index] or {}
    return tuple(keys["interface", name] for name in item.implements) if isinstance(item, NodeType) else ()


def _ends(catalogs: MatchedCatalogs, item: AnyType, index: int) -> tuple[str, ...]:
    keys = catalogs.keys.parts[index] or {}
    return (keys["node", item.source], keys["node", item.target]) if isinstance(item, EdgeType) else ()


def _cardinality(item: AnyType) -> Cardinality:
    return item.cardinality if isinstance(item, EdgeType) else Cardinality()


def _draft(
    resolver: ConflictResolver, matched: MatchedType, catalogs: MatchedCatalogs, presence: Presence
) -> DraftType:
    types, entity, added = matched.types, matched.entity, matched.types.is_added
    implements = _each(catalogs, matched, _implements)
    ends = _each(catalogs, matched, _ends)
    members = merge_members(resolver, matched, presence)
    if presence != "both":
        item = types.require(presence)
        return DraftType(
            matched,
            presence,
            item.name,
            item.annotations,
            implements.require(presence),
            ends.require(presence),
            _cardinality(item),
            members,
        )
    names = types.map(lambda item: item.name)
    cards = types.map(_cardinality)
    by_name = resolver.choose_side(entity, "name", names, names, added=added)
    by_ends = resolver.choose_side(entity, "endpoints", ends, types.map(_ends_text), added=added)
    by_card = resolver.choose_side(entity, "cardinality", cards, cards.map(_cardinality_text), added=added)
    notes = types.map(lambda item: item.annotations)
    return DraftType(
        matched,
        presence,
        names.require(by_name),
        merge_annotations(resolver, entity, notes, ThreeWay({}, {}, {})),
        _merge_implements(resolver, matched, implements),
        ends.require(by_ends),
        cards.require(by_card),
        members,
    )


def _each(
    catalogs: MatchedCatalogs,
    matched: MatchedType,
    read: Callable[[MatchedCatalogs, AnyType, int], tuple[str, ...]],
) -> ThreeWay[tuple[str, ...]]:
    parts = enumerate(matched.types.parts)
    return ThreeWay(*(None if item is None else read(catalogs, item, index) for index, item in parts))


def _merge_implements(
    resolver: ConflictResolver, matched: MatchedType, implements: ThreeWay[tuple[str, ...]]
) -> tuple[str, ...]:
    states = implements.map(frozenset)
    texts = matched.types.map(lambda item: ", ".join(getattr(item, "implements", ())))
    side = resolver.choose_side(matched.entity, "implements", states, texts, added=implements.is_added)
    if states.ours == states.theirs and implements.ours == implements.base:
        # Order is not part of the shape, but it determines which description a property inherits.
        side = "theirs"
    return implements.require(side)


def _ends_text(item: AnyType) -> str:
    return f"{item.source} -> {item.target}" if isinstance(item, EdgeType) else ""


def _cardinality_text(card: Cardinality) -> str:
    return f"@card({card.min}..{'' if card.max is None else card.max})"


def _with_distinct_names(resolver: ConflictResolver, drafts: Mapping[str, DraftType]) -> dict[str, DraftType]:
    renamed: dict[str, DraftType] = {}
    for kind in _KINDS:
        group = {key: draft for key, draft in drafts.items() if draft.matched.kind == kind}
        names = resolve_names(
            resolver,
            {key: draft.matched.types.map(lambda item: item.name) for key, draft in group.items()},
            {key: draft.name for key, draft in group.items()},
            entity=f"{kind}:{{}}".format,
            fold=str.lower if kind == "edge" else str,
        )
        renamed |= {key: replace(group[key], name=name) for key, name in names.items()}
    return renamed


def _without_dangling_references(drafts: Mapping[str, DraftType]) -> dict[str, DraftType]:
    """Return the drafts without edges of dropped node types and without references to dropped interfaces."""
    return {
        key: replace(draft, implements=tuple(item for item in draft.implements if item in drafts))
        for key, draft in drafts.items()
        if all(end in drafts for end in draft.ends)
    }
