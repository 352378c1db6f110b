"""The catalog of a graph: the accepted schema with its source text, its identities and its names in storage.

A catalog is immutable. Each accepted schema is stored once as a whole, and every commit refers to its catalog.
An old snapshot is therefore always read with the columns it was written with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from omnigraph.catalog.identity import Identities, PropertyIdentity, TypeIdentity, initial_identities
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
    AnyType,
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
    """A column of a table: its logical name, its type and its name in the data files.

    Writes compute the missing values of a column that `is_computed`, which is a vector with a provider.
    """

    name: str
    type: PropType
    physical: str
    property_id: int | None = None
    is_computed: bool = False

    @property
    def is_required(self) -> bool:
        """Whether every input row must have a value."""
        return not self.type.nullable and not self.is_computed


@dataclass(frozen=True, slots=True)
class Table:
    """The table of a node or edge type. `path` is relative to the graph root and never changes."""

    key: str
    kind: TypeKind
    name: str
    id: int
    type_id: int
    path: str
    columns: tuple[Column, ...]

    def __hash__(self) -> int:
        # Every write looks schemas up by their table, and hashing all columns would take longer than the rest.
        return hash((self.path, len(self.columns)))

    def physical(self, column: str) -> str:
        """Return the name of a logical column in the data files."""
        for item in self.columns:
            if item.name == column:
                return item.physical
        raise NotFound(f"{self.kind} type '{self.name}' has no column '{column}'")


def table_key(kind: TypeKind, name: str) -> str:
    """Return the name of a table in messages and in the manifest.

    >>> table_key("node", "Person")
    'node:Person'
    """
    return f"{kind}:{name}"


@dataclass(frozen=True)
class Catalog(PickledByFields):
    """An accepted schema. `accept` creates the first one of a graph, `evolve` the next one."""

    source: str
    schema: Schema
    identities: Identities
    # For the ids of vector properties, the models of earlier schemas: stored vectors may still be theirs.
    earlier_models: tuple[tuple[int, tuple[str, ...]], ...] = ()

    @property
    def next_id(self) -> int:
        """Next unused identity."""
        return self.identities.next_id

    @cached_property
    def hash(self) -> str:
        """``sha256:<hex>`` of the canonical shape; equal for all texts of the same schema."""
        return schema_hash(self.schema)

    @cached_property
    def fingerprint(self) -> str:
        """``sha256:<hex>`` of the stored catalog, including identities and source text.

        Dropping a property and adding it again gives the same `hash` but other columns. Catalogs of old commits
        must therefore be looked up by fingerprint, not by hash.
        """
        return sha256_name(self.to_json())

    @cached_property
    def tables(self) -> Mapping[str, Table]:
        """All tables by key, nodes before edges, each by name."""
        entities: tuple[NodeType | EdgeType, ...] = (*self.schema.nodes, *self.schema.edges)
        return MappingProxyType({table.key: table for table in map(self._table, entities)})

    def table(self, kind: TypeKind, name: str) -> Table:
        """Return the table of a node or edge type; edge names are case-insensitive."""
        entity = self.schema.edge(name) if kind == "edge" else self.schema.node(name)
        if entity is None:
            raise NotFound(f"unknown {kind} type '{name}'")
        return self.tables[table_key(kind, entity.name)]

    def _table(self, entity: NodeType | EdgeType) -> Table:
        identity = self.identities.of_type(entity.kind, entity.name)
        if identity.table is None:
            raise StorageError(f"the stored schema is corrupt: {entity.kind} '{entity.name}' has no table")
        columns = [Column(name, STRING, name) for name in _STRUCTURAL[entity.kind]]
        for prop in sorted(entity.properties, key=lambda prop: prop.name):
            property_identity = self.identities.of_property(entity.kind, entity.name, prop.name)
            is_computed = prop.embed is not None and prop.embed.provider is not None
            column = str(property_identity.column)
            columns.append(Column(prop.name, prop.type, column, property_identity.id, is_computed))
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
        """Return the stored form: source text and compiled schema with its identities; it is lossless."""
        models = {str(number): list(names) for number, names in self.earlier_models}
        return {
            **({"earlier_models": models} if models else {}),
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
    def from_json(stored: Mapping[str, Any]) -> Catalog:
        """Read a stored catalog.

        Raises `UnsupportedFormat` for another format version, and `StorageError` for content that cannot be
        decoded or does not match its hash.
        """
        version = stored.get("format")
        if version != FORMAT:
            raise UnsupportedFormat(
                f"the accepted schema is stored in format {version!r}, this version reads format {FORMAT}",
                hint="upgrade omnigraph",
            )
        try:
            catalog = _decode(stored)
            intact = catalog.hash == stored["hash"]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StorageError(f"the stored schema is corrupt: {error!r}") from error
        if not intact:
            raise StorageError("the stored schema is corrupt: its content does not match its hash")
        return catalog


def accept(schema: Schema, source: str) -> Catalog:
    """Return the catalog of a new graph. Rename hints are ignored, because there is no previous schema."""
    return Catalog(source, schema, initial_identities(schema))


def _decode(stored: Mapping[str, Any]) -> Catalog:
    schema = Schema(
        interfaces=tuple(InterfaceType(**_decode_entity(item)) for item in stored["interfaces"]),
        nodes=tuple(
            NodeType(**_decode_entity(item), implements=tuple(item["implements"])) for item in stored["nodes"]
        ),
        edges=tuple(
            EdgeType(
                **_decode_entity(item),
                source=item["source"],
                target=item["target"],
                cardinality=Cardinality(item["cardinality"]["min"], item["cardinality"]["max"]),
            )
            for item in stored["edges"]
        ),
    )
    groups: tuple[tuple[TypeKind, str], ...] = (
        ("interface", "interfaces"),
        ("node", "nodes"),
        ("edge", "edges"),
    )
    types, properties = [], []
    for kind, group in groups:
        for item in stored[group]:
            types.append(TypeIdentity(item["id"], kind, item["name"], item["table"]))
            properties += [
                PropertyIdentity(prop["id"], item["id"], prop["name"], prop["column"])
                for prop in item["properties"]
            ]
    identities = Identities(
        tuple(sorted(types, key=lambda item: item.id)),
        tuple(sorted(properties, key=lambda item: item.id)),
        stored["next_id"],
    )
    models = stored.get("earlier_models", {})
    earlier = tuple(sorted((int(number), tuple(names)) for number, names in models.items()))
    return Catalog(stored["source"], schema, identities, earlier)


def _decode_entity(stored: Mapping[str, Any]) -> Json:
    return {
        "name": stored["name"],
        "annotations": tuple(decode_annotation(item) for item in stored["annotations"]),
        "constraints": tuple(decode_constraint(item) for item in stored["constraints"]),
        "properties": tuple(
            Property(
                name=item["name"],
                type=decode_type(item["type"]),
                annotations=tuple(decode_annotation(note) for note in item["annotations"]),
                inherited=item["inherited"],
            )
            for item in stored["properties"]
        ),
    }
