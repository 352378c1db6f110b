"""The changes of a commit against its first parent."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from omnigraph.changes.change_records import ChangeFilter, EntityChange
from omnigraph.changes.cursors import EntityKey
from omnigraph.changes.diff import TypeDiff, compare_states, require_stored, stream_changes
from omnigraph.errors import ChangeFeedGap, Conflict, NotFound
from omnigraph.graph.history import get_commit
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.store.manifest.records import CommitRecord
from omnigraph.store.tables.version_diff import KnownFragments


@dataclass(frozen=True)
class CommitDiff:
    """A commit whose changes can be computed."""

    commit: CommitRecord
    change_filter: ChangeFilter
    diffs: list[TypeDiff]

    def stream(self, after: EntityKey | None = None) -> Generator[EntityChange]:
        """Yield the changes against the first parent, after an entity if one is given."""
        with _report_gap(self.commit):
            yield from stream_changes(self.diffs, self.change_filter, after)


def open_commit(
    repository: Repository,
    commit: CommitRecord,
    change_filter: ChangeFilter,
    known: KnownFragments | None = None,
) -> CommitDiff:
    """Open the changes of a commit against its first parent.

    Rows of small fragments that are `known` are not read from storage.
    Raises `Conflict` for the first commit of a graph, which has no parent, and for a commit that changed the
    properties of a type or dropped a type with rows. Raises `ChangeFeedGap` if garbage collection removed the
    data of either state.
    """
    before, after = states_of(repository, commit)
    type_name = schema_boundary(before, after)
    if type_name is not None:
        raise _refusal(
            commit,
            f"commit '{commit.id}' changed the schema of '{type_name}', so it has no row changes",
            reason="schema_boundary",
            type_name=type_name,
        )
    diffs = compare_states(before, after, change_filter, known)
    with _report_gap(commit):
        require_stored(diffs)
    return CommitDiff(commit, change_filter, diffs)


def states_of(repository: Repository, commit: CommitRecord) -> tuple[Snapshot, Snapshot]:
    """Return the states before and after a commit. Raises `Conflict` for the first commit of a graph."""
    if commit.parent is None:
        text = f"commit '{commit.id}' is the first of its graph and has no parent to compare with"
        raise _refusal(commit, text, reason="parentless_commit")
    parent = get_commit(repository.manifest, repository.manifest.view, commit.parent)
    return repository.snapshot_of(parent), repository.snapshot_of(commit)


def schema_boundary(before: Snapshot, after: Snapshot) -> str | None:
    """Return the first type whose properties differ, or that was dropped with rows; None if there is none.

    New types and renamed types or properties are no boundary.
    """
    if before.commit.schema == after.commit.schema:
        return None
    new = {table.type_id: table for table in after.catalog.tables.values()}
    for key, table in before.catalog.tables.items():
        other = new.get(table.type_id)
        if other is None:
            if before.pin(key).rows:
                return table.name
        elif {column.physical for column in table.columns} != {column.physical for column in other.columns}:
            return other.name
    return None


def change_feed_gap(commit: CommitRecord, cursor: str | None = None) -> ChangeFeedGap:
    """Return the error for a commit whose changes cannot be computed because data was removed.

    `cursor` is the cursor of the poll that reached the commit.
    """
    details = {"first_unreadable_commit_id": commit.id}
    return ChangeFeedGap(
        f"the changes of commit '{commit.id}' were reclaimed by cleanup,"
        " or by a schema change that allowed data loss",
        details={"change_feed_gap": details if cursor is None else {"cursor": cursor, **details}},
        hint="take a baseline, and continue from its cursor",
    )


def _refusal(commit: CommitRecord, text: str, **details: str) -> Conflict:
    return Conflict(text, details={"change_diff_refusal": {**details, "graph_commit_id": commit.id}})


@contextmanager
def _report_gap(commit: CommitRecord) -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise change_feed_gap(commit) from error
