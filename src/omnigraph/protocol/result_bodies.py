"""What calls gave, in the JSON that the command line prints and a server answers with."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from omnigraph.lang.temporal import EPOCH_TIME

if TYPE_CHECKING:
    from datetime import datetime

    from omnigraph.api.commits import Commit
    from omnigraph.api.loads import LoadReceipt
    from omnigraph.api.maintenance_reports import Recovery
    from omnigraph.api.merges import Merged
    from omnigraph.api.receipts import Receipt
    from omnigraph.graph.snapshot import Snapshot

# The version of the layout of a graph in storage, which old graphs are checked against.
INTERNAL_SCHEMA = 6


def commit_body(commit: Commit) -> dict[str, Any]:
    """A commit. One with a message has that too; one that recovery published for a dead writer says so.

    The actor of the latter stays the writer.
    """
    from omnigraph.graph.branch_names import MAIN
    from omnigraph.graph.recovery import RECOVERY_ACTOR

    parent, merged = (*commit.parents, None, None)[:2]
    found: dict[str, Any] = {
        "graph_commit_id": commit.id,
        "graph_branch": None if commit.branch == MAIN else commit.branch,
        "graph_manifest_version": commit.sequence,
        "parent_commit_id": parent,
        "merged_parent_commit_id": merged,
        "actor_id": commit.actor,
        "created_at": _micros(commit.created_at),
    }
    if commit.message is not None:
        found["message"] = commit.message
    if commit.recovered:
        found["recovered_by"] = RECOVERY_ACTOR
    return found


def recovery_body(recovery: Recovery) -> dict[str, Any]:
    """What recovery did with one interrupted write; the actor is the one whose write it was."""
    from omnigraph.graph.branch_names import MAIN

    return {
        "operation_id": recovery.id,
        "outcome": recovery.outcome,
        "graph_branch": None if recovery.branch == MAIN else recovery.branch,
        "operation": recovery.operation,
        "actor_id": recovery.actor,
        "graph_commit_id": recovery.commit_id,
        "reason": recovery.reason,
        "created_at": _micros(recovery.created_at),
    }


def change_body(receipt: Receipt, branch: str, actor: str | None) -> dict[str, Any]:
    """What a mutation did."""
    return {
        "branch": branch,
        "query_name": receipt.query_name,
        "affected_nodes": receipt.affected_nodes,
        "affected_edges": receipt.affected_edges,
        "actor_id": actor,
        "commit": None if receipt.commit is None else commit_body(receipt.commit),
    }


def load_body(receipt: LoadReceipt, uri: str | None, base: str | None, actor: str | None) -> dict[str, Any]:
    """What a load did; without a `uri` that member is left out."""
    return {
        **({} if uri is None else {"uri": uri}),
        "branch": receipt.branch,
        "base_branch": base,
        "branch_created": receipt.branch_created,
        "mode": receipt.mode,
        "nodes": _counts(receipt.nodes),
        "edges": _counts(receipt.edges),
        "total_entities": receipt.total,
        "actor_id": actor,
        "commit": None if receipt.commit is None else commit_body(receipt.commit),
    }


def merge_body(merged: Merged, source: str, target: str, actor: str | None) -> dict[str, Any]:
    """What a merge did; what became of the source is told only when it was to be deleted."""
    found: dict[str, Any] = {
        "source": source,
        "target": target,
        "outcome": merged.outcome,
        "actor_id": actor,
    }
    if merged.branch_deleted is not None:
        found["branch_deleted"] = merged.branch_deleted
    if merged.branch_delete_error is not None:
        found["branch_delete_error"] = merged.branch_delete_error
    return found


def snapshot_body(found: Snapshot, branch: str) -> dict[str, Any]:
    """What a state consists of. Versions of tables use all 64 bits, so they are strings."""
    datasets = []
    for key, table in found.catalog.tables.items():
        pin = found.pin(key)
        datasets.append(
            {
                "entity_kind": table.kind,
                "type_name": table.name,
                "dataset_path": pin.path,
                "published_dataset_version": str(pin.version),
                # No table has branches of its own: any version can be the base of any other.
                "native_dataset_branch": None,
                "entity_count": pin.rows,
            }
        )
    return {
        "graph_branch": branch,
        "graph_manifest_version": found.commit.sequence,
        "internal_schema_version": INTERNAL_SCHEMA,
        "datasets": datasets,
    }


def _counts(types: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "entities_loaded": types[name]} for name in sorted(types)]


def _micros(moment: datetime) -> int:
    return (moment - EPOCH_TIME) // timedelta(microseconds=1)
