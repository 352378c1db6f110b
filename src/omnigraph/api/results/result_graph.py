"""The nodes and edges of a result as a graph: a picture, or a graph of networkx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.extras import requires
from omnigraph.lang.types import ObjectType

if TYPE_CHECKING:
    import networkx

    from omnigraph.api.results.result import Result

# The type and the id of a node. Ids are unique within a type.
NodeKey: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An edge of a result."""

    type_name: str
    id: str
    source: NodeKey
    target: NodeKey
    properties: Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class ResultGraph:
    """Nodes and edges, each once. A notebook displays it as a picture.

    An end of an edge that the result has no node for is a node without properties.

    >>> import omnigraph as og
    >>> schema = "node City { name: String @key }  edge Road: City -> City { km: I32 }"
    >>> g = og.init("memory://docs-result-graph", schema=schema)
    >>> _ = g.load({
    ...     "City": [{"name": "Bern"}, {"name": "Chur"}],
    ...     "Road": [{"from": "Bern", "to": "Chur", "km": 243}],
    ... })
    >>> roads = g.query("query roads() { match { $a $r:road $b } return { $a.* as a, $r.* as road } }").to_graph()
    >>> roads
    ResultGraph(nodes=2, edges=1)
    >>> list(roads.nodes), roads.edges[0].properties
    ([('City', 'Bern'), ('City', 'Chur')], {'km': 243})
    """

    nodes: Mapping[NodeKey, Mapping[str, Any]]
    edges: tuple[GraphEdge, ...]

    @classmethod
    def of(cls, result: Result) -> ResultGraph:
        """Return the graph of the whole nodes and edges in a result."""
        nodes: dict[NodeKey, Mapping[str, Any]] = {}
        edges: dict[tuple[str, str], GraphEdge] = {}
        columns = [
            (name, type_)
            for name, type_ in zip(result.columns, result.types, strict=True)
            if isinstance(type_, ObjectType)
        ]
        if not columns:
            raise ValueError("the result has no whole nodes or edges; return them with `$v.* as v`")
        for name, type_ in columns:
            for value in result[name]:
                if value is None:
                    continue
                if type_.endpoints is None:
                    nodes[type_.type_name, value["id"]] = _properties(value)
                else:
                    source, target = zip(type_.endpoints, (value["from"], value["to"]), strict=True)
                    edge = GraphEdge(type_.type_name, value["id"], source, target, _properties(value))
                    edges[edge.type_name, edge.id] = edge
        for edge in edges.values():
            nodes.setdefault(edge.source, {})
            nodes.setdefault(edge.target, {})
        return cls(nodes, tuple(edges.values()))

    def to_networkx(self) -> networkx.MultiDiGraph[NodeKey]:
        """Return a `networkx.MultiDiGraph`. Needs the extra ``networkx``.

        A node is the pair of its type and id, and has the attributes ``type``, ``id`` and ``properties``. An edge
        has its id as key, and the attributes ``type`` and ``properties``. Each property is an attribute of its own
        too, if no other attribute has its name.
        """
        with requires("networkx", "to_networkx()"):
            import networkx

        graph: networkx.MultiDiGraph[NodeKey] = networkx.MultiDiGraph()
        for key, properties in self.nodes.items():
            graph.add_node(
                key, **{**properties, "type": key[0], "id": key[1], "properties": dict(properties)}
            )
        for edge in self.edges:
            attributes = {**edge.properties, "type": edge.type_name, "properties": dict(edge.properties)}
            graph.add_edge(edge.source, edge.target, edge.id, **attributes)
        return graph

    def to_svg(self) -> str:
        """Return the picture as an SVG document. Of a large graph it shows the nodes with the most edges."""
        from omnigraph.api.display.graph_picture import draw_graph

        return draw_graph(self)

    def save(self, path: str | Path) -> None:
        """Write the picture to an SVG file."""
        from omnigraph.api.files.local_files import atomic_write

        with atomic_write(path) as file:
            file.write(self.to_svg())

    def degrees(self) -> dict[NodeKey, int]:
        """Return the number of edges of each node."""
        counts = dict.fromkeys(self.nodes, 0)
        for key in self._ends():
            counts[key] += 1
        return counts

    def _ends(self) -> Iterator[NodeKey]:
        for edge in self.edges:
            yield edge.source
            yield edge.target

    def __repr__(self) -> str:
        return f"ResultGraph(nodes={len(self.nodes)}, edges={len(self.edges)})"

    def _repr_html_(self) -> str:
        return self.to_svg()


def _properties(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name not in ("id", "from", "to")}
