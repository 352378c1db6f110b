"""JSON bodies of results, as the server returns them and the command line prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from omnigraph.lang.temporal import epoch_micros

if TYPE_CHECKING:
    from omnigraph.api.interface.tags import Tag
    from omnigraph.api.results.commits import Commit
    from omnigraph.api.results.history import EntityVersion, PropertyOrigin
    from omnigraph.api.results.loads import LoadReceipt
    from omnigraph.api.results.maintenance_reports import Recovery
    from omnigraph.api.results.merges import Merged
    from omnigraph.api.results.receipts import Receipt
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.sources.input_warnings import InputWarnings


def tag_body(tag: Tag) -> dict[str, Any]:
    """Return the body of a tag. `message` is left out if there is none."""
    return {
        "name": tag.name,
        "graph_commit_id": tag.commit_id,
        "actor_id": tag.actor,
        "created_at": epoch_micros(tag.created_at),
        **({} if tag.message is None else {"message": tag.message}),
    }


def commit_body(commit: Commit) -> dict[str, Any]:
    """Return the body of a commit.

    `message` is left out if there is none. `recovered_by` is present if recovery published the commit of an
    interrupted writer; `actor_id` is still the writer.
    """
    from omnigraph.graph.branch_names import MAIN
    from omnigraph.graph.recovery.interrupted_writes import RECOVERY_ACTOR

    parent, merged = (*commit.parents, None, None)[:2]
    body: dict[str, Any] = {
        "graph_commit_id": commit.id,
        "graph_branch": None if commit.branch == MAIN else commit.branch,
        "graph_manifest_version": commit.sequence,
        "parent_commit_id": parent,
        "merged_parent_commit_id": merged,
        "actor_id": commit.actor,
        "created_at": epoch_micros(commit.created_at),
    }
    if commit.message is not None:
        body["message"] = commit.message
    if commit.recovered:
        body["recovered_by"] = RECOVERY_ACTOR
    return body


def version_body(version: EntityVersion) -> dict[str, Any]:
    """Return the body of a version of an entity. `before` and `after` are left out if there is none."""
    images = {"before": version.before, "after": version.after}
    return {
        "commit": commit_body(version.commit),
        "operation": version.commit.operation,
        "op": version.op,
        **{name: image for name, image in images.items() if image is not None},
        "changed": list(version.changed),
        "gap": version.gap,
    }


def origin_body(origin: PropertyOrigin) -> dict[str, Any]:
    """Return the body of the origin of a property."""
    return {
        "property": origin.property,
        "value": origin.value,
        "commit": commit_body(origin.commit),
        "operation": origin.commit.operation,
        "exact": origin.exact,
    }


def recovery_body(recovery: Recovery) -> dict[str, Any]:
    """Return the body of the recovery outcome of an interrupted write. `actor_id` is the actor of the write."""
    from omnigraph.graph.branch_names import MAIN

    return {
        "operation_id": recovery.id,
        "outcome": recovery.outcome,
        "graph_branch": None if recovery.branch == MAIN else recovery.branch,
        "operation": recovery.operation,
        "actor_id": recovery.actor,
        "graph_commit_id": recovery.commit_id,
        "reason": recovery.reason,
        "created_at": epoch_micros(recovery.created_at),
    }


def change_body(receipt: Receipt, branch: str, actor: str | None) -> dict[str, Any]:
    """Return the body of the result of a mutation."""
    return {
        "branch": branch,
        "query_name": receipt.query_name,
        "affected_nodes": receipt.affected_nodes,
        "affected_edges": receipt.affected_edges,
        "actor_id": actor,
        "commit": None if receipt.commit is None else commit_body(receipt.commit),
    }


def load_body(receipt: LoadReceipt, uri: str | None, base: str | None, actor: str | None) -> dict[str, Any]:
    """Return the body of the result of a load.

    Without `uri` that member is left out. `warnings` is present if a permissive load stored values as null or
    dropped fields; `affected` and `skipped` are present for a load with operations, `unindexed` for one that
    leaves indexes to the next optimize.
    """
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
        **({"warnings": warnings_body(receipt.warnings)} if receipt.warnings.total else {}),
        **_operation_counts(receipt),
        **({"unindexed": dict(receipt.unindexed)} if receipt.unindexed else {}),
    }


def _operation_counts(receipt: LoadReceipt) -> dict[str, Any]:
    if not receipt.skipped:
        return {}
    counts = {"affected": receipt.affected, "skipped": receipt.skipped}
    return {member: {name: dict(item) for name, item in of.items()} for member, of in counts.items()}


def warnings_body(warnings: InputWarnings) -> dict[str, Any]:
    """Return the body of the warnings of a load: the numbers of all, and the first of them in `items`."""
    return {
        "nulled": warnings.nulled,
        "dropped": warnings.dropped,
        "items": [asdict(item) for item in warnings.listed],
    }


def merge_body(merged: Merged, source: str, target: str, actor: str | None) -> dict[str, Any]:
    """Return the body of the result of a merge, with the deletion of the source only if it was requested."""
    body: dict[str, Any] = {
        "source": source,
        "target": target,
        "outcome": merged.outcome,
        "actor_id": actor,
    }
    if merged.branch_deleted is not None:
        body["branch_deleted"] = merged.branch_deleted
    if merged.branch_delete_error is not None:
        body["branch_delete_error"] = merged.branch_delete_error
    return body


def snapshot_body(snapshot: Snapshot, branch: str) -> dict[str, Any]:
    """Return the body of a snapshot."""
    datasets = []
    for key, table in snapshot.catalog.tables.items():
        pin = snapshot.pin(key)
        datasets.append(
            {
                "entity_kind": table.kind,
                "type_name": table.name,
                "dataset_path": pin.path,
                "published_dataset_version": pin.number,
                # Tables have no branches of their own: any version can be the base of any other.
                "native_dataset_branch": None,
                "entity_count": pin.rows,
            }
        )
    return {
        "graph_branch": branch,
        "graph_manifest_version": snapshot.commit.sequence,
        "internal_schema_version": snapshot.format_version,
        "datasets": datasets,
    }


def _counts(types: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "entities_loaded": types[name]} for name in sorted(types)]
