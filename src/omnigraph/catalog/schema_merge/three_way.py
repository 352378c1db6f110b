"""Matching of the types and properties of three catalogs: the merge base, ours and theirs.

Elements match when their identities are equal. The remaining ones match when kind and name are equal: both branches
may have declared an element independently, and an earlier merge of the two declarations kept only one of the two
numbers, so that the other branch still has the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, TypeAlias, TypeVar

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import PropertyIdentity, TypeIdentity
from omnigraph.catalog.migration.renames import TypeName
from omnigraph.lang.schema import AnyType, Property, TypeKind, all_types

T = TypeVar("T")
U = TypeVar("U")

Side: TypeAlias = Literal["ours", "theirs"]
# Index of a side in `ThreeWay.parts`; the merge base has index 0.
SIDE_INDEX: Mapping[Side, int] = {"ours": 1, "theirs": 2}


@dataclass(frozen=True, slots=True)
class ThreeWay(Generic[T]):
    """A value in the merge base, in ours and in theirs; None where it does not exist."""

    base: T | None
    ours: T | None
    theirs: T | None

    def of(self, side: Side) -> T | None:
        """Return the value of a side, or None."""
        return self.parts[SIDE_INDEX[side]]

    def require(self, side: Side) -> T:
        """Return the value of a side, which must exist."""
        value = self.of(side)
        assert value is not None
        return value

    def map(self, function: Callable[[T], U]) -> ThreeWay[U]:
        """Apply a function to each value that exists."""
        base, ours, theirs = (None if item is None else function(item) for item in self.parts)
        return ThreeWay(base, ours, theirs)

    @property
    def parts(self) -> tuple[T | None, T | None, T | None]:
        """The values of base, ours and theirs."""
        return self.base, self.ours, self.theirs

    @property
    def is_added(self) -> bool:
        """Whether the merge base has no value."""
        return self.base is None


@dataclass(frozen=True, slots=True)
class MatchedProperty:
    """A property in three catalogs; `key` identifies it within its type, independently of its names."""

    key: str
    properties: ThreeWay[Property]
    identities: ThreeWay[PropertyIdentity]

    @property
    def label(self) -> str:
        """The name that messages use."""
        return _label(self.properties.map(lambda item: item.name))


@dataclass(frozen=True, slots=True)
class MatchedType:
    """A type in three catalogs; `columns` has the keys of its properties by their names on each side."""

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
        """Name of the type in conflicts: ``node:Person``."""
        return f"{self.kind}:{self.label}"


@dataclass(frozen=True, slots=True)
class MatchedCatalogs:
    """All types of three catalogs by key, and the keys by the names on each side."""

    types: Mapping[str, MatchedType]
    keys: ThreeWay[Mapping[TypeName, str]]


@dataclass(frozen=True, slots=True)
class _Item(Generic[T]):
    id: int
    name: str
    value: T


def match_catalogs(base: Catalog, ours: Catalog, theirs: Catalog) -> MatchedCatalogs:
    """Match the types of three catalogs, and the properties of each type."""
    sides = ThreeWay(base, ours, theirs)
    kinds: tuple[TypeKind, ...] = ("interface", "node", "edge")
    types: dict[str, MatchedType] = {}
    for kind in kinds:
        listed = sides.map(partial(_types_of, kind=kind))
        for number, found in enumerate(_match(listed)):
            key = f"{kind}#{number}"
            types[key] = _type_triple(key, kind, found, sides)
    base_keys, our_keys, their_keys = (
        {(item.kind, part.name): item.key for item in types.values() if (part := item.types.parts[index])}
        for index in range(3)
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
        {part.name: item.key for item in properties.values() if (part := item.properties.parts[index])}
        for index in range(3)
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
    """Group items by id, then join groups of the same name that have no side in common; ordered by name."""
    by_id: dict[int, ThreeWay[_Item[T]]] = {}
    for index, items in enumerate(sides.parts):
        for item in items or ():
            parts = list(by_id.get(item.id, ThreeWay(None, None, None)).parts)
            parts[index] = item
            by_id[item.id] = ThreeWay(*parts)
    # Names in the merge base take precedence over names that a side has introduced.
    joined = _join(_join(list(by_id.values()), 0, (1, 2)), 1, (2,))
    ordered = sorted(joined, key=lambda group: (_label(group.map(lambda item: item.name)), _first_id(group)))
    return [group.map(lambda item: item.value) for group in ordered]


def _join(groups: list[ThreeWay[_Item[T]]], index: int, others: tuple[int, ...]) -> list[ThreeWay[_Item[T]]]:
    """Join each group with an item at `index` with a group without one that has the same name elsewhere."""
    kept = [group for group in groups if group.parts[index] is not None]
    at = {item.name: number for number, group in enumerate(kept) if (item := group.parts[index])}
    rest: list[ThreeWay[_Item[T]]] = []
    for group in groups:
        if group.parts[index] is not None:
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
    """Return the name in the merge base, or else a name that does not depend on which side is ours."""
    return names.base or min(name for name in names.parts if name is not None)


def _first_id(group: ThreeWay[_Item[T]]) -> int:
    return min(item.id for item in group.parts if item is not None)
