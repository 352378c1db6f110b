"""One read: its snapshot, its parameters, and the tables as it sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, table_key
from omnigraph.engine.arrow_expressions import RowRef, Rows, evaluate
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.engine.memory.table_columns import Frame, Ordinals
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang import ir
from omnigraph.lang.schema import EdgeType
from omnigraph.read.binding_rows import Bound
from omnigraph.read.topology import ExpandMode, Topology
from omnigraph.search.embedding import Embedder
from omnigraph.search.text_search import TextSearch


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run reads; none of it changes which rows come.

    `expand` forces one way of following edges, `projection` one engine for what comes after the pattern.
    """

    expand: ExpandMode | None = None
    projection: str | None = None


class SnapshotTables:
    """The tables of one snapshot, shared by all reads of it."""

    def __init__(self, snapshot: Snapshot, cache: Cache) -> None:
        self.snapshot = snapshot
        self._cache = cache
        self._frames: dict[str, Frame] = {}
        self._topologies: dict[str, Topology] = {}

    def frame(self, key: str) -> Frame:
        """A table by its key."""
        found = self._frames.get(key)
        if found is None:
            found = self._frames[key] = Frame(self.snapshot, key, self._cache)
        return found

    def topology(self, edge: EdgeType) -> Topology:
        """The edges of a type."""
        found = self._topologies.get(edge.name)
        if found is None:
            found = self._topologies[edge.name] = Topology(
                edge,
                self.frame(table_key("edge", edge.name)),
                self.frame(table_key("node", edge.source)),
                self.frame(table_key("node", edge.target)),
                self._cache,
            )
        return found


@dataclass
class ReadSession:
    """What the steps of a read share."""

    snapshot: Snapshot
    tables: SnapshotTables
    bindings: Bindings
    settings: Settings = field(default_factory=Settings)
    embedder: Embedder | None = None
    types: dict[str, Frame] = field(default_factory=dict)

    @property
    def catalog(self) -> Catalog:
        """The schema that the snapshot was written under."""
        return self.snapshot.catalog

    def frame(self, key: str) -> Frame:
        """A table."""
        return self.tables.frame(key)

    def nodes(self, type_name: str) -> Frame:
        """The table of a node type."""
        return self.frame(table_key("node", type_name))

    def edge(self, name: str) -> EdgeType:
        """An edge type."""
        found = self.catalog.schema.edge(name)
        if found is None:
            raise NotFound(f"unknown edge type '{name}'")
        return found

    def topology(self, edge_type: str) -> Topology:
        """The edges of a type."""
        return self.tables.topology(self.edge(edge_type))

    def vector(self, query: ir.Expr) -> tuple[float, ...] | None:
        """The query vector of a ranking; None when it is null."""
        if isinstance(query, ir.EmbedText):
            text = self.text(query.text)
            if text is None:
                return None
            if self.embedder is None:
                raise InvalidInput(
                    "the query ranks by a text, and this graph has no embedding provider",
                    hint="pass a vector, or open the graph with `embedder=`",
                )
            dim = query.type.dim or 0
            return tuple(float(item) for item in self.embedder.embed([text], dim, query.model)[0])
        value = self.constant(query)
        if value is None:
            return None
        assert isinstance(value, tuple)
        return tuple(item for item in value if isinstance(item, int | float))

    def text(self, query: ir.Expr) -> str | None:
        """The text of a search."""
        value = self.constant(query)
        return None if value is None else str(value)

    def constant(self, expr: ir.Expr) -> ir.Value:
        """The value of an expression that has to be the same for every row."""
        if not isinstance(expr, (ir.Const, ir.ParamRef, ir.Now)):
            raise InvalidInput("what is searched for must be a literal or a parameter")
        return self.bindings.value(expr)


@dataclass(frozen=True)
class BoundRows:
    """Rows of bindings as the evaluator sees them."""

    session: ReadSession
    bound: Bound

    @property
    def num_rows(self) -> int:
        """How many there are."""
        return self.bound.num_rows

    def column(self, ref: RowRef) -> pa.Array:
        """The values of a reference, null where its variable is."""
        assert not isinstance(ref, ir.ColumnRef)
        name = "id" if isinstance(ref, ir.EntityRef) else ref.property
        return self.session.types[ref.variable].values(name, self.bound.columns[ref.variable])

    def search(self, match: ir.TextMatch) -> pa.Array:
        """Which rows a text search finds; null where there is no text."""
        frame = self.session.types[match.field.variable]
        ordinals = self.bound.columns[match.field.variable]
        return _search(self.session, frame, match, self, ordinals)


@dataclass(frozen=True)
class FrameRows:
    """All rows of one table as the evaluator sees them, whatever the variable is called."""

    session: ReadSession
    frame: Frame

    @property
    def num_rows(self) -> int:
        """How many there are."""
        return self.frame.num_rows

    def column(self, ref: RowRef) -> pa.Array:
        """A whole column."""
        assert not isinstance(ref, ir.ColumnRef)
        return self.frame.column("id" if isinstance(ref, ir.EntityRef) else ref.property)

    def search(self, match: ir.TextMatch) -> pa.Array:
        """Which rows a text search finds."""
        return _search(self.session, self.frame, match, self, None)


@dataclass(frozen=True)
class SomeRows:
    """Some rows of one table, by position."""

    session: ReadSession
    frame: Frame
    ordinals: Ordinals

    @property
    def num_rows(self) -> int:
        """How many there are."""
        return len(self.ordinals)

    def column(self, ref: RowRef) -> pa.Array:
        """The values of a column."""
        assert not isinstance(ref, ir.ColumnRef)
        name = "id" if isinstance(ref, ir.EntityRef) else ref.property
        return self.frame.values(name, self.ordinals)

    def search(self, match: ir.TextMatch) -> pa.Array:
        """Which rows a text search finds."""
        return _search(self.session, self.frame, match, self, self.ordinals)


def _search(
    session: ReadSession, frame: Frame, match: ir.TextMatch, rows: Rows, ordinals: Ordinals | None
) -> pa.Array:
    queries = evaluate(match.query, rows, session.bindings)
    found = TextSearch(frame, match.field.property)
    return found.rows(match.fn, queries, _edits(session, match), ordinals)


def _edits(session: ReadSession, match: ir.TextMatch) -> int:
    if match.max_edits is None:
        return 2
    value = session.constant(match.max_edits)
    if not isinstance(value, int) or value < 0:
        raise InvalidInput(f"`fuzzy` needs a number of edits of at least 0, got {value}")
    return value


def all_of(predicates: Sequence[ir.Predicate]) -> ir.Predicate:
    """One predicate for several that must all hold."""
    return predicates[0] if len(predicates) == 1 else ir.And(tuple(predicates))


def no_rows() -> Ordinals:
    """No positions."""
    return np.zeros(0, np.int64)
