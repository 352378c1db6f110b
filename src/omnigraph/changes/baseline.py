"""A whole state together with the cursor from which its changes go on: where followers of a feed begin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.changes.change_pages import scope_of
from omnigraph.changes.change_records import ChangeFilter
from omnigraph.changes.cursors import Token
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.read.export.record_export import export_lines


@dataclass(frozen=True, slots=True)
class Baseline:
    """The commit that was written out, and the cursor that leads to the first one after it."""

    snapshot_commit_id: str
    resume_cursor: str

    def to_json(self) -> dict[str, str]:
        """The JSON form."""
        return {"snapshot_commit_id": self.snapshot_commit_id, "resume_cursor": self.resume_cursor}


def begin_baseline(
    repository: Repository, branch: str, wanted: ChangeFilter
) -> tuple[Baseline, Iterator[bytes]]:
    """A baseline of a branch's head and its lines; the last one names it, and only a stream with it is complete.

    The filter's kinds and types choose what is written and what the cursor leads to, its operations
    only the latter.
    """
    head = repository.head(branch)
    snapshot = repository.state(head.commit)
    wanted.check_types(table.name for table in snapshot.catalog.tables.values())
    scope = scope_of(repository, wanted, head.incarnation)
    found = Baseline(head.commit.id, Token("cursor", scope, head.commit.id).encode())
    return found, _lines(snapshot, wanted, found)


def _lines(snapshot: Snapshot, wanted: ChangeFilter, baseline: Baseline) -> Iterator[bytes]:
    types, kinds = wanted.types or None, wanted.kinds or None
    for _, lines in export_lines(snapshot, types, kinds=kinds):
        yield lines
    yield json.dumps({"baseline": baseline.to_json()}, separators=(",", ":")).encode() + b"\n"
