"""The state of one read: its snapshot, its parameters, and the tables of its variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from omnigraph.catalog.catalog import Catalog, table_key
from omnigraph.engine.memory.cached_table import CachedTable, Ordinals
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang import ir
from omnigraph.lang.schema import EdgeType
from omnigraph.read.stored_models import StoredModels
from omnigraph.read.topology import ExpandMode, Topology
from omnigraph.search.embeddings.embedder import Embedder
from omnigraph.search.embeddings.given_embedders import check_embeddings
from omnigraph.search.embeddings.providers import find_provider
from omnigraph.search.embeddings.vector_computation import check_model


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Execution settings. They never change which rows a read returns.

    `expand` forces a method of following edges, `projection` an engine for the projection (``arrow`` or
    ``duckdb``).
    """

    expand: ExpandMode | None = None
    projection: str | None = None


class SnapshotTables:
    """The tables of one snapshot, shared by all reads of it."""

    def __init__(self, snapshot: Snapshot, cache: Cache) -> None:
        self.snapshot = snapshot
        self._cache = cache
        self._tables: dict[str, CachedTable] = {}
        self._topologies: dict[str, Topology] = {}

    def table(self, key: str) -> CachedTable:
        """Return a table by its key."""
        found = self._tables.get(key)
        if found is None:
            self.snapshot.check_retained(key)
            # All users of a table share one object, and with it the positions of its rows.
            found = self._tables.setdefault(key, CachedTable(self.snapshot, key, self._cache))
        return found

    def topology(self, edge: EdgeType) -> Topology:
        """Return the topology of an edge type."""
        found = self._topologies.get(edge.name)
        if found is None:
            found = self._topologies[edge.name] = Topology(
                edge,
                self.table(table_key("edge", edge.name)),
                self.table(table_key("node", edge.source)),
                self.table(table_key("node", edge.target)),
                self._cache,
            )
        return found


@dataclass
class ReadSession:
    """State that the steps of a read share.

    `variables` maps each bound variable to its table, and `selected` the ids of scan steps to their rows.
    """

    snapshot: Snapshot
    tables: SnapshotTables
    bindings: Bindings
    settings: ReadSettings = field(default_factory=ReadSettings)
    embedder: Embedder | None = None
    stored_models: StoredModels = field(default_factory=StoredModels)
    variables: dict[str, CachedTable] = field(default_factory=dict)
    selected: dict[int, Ordinals] = field(default_factory=dict)

    @property
    def catalog(self) -> Catalog:
        """The catalog of the snapshot."""
        return self.snapshot.catalog

    def table(self, key: str) -> CachedTable:
        """Return a table by its key."""
        return self.tables.table(key)

    def nodes(self, type_name: str) -> CachedTable:
        """Return the table of a node type."""
        return self.table(table_key("node", type_name))

    def edges(self, type_name: str) -> CachedTable:
        """Return the table of an edge type."""
        return self.table(table_key("edge", self.edge_type(type_name).name))

    def edge_type(self, name: str) -> EdgeType:
        """Return an edge type; raise `NotFound` if the schema has none of this name."""
        found = self.catalog.schema.edge(name)
        if found is None:
            raise NotFound(f"unknown edge type '{name}'")
        return found

    def topology(self, edge_type: str) -> Topology:
        """Return the topology of an edge type."""
        return self.tables.topology(self.edge_type(edge_type))

    def vector(self, query: ir.Expr) -> tuple[float, ...] | None:
        """Return the query vector of a ranking, or None if it is null. Embeds a text.

        Raises `InvalidInput` if the query is a text and the graph has no embedding provider.
        """
        if isinstance(query, ir.EmbedText):
            text = self.text(query.text)
            if text is None:
                return None
            return self._embed(query, text)
        value = self.constant(query)
        if value is None:
            return None
        assert isinstance(value, tuple)
        return tuple(item for item in value if isinstance(item, int | float))

    def _embed(self, query: ir.EmbedText, text: str) -> tuple[float, ...]:
        provider = query.embed.provider if query.embed is not None else None
        if self.embedder is None and provider != "mock":
            raise InvalidInput(
                "the query ranks by a text, but the graph has no embedding provider",
                hint="pass a vector, or open the graph with `embedder=`",
            )
        found = find_provider(self.embedder, provider)
        dim = query.type.dim or 0
        if query.embed is None:
            return tuple(check_embeddings(found.embed([text], dim, None), 1, dim)[0].tolist())
        check_model(found, query.embed)
        self.stored_models.check(self.snapshot, query)
        return tuple(check_embeddings(found.embed([text], dim, query.embed.model), 1, dim)[0].tolist())

    def text(self, query: ir.Expr) -> str | None:
        """Return the text of a search, or None if it is null."""
        value = self.constant(query)
        return None if value is None else str(value)

    def constant(self, expr: ir.Expr) -> ir.Value:
        """Return the value of a literal, a parameter or ``now()``; raise `InvalidInput` for any other
        expression.
        """
        if not isinstance(expr, (ir.Const, ir.ParamRef, ir.Now)):
            raise InvalidInput("the query of a search or ranking must be a literal or a parameter")
        return self.bindings.value(expr)


def conjunction(predicates: Sequence[ir.Predicate]) -> ir.Predicate:
    """Return one predicate that holds if all given ones hold."""
    return predicates[0] if len(predicates) == 1 else ir.And(tuple(predicates))
