"""Which types a merged schema has and what each is: the draft that is then compiled like any schema."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

from omnigraph.catalog.migration.renames import AnyType
from omnigraph.catalog.schema_merge.aspects import annotation_state, merge_annotations
from omnigraph.catalog.schema_merge.members import Members, Presence, merge_members, property_state
from omnigraph.catalog.schema_merge.names import settle_names
from omnigraph.catalog.schema_merge.schema_conflicts import Decisions
from omnigraph.catalog.schema_merge.three_way import PLACES, MatchedCatalogs, MatchedType, Side, ThreeWay
from omnigraph.catalog.schema_text import type_text
from omnigraph.catalog.shape import constraint_keys
from omnigraph.lang.schema import Annotation, Cardinality, EdgeType, NodeType, TypeKind

_KINDS: tuple[TypeKind, ...] = ("interface", "node", "edge")


@dataclass(frozen=True, slots=True)
class DraftType:
    """A merged type. Other types and properties are keys, as their names may not be settled yet."""

    triple: MatchedType
    presence: Presence
    name: str
    annotations: tuple[Annotation, ...]
    implements: tuple[str, ...]
    ends: tuple[str, ...]
    cardinality: Cardinality
    members: Members


def merge_types(decisions: Decisions, matched: MatchedCatalogs) -> dict[str, DraftType]:
    """The merged types by key; every type that one refers to is among them."""
    found = ((key, _presence(decisions, matched, triple)) for key, triple in matched.types.items())
    drafts = {
        key: _draft(decisions, matched.types[key], matched, presence)
        for key, presence in found
        if presence is not None
    }
    return _complete(_with_distinct_names(decisions, drafts))


def _presence(decisions: Decisions, matched: MatchedCatalogs, triple: MatchedType) -> Presence | None:
    """Whose type it is; None when it is gone."""
    types = triple.types
    if types.ours is not None and types.theirs is not None:
        return "both"
    if types.ours is None and types.theirs is None:
        return None
    side: Side = "ours" if types.theirs is None else "theirs"
    if types.base is None:
        return side
    if _is_changed(matched, triple, side):
        use = "changes it"
    elif _is_needed(matched, triple, side):
        use = "refers to it"
    else:
        return None
    other = "theirs" if side == "ours" else "ours"
    message = f"{other} drops {triple.entity}, {side} {use}"
    chosen = decisions.pick(triple.entity, "existence", message, types.map(type_text))
    return side if chosen == side else None


def _is_changed(matched: MatchedCatalogs, triple: MatchedType, side: Side) -> bool:
    return _state(matched, triple, 0) != _state(matched, triple, PLACES[side])


def _is_needed(matched: MatchedCatalogs, triple: MatchedType, side: Side) -> bool:
    """Whether a type of the side refers to it that did not before, or that the other side wanted gone too."""
    for user in matched.types.values():
        place = PLACES[side]
        if triple.key not in _references(matched, user, place):
            continue
        if _references(matched, user, place) != _references(matched, user, 0):
            return True
        if None in (user.types.ours, user.types.theirs) and _is_changed(matched, user, side):
            return True
    return False


def _references(matched: MatchedCatalogs, triple: MatchedType, place: int) -> tuple[str, ...]:
    item = triple.types.parts[place]
    return () if item is None else _implements(matched, item, place) + _ends(matched, item, place)


def _state(matched: MatchedCatalogs, triple: MatchedType, place: int) -> Hashable:
    """Everything that makes a change of the type a change; what it inherits is its interfaces' business."""
    item, columns = triple.types.parts[place], triple.columns.parts[place] or {}
    if item is None:
        return None
    properties = frozenset(
        property_state(triple.properties[columns[prop.name]], prop, columns)
        for prop in item.properties
        if not prop.inherited
    )
    return (
        item.name,
        annotation_state(item.annotations, {}),
        frozenset(_implements(matched, item, place)),
        _ends(matched, item, place),
        _cardinality(item),
        tuple(constraint_keys(item.constraints, columns)),
        properties,
    )


