"""A baseline: the whole state of a branch, and the cursor from which its changes continue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.changes.change_pages import token_scope
from omnigraph.changes.change_records import ChangeFilter
from omnigraph.changes.cursors import Token
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.read.export.record_export import export_lines


@dataclass(frozen=True, slots=True)
class Baseline:
    """The commit that was exported, and the cursor to continue from after it."""

    snapshot_commit_id: str
    resume_cursor: str

    def to_json(self) -> dict[str, str]:
        """Return the JSON form."""
        return {"snapshot_commit_id": self.snapshot_commit_id, "resume_cursor": self.resume_cursor}


def begin_baseline(
    repository: Repository, branch: str, change_filter: ChangeFilter
) -> tuple[Baseline, Iterator[bytes]]:
    """Return a baseline of a branch's head and its lines. The last line is the baseline; a stream without it is
    incomplete.

    Kinds and types of the filter apply to the exported rows and to the cursor, operations only to the cursor.
    """
    head = repository.head(branch)
    snapshot = repository.snapshot_of(head.commit)
    change_filter.check_types(table.name for table in snapshot.catalog.tables.values())
    scope = token_scope(repository, change_filter, head.incarnation)
    baseline = Baseline(head.commit.id, Token("cursor", scope, head.commit.id).encode())
    return baseline, _lines(snapshot, change_filter, baseline)


def _lines(snapshot: Snapshot, change_filter: ChangeFilter, baseline: Baseline) -> Iterator[bytes]:
    types, kinds = change_filter.types or None, change_filter.kinds or None
    for _, lines in export_lines(snapshot, types, kinds=kinds):
        yield lines
    yield json.dumps({"baseline": baseline.to_json()}, separators=(",", ":")).encode() + b"\n"
