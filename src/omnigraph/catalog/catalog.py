"""The accepted schema of a graph: its text, its compiled form, its identities and the names in storage.

A catalog is a value. It is stored whole, once per accepted schema, and every commit names the one it was made
under, so an old snapshot is always read with the columns it was written with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from omnigraph.catalog.identity import Identities, PropertyIdentity, TypeIdentity, first_identities
from omnigraph.catalog.migration.renames import AnyType
from omnigraph.catalog.serialization import (
    Json,
    decode_annotation,
    decode_constraint,
    decode_type,
    encode_annotation,
    encode_constraint,
    encode_type,
)
from omnigraph.catalog.shape import schema_hash, sha256_name
from omnigraph.errors import NotFound, StorageError, UnsupportedFormat
from omnigraph.lang.schema import (
    Cardinality,
    EdgeType,
    InterfaceType,
    NodeType,
    PickledByFields,
    Property,
    Schema,
    TypeKind,
)
from omnigraph.lang.types import STRING, PropType

FORMAT = 1

_DIRECTORIES: Mapping[TypeKind, str] = {"node": "nodes", "edge": "edges"}
_STRUCTURAL: Mapping[TypeKind, tuple[str, ...]] = {"node": ("id",), "edge": ("id", "src", "dst")}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its logical name and type, and the name it has in the files."""

    name: str
    type: PropType
    physical: str
    property_id: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Where the rows of a node or edge type live. `path` is relative to the graph root and never changes."""

    key: str
    kind: TypeKind
    name: str
    id: int
    type_id: int
    path: str
    columns: tuple[Column, ...]

    def physical(self, column: str) -> str:
        """The name in the files of a logical column."""
        for item in self.columns:
            if item.name == column:
                return item.physical
        raise NotFound(f"{self.kind} type '{self.name}' has no column '{column}'")


def table_key(kind: TypeKind, name: str) -> str:
    """The name of a table in messages and in the manifest.

    >>> table_key("node", "Person")
    'node:Person'
    """
    return f"{kind}:{name}"


@dataclass(frozen=True)
class Catalog(PickledByFields):
    """An accepted schema. Make one with `accept`, its successor with `evolve.evolve`."""

    source: str
    schema: Schema
    identities: Identities

    @property
    def next_id(self) -> int:
        """The next free identity."""
        return self.identities.next_id

    @cached_property
    def hash(self) -> str:
        """``sha256:<hex>`` of the canonical shape: equal for every text of the same schema."""
        return schema_hash(self.schema)

    @cached_property
    def fingerprint(self) -> str:
        """``sha256:<hex>`` of the catalog as it is stored, identities and text included.

        Dropping a property and adding it again leads back to the same `hash` but to other columns. Whatever
        is to find the right catalog of an old commit must therefore look it up by this name, not by the
        hash.
        """
        return sha256_name(self.to_json())

    @cached_property
    def tables(self) -> Mapping[str, Table]:
        """Every table by its key, nodes before edges, each by name."""
        entities: tuple[NodeType | EdgeType, ...] = (*self.schema.nodes, *self.schema.edges)
        return MappingProxyType({table.key: table for table in map(self._table, entities)})

    def table(self, kind: TypeKind, name: str) -> Table:
        """The table of a node or edge type; an edge name may be written in any case."""
        entity = self.schema.edge(name) if kind == "edge" else self.schema.node(name)
        if entity is None:
            raise NotFound(f"unknown {kind} type '{name}'")
        return self.tables[table_key(kind, entity.name)]

    def _table(self, entity: NodeType | EdgeType) -> Table:
        identity = self.identities.of_type(entity.kind, entity.name)
        if identity.table is None:
            raise StorageError(f"the accepted schema is damaged: {entity.kind} '{entity.name}' has no table")
        columns = [Column(name, STRING, name) for name in _STRUCTURAL[entity.kind]]
        for prop in sorted(entity.properties, key=lambda prop: prop.name):
            found = self.identities.of_property(entity.kind, entity.name, prop.name)
            columns.append(Column(prop.name, prop.type, str(found.column), found.id))
        return Table(
            key=table_key(entity.kind, entity.name),
            kind=entity.kind,
            name=entity.name,
            id=identity.table,
            type_id=identity.id,
            path=f"{_DIRECTORIES[entity.kind]}/{identity.id}",
            columns=tuple(columns),
        )

    def to_json(self) -> Json:
        """The stored shape: source text and the compiled schema with its identities. Loses nothing."""
        return {
            "format": FORMAT,
            "hash": self.hash,
            "source": self.source,
            "next_id": self.next_id,
            "interfaces": [self._encode(item) for item in self.schema.interfaces],
            "nodes": [
                {**self._encode(item), "implements": list(item.implements)} for item in self.schema.nodes
            ],
            "edges": [
                {
                    **self._encode(item),
                    "source": item.source,
                    "target": item.target,
                    "cardinality": {"min": item.cardinality.min, "max": item.cardinality.max},
                }
                for item in self.schema.edges
            ],
        }

    def _encode(self, entity: AnyType) -> Json:
        identity = self.identities.of_type(entity.kind, entity.name)
        return {
            "id": identity.id,
            "table": identity.table,
            "name": entity.name,
            "annotations": [encode_annotation(item) for item in entity.annotations],
            "constraints": [encode_constraint(item) for item in entity.constraints],
            "properties": [self._encode_property(entity, item) for item in entity.properties],
        }

    def _encode_property(self, entity: AnyType, prop: Property) -> Json:
        identity = self.identities.of_property(entity.kind, entity.name, prop.name)
        return {
            "id": identity.id,
            "column": identity.column,
            "name": prop.name,
            "type": encode_type(prop.type),
            "inherited": prop.inherited,
            "annotations": [encode_annotation(item) for item in prop.annotations],
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Catalog:
        """Read a stored catalog.

        A format of a later version is `UnsupportedFormat`; anything else that does not read back to the
        hash it was stored with is a `StorageError`, because guessing would read columns under wrong names.
        """
        stored = found.get("format")
        if stored != FORMAT:
            raise UnsupportedFormat(
                f"the accepted schema is stored in format {stored!r}, this version reads format {FORMAT}",
                hint="upgrade omnigraph",
            )
        try:
            catalog = _decode(found)
            intact = catalog.hash == found["hash"]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StorageError(f"the accepted schema is damaged: {error!r}") from error
        if not intact:
            raise StorageError("the accepted schema is damaged: its content does not match its hash")
        return catalog


def accept(schema: Schema, source: str) -> Catalog:
    """The catalog of a new graph. Rename hints have nothing to refer to and are ignored."""
    return Catalog(source, schema, first_identities(schema))


def _decode(found: Mapping[str, Any]) -> Catalog:
    schema = Schema(
        interfaces=tuple(InterfaceType(**_decode_entity(item)) for item in found["interfaces"]),
        nodes=tuple(
            NodeType(**_decode_entity(item), implements=tuple(item["implements"])) for item in found["nodes"]
        ),
        edges=tuple(
            EdgeType(
                **_decode_entity(item),
                source=item["source"],
                target=item["target"],
                cardinality=Cardinality(item["cardinality"]["min"], item["cardinality"]["max"]),
            )
            for item in found["edges"]
        ),
    )
    groups: tuple[tuple[TypeKind, str], ...] = (
        ("interface", "interfaces"),
        ("node", "nodes"),
        ("edge", "edges"),
    )
    types, properties = [], []
    for kind, group in groups:
        for item in found[group]:
            types.append(TypeIdentity(item["id"], kind, item["name"], item["table"]))
            properties += [
                PropertyIdentity(prop["id"], item["id"], prop["name"], prop["column"])
                for prop in item["properties"]
            ]
    identities = Identities(
        tuple(sorted(types, key=lambda item: item.id)),
        tuple(sorted(properties, key=lambda item: item.id)),
        found["next_id"],
    )
    return Catalog(found["source"], schema, identities)


def _decode_entity(found: Mapping[str, Any]) -> Json:
    return {
        "name": found["name"],
        "annotations": tuple(decode_annotation(item) for item in found["annotations"]),
        "constraints": tuple(decode_constraint(item) for item in found["constraints"]),
        "properties": tuple(
            Property(
                name=item["name"],
                type=decode_type(item["type"]),
                annotations=tuple(decode_annotation(note) for note in item["annotations"]),
                inherited=item["inherited"],
            )
            for item in found["properties"]
        ),
    }
