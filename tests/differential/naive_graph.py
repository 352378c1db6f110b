"""A graph as plain dictionaries and lists: what the naive evaluator reads and what stored graphs are made from."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeAlias

from omnigraph.catalog.catalog import Catalog, accept
from omnigraph.catalog.keys import derive_id, node_key
from omnigraph.lang.ir import Value
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.schema import Property
from omnigraph.lang.temporal import parse_date, parse_datetime
from omnigraph.lang.types import FLOATS, PropType, Scalar

Record: TypeAlias = Mapping[str, Any]

# How a JSON document writes the numbers that JSON lacks.
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True)
class Node:
    """A node; dates are days and datetimes milliseconds, lists and vectors tuples."""

    type_name: str
    id: str
    properties: Mapping[str, Value]


@dataclass(frozen=True)
class Edge:
    """An edge between two nodes, which it names by id."""

    type_name: str
    id: str
    src: str
    dst: str
    properties: Mapping[str, Value]


@dataclass(frozen=True, repr=False)
class NaiveGraph:
    """A schema text, and by type every node by id and every edge."""

    schema_text: str
    nodes: Mapping[str, Mapping[str, Node]]
    edges: Mapping[str, list[Edge]]

    def __repr__(self) -> str:
        rows: list[Node | Edge] = [node for found in self.nodes.values() for node in found.values()]
        rows.extend(edge for found in self.edges.values() for edge in found)
        return "\n".join([self.schema_text, *map(repr, rows)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """One line a row, where a generated graph is printed."""
        del cycle
        printer.text(repr(self))

    @cached_property
    def catalog(self) -> Catalog:
        """The accepted schema."""
        return catalog_of(self.schema_text)


@cache
def catalog_of(schema_text: str) -> Catalog:
    """The catalog of a new graph with this schema."""
    return accept(load_schema(schema_text), schema_text)


def graph_of(schema_text: str, records: Iterable[Record]) -> NaiveGraph:
    """The graph that NDJSON records describe; whoever has no id gets a number for one.

    >>> people = [{"type": "P", "data": {"n": "Bo"}}, {"edge": "K", "from": "Bo", "to": "Bo"}]
    >>> graph = graph_of("node P { n: String @key  d: Date? } edge K: P -> P", people)
    >>> graph.nodes["P"]["Bo"].properties, graph.edges["K"][0].dst
    ({'d': None, 'n': 'Bo'}, 'Bo')
    """
    catalog = catalog_of(schema_text)
    nodes: dict[str, dict[str, Node]] = {item.name: {} for item in catalog.schema.nodes}
    edges: dict[str, list[Edge]] = {item.name: [] for item in catalog.schema.edges}
    for number, record in enumerate(records):
        data = record.get("data", {})
        if "type" in record:
            type_ = catalog.schema.node(record["type"])
            assert type_ is not None, record
            found = _properties(type_.properties, data)
            key = node_key(catalog, type_.name)
            id_ = derive_id(key, found) if key else data.get("id", f"n{number:04}")
            assert id_ not in nodes[type_.name], f"two nodes are called {id_}"
            nodes[type_.name][id_] = Node(type_.name, id_, found)
        else:
            kind = catalog.schema.edge(record["edge"])
            assert kind is not None, record
            id_ = data.get("id", f"e{number:04}")
            found = _properties(kind.properties, data)
            edges[kind.name].append(Edge(kind.name, id_, record["from"], record["to"], found))
    for kind in catalog.schema.edges:
        for edge in edges[kind.name]:
            assert edge.src in nodes[kind.source], f"{edge} has no source"
            assert edge.dst in nodes[kind.target], f"{edge} has no target"
    return NaiveGraph(schema_text, nodes, edges)


def _properties(declared: Iterable[Property], data: Mapping[str, Any]) -> dict[str, Value]:
    names = [item.name for item in declared]
    unknown = set(data) - {*names, "id"}
    assert not unknown, f"unknown properties: {unknown}"
    return {item.name: stored_value(data.get(item.name), item.type) for item in declared}


def stored_value(value: Any, type_: PropType) -> Value:
    """A JSON value as it is stored; a value of the wrong type is a mistake in the test."""
    if value is None:
        assert type_.nullable, f"null for {type_}"
        return None
    if type_.is_list or type_.scalar is Scalar.VECTOR:
        assert isinstance(value, list)
        item = PropType(Scalar.F32) if type_.scalar is Scalar.VECTOR else type_.item
        return tuple(stored_value(part, item) for part in value)
    return _stored_scalar(value, type_)


def _stored_scalar(value: Any, type_: PropType) -> Value:
    found: Value
    if type_.scalar is Scalar.DATE:
        found = parse_date(value)
    elif type_.scalar is Scalar.DATETIME:
        found = parse_datetime(value)
    elif type_.scalar in FLOATS:
        number = NOT_FINITE[value] if isinstance(value, str) else float(value)
        found = single(number) if type_.scalar is Scalar.F32 else number
    else:
        found = value
    assert found is not None, f"{value!r} is no {type_}"
    return found


def single(number: float) -> float:
    """The nearest 32-bit float.

    >>> single(0.5), single(0.1) == 0.1
    (0.5, False)
    """
    found: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return found
