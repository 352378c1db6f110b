"""Running a read: plan, match, project, on one snapshot."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from omnigraph.catalog.catalog import table_key
from omnigraph.catalog.keys import node_key
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang import ir
from omnigraph.read.match import match_pattern
from omnigraph.read.plan import Plan, plan_read
from omnigraph.read.project import project
from omnigraph.read.session import ReadSession


def run_read(session: ReadSession, plan: Plan) -> pa.Table:
    """The rows of a read, as a table of its outputs."""
    rows = match_pattern(session, plan.steps, plan.purpose)
    return project(session, plan, rows)


def plan_on(query: ir.ReadQuery, snapshot: Snapshot) -> Plan:
    """How to run a read on a snapshot."""
    return plan_read(query, SnapshotSizes(snapshot))


@dataclass(frozen=True)
class SnapshotSizes:
    """The sizes of a snapshot's tables, which its commit has on record."""

    snapshot: Snapshot

    def nodes(self, type_name: str) -> int:
        """How many nodes a type has."""
        return self.snapshot.pin(table_key("node", type_name)).rows

    def edges(self, edge_type: str) -> int:
        """How many edges a type has."""
        return self.snapshot.pin(self.snapshot.catalog.table("edge", edge_type).key).rows

    def near_nodes(self, edge_type: str, direction: ir.Direction) -> int:
        """How many nodes an expansion in this direction may start from."""
        edge = self.snapshot.catalog.schema.edge(edge_type)
        assert edge is not None
        return self.nodes(edge.target if direction == "in" else edge.source)

    def is_key(self, type_name: str, properties: frozenset[str]) -> bool:
        """Whether values of these properties identify a node."""
        key = node_key(self.snapshot.catalog, type_name)
        if key is not None and {column.name for column in key.columns} <= properties:
            return True
        node = self.snapshot.catalog.schema.node(type_name)
        return node is not None and any(set(columns) <= properties for columns in node.uniques)
