"""Stable numeric identities of types, properties and tables, all drawn from one counter.

An identity outlives its name: a rename keeps it, and so the data. It never outlives its thing: a number is
used once, so a name that is dropped and declared again gets a new number, and with it an empty table or
column.

The physical column of a property is fixed when its identity is: ``<name at that time>_<id>``. The name
makes a table readable with any Lance tool; the id makes the column unlike every other that the table ever
had, without keeping a list of retired names, also for engines that fold the case of column names, and for
branches that add properties of the same name on their own. ``id``, ``src`` and ``dst`` end in no number, so
nothing collides with them. A rename or a drop therefore never touches a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from omnigraph.catalog.migration.renames import AnyType, Matching, all_types
from omnigraph.lang.schema import Schema, TypeKind

FIRST_ID = 1


@dataclass(frozen=True, slots=True)
class TypeIdentity:
    """A type and the table that holds its rows; an interface has none."""

    id: int
    kind: TypeKind
    name: str
    table: int | None


@dataclass(frozen=True, slots=True)
class PropertyIdentity:
    """A property of the type with the id `owner`, and its physical column; an interface's has none."""

    id: int
    owner: int
    name: str
    column: str | None


@dataclass(frozen=True)
class Identities:
    """The identities of everything in a schema, by id, and the next free number."""

    types: tuple[TypeIdentity, ...]
    properties: tuple[PropertyIdentity, ...]
    next_id: int

    @cached_property
    def _types(self) -> Mapping[tuple[TypeKind, str], TypeIdentity]:
        return {(item.kind, item.name): item for item in self.types}

    @cached_property
    def _properties(self) -> Mapping[tuple[int, str], PropertyIdentity]:
        return {(item.owner, item.name): item for item in self.properties}

    def of_type(self, kind: TypeKind, name: str) -> TypeIdentity:
        """The identity of a type of the schema."""
        return self._types[kind, name]

    def of_property(self, kind: TypeKind, owner: str, name: str) -> PropertyIdentity:
        """The identity of a property of a type of the schema."""
        return self._properties[self.of_type(kind, owner).id, name]


class _Counter:
    def __init__(self, start: int) -> None:
        self.next = start

    def take(self) -> int:
        taken, self.next = self.next, self.next + 1
        return taken


def first_identities(schema: Schema) -> Identities:
    """Number a schema that nothing precedes."""
    return next_identities(Identities((), (), FIRST_ID), schema, Matching({}, {}))


def next_identities(
    previous: Identities, schema: Schema, matching: Matching, *, counter: int = FIRST_ID
) -> Identities:
    """Number a schema that continues another: what is matched keeps its identity, the rest is new.

    New numbers start at the previous counter or at `counter`, whichever is higher, and go first to types
    (interfaces, nodes, edges, each by name), then to properties (by owner id, then name), then to tables (by
    type id).
    """
    numbers = _Counter(max(previous.next_id, counter))
    declared = list(all_types(schema))
    ids = {(item.kind, item.name): _type_id(item, previous, matching, numbers) for item in declared}
    by_id = sorted(declared, key=lambda item: ids[item.kind, item.name])
    properties = [
        identity
        for item in by_id
        for identity in _property_identities(item, ids[item.kind, item.name], previous, matching, numbers)
    ]
    types = []
    for item in by_id:
        old = matching.types.get((item.kind, item.name))
        if item.kind == "interface":
            table = None
        else:
            table = numbers.take() if old is None else previous.of_type(item.kind, old).table
        types.append(TypeIdentity(ids[item.kind, item.name], item.kind, item.name, table))
    return Identities(tuple(types), tuple(sorted(properties, key=lambda item: item.id)), numbers.next)


def _type_id(item: AnyType, previous: Identities, matching: Matching, numbers: _Counter) -> int:
    old = matching.types.get((item.kind, item.name))
    return numbers.take() if old is None else previous.of_type(item.kind, old).id


def _property_identities(
    item: AnyType, owner: int, previous: Identities, matching: Matching, numbers: _Counter
) -> list[PropertyIdentity]:
    found = []
    for name in sorted(item.by_name):
        old = matching.properties.get((item.kind, item.name, name))
        if old is not None:
            before = previous.of_property(item.kind, matching.types[item.kind, item.name], old)
            found.append(PropertyIdentity(before.id, owner, name, before.column))
            continue
        number = numbers.take()
        column = None if item.kind == "interface" else physical_column(name, number)
        found.append(PropertyIdentity(number, owner, name, column))
    return found


def physical_column(name: str, number: int) -> str:
    """The column of a new property.

    >>> physical_column("age", 7)
    'age_7'
    """
    return f"{name}_{number}"