def _implements(matched: MatchedCatalogs, item: AnyType, place: int) -> tuple[str, ...]:
    keys = matched.keys.parts[place] or {}
    return tuple(keys["interface", name] for name in item.implements) if isinstance(item, NodeType) else ()


def _ends(matched: MatchedCatalogs, item: AnyType, place: int) -> tuple[str, ...]:
    keys = matched.keys.parts[place] or {}
    return (keys["node", item.source], keys["node", item.target]) if isinstance(item, EdgeType) else ()


def _cardinality(item: AnyType) -> Cardinality:
    return item.cardinality if isinstance(item, EdgeType) else Cardinality()


def _draft(
    decisions: Decisions, triple: MatchedType, matched: MatchedCatalogs, presence: Presence
) -> DraftType:
    types, entity, fresh = triple.types, triple.entity, triple.types.is_fresh
    implements = _each(matched, triple, _implements)
    ends = _each(matched, triple, _ends)
    members = merge_members(decisions, triple, presence)
    if presence != "both":
        item = types.require(presence)
        return DraftType(
            triple,
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
    by_name = decisions.settle(entity, "name", names, names, fresh=fresh)
    by_ends = decisions.settle(entity, "endpoints", ends, types.map(_ends_text), fresh=fresh)
    by_card = decisions.settle(entity, "cardinality", cards, cards.map(_cardinality_text), fresh=fresh)
    notes = types.map(lambda item: item.annotations)
    return DraftType(
        triple,
        presence,
        names.require(by_name),
        merge_annotations(decisions, entity, notes, ThreeWay({}, {}, {})),
        _merge_implements(decisions, triple, implements),
        ends.require(by_ends),
        cards.require(by_card),
        members,
    )


def _each(
    matched: MatchedCatalogs,
    triple: MatchedType,
    read: Callable[[MatchedCatalogs, AnyType, int], tuple[str, ...]],
) -> ThreeWay[tuple[str, ...]]:
    parts = enumerate(triple.types.parts)
    return ThreeWay(*(None if item is None else read(matched, item, place) for place, item in parts))


def _merge_implements(
    decisions: Decisions, triple: MatchedType, implements: ThreeWay[tuple[str, ...]]
) -> tuple[str, ...]:
    states = implements.map(frozenset)
    texts = triple.types.map(lambda item: ", ".join(getattr(item, "implements", ())))
    side = decisions.settle(triple.entity, "implements", states, texts, fresh=implements.is_fresh)
    if states.ours == states.theirs and implements.ours == implements.base:
        # The order alone is no change of the schema, but it decides whose description a property inherits.
        side = "theirs"
    return implements.require(side)


def _ends_text(item: AnyType) -> str:
    return f"{item.source} -> {item.target}" if isinstance(item, EdgeType) else ""


def _cardinality_text(card: Cardinality) -> str:
    return f"@card({card.min}..{'' if card.max is None else card.max})"


def _with_distinct_names(decisions: Decisions, drafts: Mapping[str, DraftType]) -> dict[str, DraftType]:
    found: dict[str, DraftType] = {}
    for kind in _KINDS:
        group = {key: draft for key, draft in drafts.items() if draft.triple.kind == kind}
        names = settle_names(
            decisions,
            {key: draft.triple.types.map(lambda item: item.name) for key, draft in group.items()},
            {key: draft.name for key, draft in group.items()},
            entity=f"{kind}:{{}}".format,
            fold=str.lower if kind == "edge" else str,
        )
        found |= {key: replace(group[key], name=name) for key, name in names.items()}
    return found


def _complete(drafts: Mapping[str, DraftType]) -> dict[str, DraftType]:
    """The drafts without edges that would hang in the air and interfaces that are gone."""
    return {
        key: replace(draft, implements=tuple(face for face in draft.implements if face in drafts))
        for key, draft in drafts.items()
        if all(end in drafts for end in draft.ends)
    }
