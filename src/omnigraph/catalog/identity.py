"""Stable numeric identities of types, properties and tables, all from one counter.

A rename keeps the identity and therefore the data. Numbers are never reused: a name that is dropped and declared
again has a new number, and therefore an empty table or column.

The physical column of a property is fixed together with its identity: ``<name at that time>_<id>``. The name makes
a table readable with any Lance tool. The id makes the column unique among all columns that the table ever had,
without a list of retired names, even for engines with case-insensitive column names and for branches that
independently add properties of the same name. ``id``, ``src`` and ``dst`` do not end in a number, so that no column
collides with them. Renames and drops therefore never rewrite a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from omnigraph.catalog.migration.renames import Matching
from omnigraph.lang.schema import AnyType, Schema, TypeKind, all_types

FIRST_ID = 1


@dataclass(frozen=True, slots=True)
class TypeIdentity:
    """Identity of a type and of its table; an interface has no table."""

    id: int
    kind: TypeKind
    name: str
    table: int | None


@dataclass(frozen=True, slots=True)
class PropertyIdentity:
    """Identity of a property of the type with id `owner`, and its physical column; None in an interface."""

    id: int
    owner: int
    name: str
    column: str | None


@dataclass(frozen=True)
class Identities:
    """Identities of all types and properties of a schema, ordered by id, and the next unused number."""

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
        """Return the identity of a type of the schema."""
        return self._types[kind, name]

    def of_property(self, kind: TypeKind, owner: str, name: str) -> PropertyIdentity:
        """Return the identity of a property of a type of the schema."""
        return self._properties[self.of_type(kind, owner).id, name]


class _Counter:
    def __init__(self, start: int) -> None:
        self.next = start

    def take(self) -> int:
        taken, self.next = self.next, self.next + 1
        return taken


def initial_identities(schema: Schema) -> Identities:
    """Assign identities to the first schema of a graph."""
    return next_identities(Identities((), (), FIRST_ID), schema, Matching({}, {}))


def next_identities(
    previous: Identities, schema: Schema, matching: Matching, *, counter: int = FIRST_ID
) -> Identities:
    """Assign identities to a schema that replaces another; matched elements keep their identity.

    New numbers start at the higher of the previous counter and `counter`. They are assigned to types (interfaces,
    nodes, edges, each by name), then to properties (by owner id, then name), then to tables (by type id).
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
    identities = []
    for name in sorted(item.by_name):
        old = matching.properties.get((item.kind, item.name, name))
        if old is not None:
            before = previous.of_property(item.kind, matching.types[item.kind, item.name], old)
            identities.append(PropertyIdentity(before.id, owner, name, before.column))
            continue
        number = numbers.take()
        column = None if item.kind == "interface" else physical_column(name, number)
        identities.append(PropertyIdentity(number, owner, name, column))
    return identities


def physical_column(name: str, number: int) -> str:
    """Return the physical column of a new property.

    >>> physical_column("age", 7)
    'age_7'
    """
    return f"{name}_{number}"
