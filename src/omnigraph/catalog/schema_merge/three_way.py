"""The types and properties of three catalogs, put side by side: a merge base and what two branches made of it.

Things are the same when their identities are. What is left over is the same when kind and name are: both
branches may have declared a thing on their own, and a merge that found such a thing gave it one of the two
numbers, so that the other branch still knows it by another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, TypeAlias, TypeVar

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import PropertyIdentity, TypeIdentity
from omnigraph.catalog.migration.renames import AnyType, TypeName, all_types
from omnigraph.lang.schema import Property, TypeKind

T = TypeVar("T")
U = TypeVar("U")

Side: TypeAlias = Literal["ours", "theirs"]
# Where a side stands in the parts of a triple; the base comes first.
PLACES: Mapping[Side, int] = {"ours": 1, "theirs": 2}


@dataclass(frozen=True, slots=True)
class ThreeWay(Generic[T]):
    """One thing in the merge base and on both sides; None where it does not exist."""

    base: T | None
    ours: T | None
    theirs: T | None

    def of(self, side: Side) -> T | None:
        """What it is on a side."""
        return self.parts[PLACES[side]]

    def require(self, side: Side) -> T:
        """What it is on a side that has it."""
        found = self.of(side)
        assert found is not None
        return found

    def map(self, change: Callable[[T], U]) -> ThreeWay[U]:
        """The same of each, where it exists."""
        base, ours, theirs = (None if item is None else change(item) for item in self.parts)
        return ThreeWay(base, ours, theirs)

    @property
    def parts(self) -> tuple[T | None, T | None, T | None]:
        """Base, ours, theirs."""
        return self.base, self.ours, self.theirs

    @property
    def is_fresh(self) -> bool:
        """Whether it is younger than the merge base."""
        return self.base is None


@dataclass(frozen=True, slots=True)
class MatchedProperty:
    """A property of a type; `key` tells it from the others of the type, whatever they are called."""

    key: str
    properties: ThreeWay[Property]
    identities: ThreeWay[PropertyIdentity]

    @property
    def label(self) -> str:
        """The name that messages use."""
        return _label(self.properties.map(lambda item: item.name))


@dataclass(frozen=True, slots=True)
class MatchedType:
    """A type; `columns` has the keys of its properties by the name they have on each side."""

    key: str
    kind: TypeKind
    types: ThreeWay[AnyType]
    identities: ThreeWay[TypeIdentity]
    properties: Mapping[str, MatchedProperty]
    columns: ThreeWay[Mapping[str, str]]

    @property
    def label(self) -> str:
        """The name that messages use."""
        return _label(self.types.map(lambda item: item.name))

    @property
    def entity(self) -> str:
        """How conflicts name the type: ``node:Person``."""
        return f"{self.kind}:{self.label}"


@dataclass(frozen=True, slots=True)
class MatchedCatalogs:
    """Every type of three catalogs by its key, and the keys by the names of each side."""

    types: Mapping[str, MatchedType]
    keys: ThreeWay[Mapping[TypeName, str]]


@dataclass(frozen=True, slots=True)
class _Item(Generic[T]):
    id: int
    name: str
    value: T


def match_catalogs(base: Catalog, ours: Catalog, theirs: Catalog) -> MatchedCatalogs:
    """Put the types of three catalogs side by side, and the properties of each."""
    sides = ThreeWay(base, ours, theirs)
    kinds: tuple[TypeKind, ...] = ("interface", "node", "edge")
    types: dict[str, MatchedType] = {}
    for kind in kinds:
        listed = sides.map(partial(_types_of, kind=kind))
        for number, found in enumerate(_match(listed)):
            key = f"{kind}#{number}"
            types[key] = _type_triple(key, kind, found, sides)
    base_keys, our_keys, their_keys = (
        {(item.kind, part.name): item.key for item in types.values() if (part := item.types.parts[place])}
        for place in range(3)
    )
    return MatchedCatalogs(types, ThreeWay(base_keys, our_keys, their_keys))


def _types_of(catalog: Catalog, kind: TypeKind) -> list[_Item[AnyType]]:
    return [
        _Item(catalog.identities.of_type(kind, item.name).id, item.name, item)
        for item in all_types(catalog.schema)
        if item.kind == kind
    ]


def _type_triple(key: str, kind: TypeKind, types: ThreeWay[AnyType], sides: ThreeWay[Catalog]) -> MatchedType:
    pairs = [
        (side, item) if side is not None and item is not None else None
        for side, item in zip(sides.parts, types.parts, strict=True)
    ]
    held = ThreeWay(*pairs)
    properties: dict[str, MatchedProperty] = {}
    for number, found in enumerate(_match(held.map(lambda pair: _properties_of(*pair)))):
        values = found.map(lambda pair: pair[0])
        properties[f"#{number}"] = MatchedProperty(f"#{number}", values, found.map(lambda pair: pair[1]))
    base_columns, our_columns, their_columns = (
        {part.name: item.key for item in properties.values() if (part := item.properties.parts[place])}
        for place in range(3)
    )
    identities = held.map(lambda pair: pair[0].identities.of_type(kind, pair[1].name))
    columns: ThreeWay[Mapping[str, str]] = ThreeWay(base_columns, our_columns, their_columns)
    return MatchedType(key, kind, types, identities, properties, columns)


def _properties_of(catalog: Catalog, owner: AnyType) -> list[_Item[tuple[Property, PropertyIdentity]]]:
    found = []
    for prop in owner.properties:
        identity = catalog.identities.of_property(owner.kind, owner.name, prop.name)
        found.append(_Item(identity.id, prop.name, (prop, identity)))
    return found


def _match(sides: ThreeWay[list[_Item[T]]]) -> list[ThreeWay[T]]:
    """Group by id, then join by name what has no part in common; in the order of names."""
    by_id: dict[int, ThreeWay[_Item[T]]] = {}
    for place, items in enumerate(sides.parts):
        for item in items or ():
            parts = list(by_id.get(item.id, ThreeWay(None, None, None)).parts)
            parts[place] = item
            by_id[item.id] = ThreeWay(*parts)
    # A name in the base says more than a name that a side has given since.
    joined = _join(_join(list(by_id.values()), 0, (1, 2)), 1, (2,))
    ordered = sorted(joined, key=lambda group: (_label(group.map(lambda item: item.name)), _first_id(group)))
    return [group.map(lambda item: item.value) for group in ordered]


def _join(groups: list[ThreeWay[_Item[T]]], place: int, others: tuple[int, ...]) -> list[ThreeWay[_Item[T]]]:
    """Join groups that have an item at `place` with groups that have none but one of its name elsewhere."""
    kept = [group for group in groups if group.parts[place] is not None]
    at = {item.name: number for number, group in enumerate(kept) if (item := group.parts[place])}
    rest: list[ThreeWay[_Item[T]]] = []
    for group in groups:
        if group.parts[place] is not None:
            continue
        names = (item.name for other in others if (item := group.parts[other]))
        fitting = (at[name] for name in names if name in at and _disjoint(kept[at[name]], group))
        number = next(fitting, None)
        if number is None:
            rest.append(group)
        else:
            pairs = zip(kept[number].parts, group.parts, strict=True)
            kept[number] = ThreeWay(*(left if left is not None else right for left, right in pairs))
    return kept + rest


def _disjoint(left: ThreeWay[T], right: ThreeWay[T]) -> bool:
    return not any(
        one is not None and two is not None for one, two in zip(left.parts, right.parts, strict=True)
    )


def _label(names: ThreeWay[str]) -> str:
    """The name in the base, or a name that does not depend on which side is called ours."""
    return names.base or min(name for name in names.parts if name is not None)


def _first_id(group: ThreeWay[_Item[T]]) -> int:
    return min(item.id for item in group.parts if item is not None)
