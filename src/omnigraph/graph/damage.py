"""Errors of reads whose files are missing or damaged.

A missing file has two possible causes. Garbage collection removes the versions of commits that are not retained,
the version file first. If the version file is gone and no branch head needs the version, the data was reclaimed. In
every other case the graph is damaged: a head is always retained, and a version that exists has all of its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from omnigraph.catalog.catalog import Table
from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.graph.history import branch_heads
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.manifest import Manifest, NotAGraph
from omnigraph.store.manifest.manifest_errors import vanished_error
from omnigraph.store.manifest.records import CommitRecord, TablePin
from omnigraph.store.tables.damage import TableDamage, find_damage, has_version
from omnigraph.store.tables.tables import Tables

# The members of `details` by which a caller recognizes the two cases.
RECLAIMED = "reclaimed"
DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class CommitState:
    """The tables of a commit, for the search for the cause of a failed read. `types` are those of its schema."""

    tables: Tables
    commit: CommitRecord
    types: Iterable[Table]
    branch: str | None = None

    def table_in(self, dataset: str) -> tuple[Table, TablePin] | None:
        """Return the table that is stored in a dataset, and its pin."""
        for table in self.types:
            pin = self.commit.tables.get(str(table.id))
            if pin is not None and pin.path == dataset:
                return table, pin
        return None


@contextmanager
def reading(*states: CommitState) -> Iterator[None]:
    """Report missing and damaged files of commits.

    Raises `NotFound` with the reason ``reclaimed`` for data that garbage collection removed, and `StorageError`
    with the reason ``damaged`` for any other missing file and for a file that cannot be read. Other errors pass
    unchanged.
    """
    try:
        yield
    except (NotFound, StorageError) as error:
        cause = find_cause(error, states)
        if cause is None:
            raise
        raise cause from error


def find_cause(error: OmnigraphError, states: Sequence[CommitState]) -> OmnigraphError | None:
    """Return the error to raise instead of an error of a read; None if it is not about the files of the states."""
    checked = _is_checked_damage(error)
    if not checked and not is_about_files(error):
        return None
    found = [(state, state.table_in(error.details["dataset"])) for state in states]
    read = [(state, *item) for state, item in found if item is not None]
    if checked:
        damage = TableDamage(error.details["file"], error.details["problem"])
        return damage_error(damage, *read[0]) if read else None
    for state, table, pin in read:
        cause = _table_error(error, state, table, pin)
        if cause is not None:
            return cause
    name = error.details.get("file")
    if not read or name is None:
        return None
    # Lance names a file that the search does not read, such as a file of an index.
    state, table, pin = read[0]
    problem = (
        "it is missing" if isinstance(error, NotFound) else f"it cannot be read ({error.details['cause']})"
    )
    return damage_error(TableDamage(f"{pin.path}/{name}", problem), state, table, pin)


def _is_checked_damage(error: OmnigraphError) -> bool:
    """Return whether the check of a file found damage, at a level that does not know types."""
    details = error.details
    is_named = "type" in details
    return (
        not is_named and details.get("reason") == DAMAGED and details.keys() >= {"dataset", "file", "problem"}
    )


def is_about_files(error: OmnigraphError) -> bool:
    """Return whether an error may be due to a missing or damaged file, and its cause is not stated yet."""
    if "dataset" not in error.details or "reason" in error.details:
        return False
    return isinstance(error, NotFound) or (
        isinstance(error, StorageError) and error.kind in ("unknown", "permanent", "not_found")
    )


def check_versions(state: CommitState) -> None:
    """Raise the errors of `reading` if a version of the commit is not in storage. No data file is read."""
    for table in state.types:
        pin = state.commit.tables.get(str(table.id))
        if pin is not None and not state.tables.exists(pin):
            raise _missing_version_error(state, table, pin)


def _table_error(
    error: OmnigraphError, state: CommitState, table: Table, pin: TablePin
) -> OmnigraphError | None:
    root = state.tables.root
    if isinstance(error, NotFound) and not has_version(root, pin):
        return _missing_version_error(state, table, pin)
    damage = find_damage(root, pin, [column.physical for column in table.columns])
    return None if damage is None else damage_error(damage, state, table, pin)


def _missing_version_error(state: CommitState, table: Table, pin: TablePin) -> OmnigraphError:
    branch, tag = name_that_needs(state.tables.root, pin)
    if branch is None and tag is None:
        return reclaimed_error(state.commit)
    damage = TableDamage(f"{pin.path}/{version_file(pin.version)}", "it is missing")
    return damage_error(damage, replace(state, branch=branch or state.branch), table, pin)


def name_that_needs(root: LanceRoot, pin: TablePin) -> tuple[str | None, str | None]:
    """Return a branch whose head pins a version, or else a tag whose commit does; None for what there is not."""
    try:
        manifest = Manifest.open(root)
    except NotAGraph as error:
        raise vanished_error() from error
    view = manifest.view
    for head in branch_heads(manifest, view):
        pins = head.commit.tables.values()
        if any((item.path, item.version) == (pin.path, pin.version) for item in pins):
            return head.branch, None
    for name, entry in manifest.tags.after(view, None):
        commit = manifest.find_commit(view, entry.commit)
        tables = {} if commit is None else commit.tables
        if any((item.path, item.version) == (pin.path, pin.version) for item in tables.values()):
            return None, name
    return None, None


def damage_error(damage: TableDamage, state: CommitState, table: Table, pin: TablePin) -> StorageError:
    """Return the error for a damaged file, with its type, property, commit and branch."""
    commit, branch = state.commit, state.branch or state.commit.branch
    names = {column.physical: column.name for column in table.columns}
    property_ = None if damage.column is None else names.get(damage.column)
    details: dict[str, Any] = {
        "reason": DAMAGED,
        "type": table.name,
        "table_key": table.key,
        **({} if property_ is None else {"property": property_}),
        "dataset": pin.path,
        "version": str(pin.version),
        "file": damage.file,
        "problem": damage.problem,
        "commit_id": commit.id,
        "branch": branch,
    }
    place = table.name if property_ is None else f"{table.name}, property '{property_}'"
    return StorageError(
        f"{table.kind} type {place} is damaged in commit '{commit.id}' of branch '{branch}':"
        f" {damage.file}: {damage.problem}",
        kind="permanent",
        details=details,
        hint="run `omnigraph verify` for the extent of the damage; restore the file from a backup, or move the"
        f" branch to its newest intact commit with `omnigraph repair --reset-branch {branch}`",
    )


def reclaimed_error(commit: CommitRecord) -> NotFound:
    """Return the error for a commit whose data was removed by garbage collection or by a hard drop."""
    return NotFound(
        f"the data of commit '{commit.id}' was reclaimed by cleanup, or by a schema change that allowed data loss",
        details={"commit_id": commit.id, "reason": RECLAIMED},
        hint="keep more history with a larger `keep` or `older_than`",
    )
