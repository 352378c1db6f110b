"""Look up the edges of one node and the nodes that they lead to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from omnigraph.catalog.columns import ENDPOINT_NAMES
from omnigraph.catalog.row_json import json_values
from omnigraph.engine.layered_adjacency import expand_edges
from omnigraph.engine.memory.cached_table import CachedTable, Ordinals
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.lang.schema import EdgeType
from omnigraph.lang.types import Scalar
from omnigraph.read.entity import named_table
from omnigraph.read.read_session import ReadSession

NeighborDirection: TypeAlias = Literal["out", "in", "both"]

# Values of these types are left out: they are large, and `find_entity` returns them.
_OMITTED = frozenset({Scalar.BLOB, Scalar.VECTOR})


@dataclass(frozen=True, slots=True)
class NeighborRequest:
    """The node, and the edges to follow: their types (None for all) and direction, at most `limit` of each."""

    type_name: str
    id: str
    edges: tuple[str, ...] | None = None
    direction: NeighborDirection = "both"
    limit: int = 100


def find_neighbors(session: ReadSession, request: NeighborRequest) -> dict[str, Any]:
    """Return the edges of a node with the nodes at their other ends, and the number of edges by type and direction.

    Raises `NotFound` if there is no such node or type, and `InvalidInput` if the type is not a node type.
    """
    node = named_table(session.catalog, request.type_name)
    if node.kind != "node":
        raise InvalidInput(f"'{request.type_name}' is an edge type; neighbors are those of a node")
    position = session.table(node.key).position(request.id)
    if position < 0:
        raise NotFound(f"there is no {node.name} '{request.id}'", details={"type": node.name})
    neighbors: list[dict[str, Any]] = []
    counts: list[dict[str, Any]] = []
    for edge, direction in _followed(session, node.name, request):
        view = session.topology(edge.name).neighbourhood(direction, np.array([position]), 1)
        _, targets, edges = expand_edges(view.adjacency, view.to_local(np.array([position])))
        nodes, rows = view.node_positions(targets), view.edge_positions(edges)
        if edge.is_loop and direction == "in" and request.direction == "both":
            # A self-loop is listed once, as an edge that leaves the node.
            others = nodes != position
            nodes, rows = nodes[others], rows[others]
        counts.append({"edge": edge.name, "direction": direction, "count": len(rows)})
        other = edge.target if direction == "out" else edge.source
        found_edges = _entities(session.edges(edge.name), rows[: request.limit])
        found_nodes = _entities(session.nodes(other), nodes[: request.limit])
        neighbors += [
            {"edge": {"type": edge.name, "direction": direction, **item}, "node": {"type": other, **far}}
            for item, far in zip(found_edges, found_nodes, strict=True)
        ]
    return {"type": node.name, "id": request.id, "neighbors": neighbors, "counts": counts}


def _followed(
    session: ReadSession, node: str, request: NeighborRequest
) -> Iterator[tuple[EdgeType, Literal["out", "in"]]]:
    """Yield the edge types to follow with their directions. A type that does not touch the node is left out."""
    chosen = None if request.edges is None else {session.edge_type(name).name for name in request.edges}
    for edge in session.catalog.schema.edges_of(node):
        if chosen is not None and edge.name not in chosen:
            continue
        if edge.source == node and request.direction != "in":
            yield edge, "out"
        if edge.target == node and request.direction != "out":
            yield edge, "in"


def _entities(table: CachedTable, positions: Ordinals) -> list[dict[str, Any]]:
    """Return the id, the endpoints of an edge, and the properties of rows, without blobs and vectors."""
    columns = [item for item in table.layout.columns if item.type.scalar not in _OMITTED]
    if not len(positions):
        return []
    rows = table.take_rows(positions.astype(np.int64), _physical(columns))
    values = {
        ENDPOINT_NAMES.get(item.name, item.name): json_values(rows[item.physical], item.type)
        for item in columns
    }
    ids = values.pop("id")
    ends = {name: values.pop(name) for name in ENDPOINT_NAMES.values() if name in values}
    return [
        {
            "id": id_,
            **{name: column[row] for name, column in ends.items()},
            "properties": {name: column[row] for name, column in values.items()},
        }
        for row, id_ in enumerate(ids)
    ]


def _physical(columns: Sequence[Any]) -> list[str]:
    return [item.physical for item in columns]
