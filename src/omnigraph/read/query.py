"""Run a read on one snapshot: plan, match, project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from omnigraph.catalog.catalog import table_key
from omnigraph.catalog.keys import node_key, table_id_key
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang import ir
from omnigraph.read.match import match_pattern
from omnigraph.read.plan import ReadPlan
from omnigraph.read.project import project
from omnigraph.read.read_planner import plan_read
from omnigraph.read.read_session import ReadSession

# Sizes up to this number are exact for the planner. Of larger ones, the first bits count.
_MAX_EXACT_ROWS: Final = 64
_PLANNING_BITS: Final = 4


def run_read(session: ReadSession, plan: ReadPlan) -> pa.Table:
    """Return the rows of a read, as a table of its outputs."""
    rows = match_pattern(session, plan.steps, plan.duplicates, limit=_enough_rows(plan))
    return project(session, plan, rows)


def _enough_rows(plan: ReadPlan) -> int | None:
    """Return the number of matched rows that decide the result; None if all of them do."""
    query, projection = plan.query, plan.projection
    if query.order or query.aggregated or query.distinct or projection.limit is None:
        return None
    return projection.skip + projection.limit


def plan_on(query: ir.ReadQuery, snapshot: Snapshot) -> ReadPlan:
    """Plan a read with the table sizes of a snapshot."""
    return plan_read(query, SnapshotStatistics(snapshot))


def planning_rows(rows: int) -> int:
    """Return a table size for the planner: all but small sizes are rounded down by at most 1/8.

    A plan therefore holds for many commits, and it is the same in all handles.

    >>> planning_rows(60), planning_rows(1_000), planning_rows(1_000_000), planning_rows(1_000_001)
    (60, 960, 983040, 983040)
    """
    shift = max(0, rows.bit_length() - _PLANNING_BITS) if rows > _MAX_EXACT_ROWS else 0
    return rows >> shift << shift


@dataclass(frozen=True)
class SnapshotStatistics:
    """Table sizes and keys of a snapshot, as recorded in its commit. Sizes are rounded by `planning_rows`."""

    snapshot: Snapshot

    def nodes(self, type_name: str) -> int:
        """Return the number of nodes of a type."""
        return planning_rows(self.snapshot.pin(table_key("node", type_name)).rows)

    def edges(self, edge_type: str) -> int:
        """Return the number of edges of a type."""
        return planning_rows(self.snapshot.pin(self.snapshot.catalog.table("edge", edge_type).key).rows)

    def near_nodes(self, edge_type: str, direction: ir.Direction) -> int:
        """Return the number of nodes of the type that an expansion in this direction starts from."""
        edge = self.snapshot.catalog.schema.edge(edge_type)
        assert edge is not None
        return self.nodes(edge.target if direction == "in" else edge.source)

    def is_key(self, type_name: str, properties: frozenset[str]) -> bool:
        """Return whether values of these properties identify a node."""
        key = node_key(self.snapshot.catalog, type_name)
        if key is not None and {column.name for column in key.columns} <= properties:
            return True
        node = self.snapshot.catalog.schema.node(type_name)
        return node is not None and any(set(columns) <= properties for columns in node.uniques)

    def has_pair_key(self, edge_type: str) -> bool:
        """Return whether the endpoints of an edge are its key."""
        catalog = self.snapshot.catalog
        key = table_id_key(catalog, catalog.table("edge", edge_type))
        return key is not None and key.is_pair
