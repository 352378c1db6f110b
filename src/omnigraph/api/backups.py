"""Copies of graphs: backup, restore and clone. Storage is imported on the first call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from omnigraph.api.access import Address
from omnigraph.graph.progress import Progress
from omnigraph.maintain.backup.copy_report import CopyReport, Verification

if TYPE_CHECKING:
    from omnigraph.graph.repository import Repository


def backup(
    source: Address,
    target: Address,
    *,
    since: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    source_options: Mapping[str, str] | None = None,
    durability: Literal["full", "os"] = "full",
    verify: Verification = "quick",
    skip_damaged: bool = False,
    progress: Progress | None = None,
) -> CopyReport:
    """Back up the graph at an address, as `Graph.backup` does.

    `storage_options` are for the target, and also for the source unless `source_options` are given.

    >>> import tempfile, omnigraph as og
    >>> folder = tempfile.mkdtemp()
    >>> g = og.init(f"{folder}/team", schema="node City { name: String @key }")
    >>> og.backup(f"{folder}/team", f"{folder}/backup").commits
    1
    """
    from omnigraph.maintain.backup.backup import backup as run
    from omnigraph.maintain.backup.copy_options import CopyOptions

    options = CopyOptions(storage_options, durability, verify, progress, skip_damaged)
    with _opened(source, storage_options, source_options) as repository:
        return run(repository, target, options, since=since)


def restore(
    source: Address,
    target: Address,
    *,
    storage_options: Mapping[str, str] | None = None,
    source_options: Mapping[str, str] | None = None,
    durability: Literal["full", "os"] = "full",
    verify: Verification = "quick",
    skip_damaged: bool = False,
    progress: Progress | None = None,
) -> CopyReport:
    """Copy a backup into an empty place, as a graph that can be written.

    The graph has the id, the branches and the history of the backup. The source may also be a graph that is not a
    backup. A place that is not empty is refused with `InvalidInput` or `Conflict`. An interrupted call leaves
    nothing that can be opened, and the next call completes it. With `skip_damaged`, missing and damaged files of
    the backup are left out, as in `Graph.backup`.

    >>> import tempfile, omnigraph as og
    >>> folder = tempfile.mkdtemp()
    >>> g = og.init(f"{folder}/team", schema="node City { name: String @key }")
    >>> _ = g.load({"City": [{"name": "Bern"}]})
    >>> _ = g.backup(f"{folder}/backup")
    >>> og.restore(f"{folder}/backup", f"{folder}/restored").commits
    2
    >>> og.open(f"{folder}/restored").load({"City": [{"name": "Rome"}]}).commit.sequence
    3
    """
    from omnigraph.maintain.backup.backup import restore as run
    from omnigraph.maintain.backup.copy_options import CopyOptions

    options = CopyOptions(storage_options, durability, verify, progress, skip_damaged)
    with _opened(source, storage_options, source_options) as repository:
        return run(repository, target, options)


def clone(
    source: Address,
    target: Address,
    *,
    branch: str = "main",
    history: bool = True,
    storage_options: Mapping[str, str] | None = None,
    source_options: Mapping[str, str] | None = None,
    durability: Literal["full", "os"] = "full",
    verify: Verification = "quick",
    progress: Progress | None = None,
) -> CopyReport:
    """Create a new graph in an empty place from one branch of another graph.

    The new graph has an id of its own. Its only branch is `main`, with the state and the history of `branch`. With
    ``history=False`` the earlier commits are listed but have no data, so that the copy is as small as the state.
    Raises the same errors as `restore`.

    >>> import tempfile, omnigraph as og
    >>> folder = tempfile.mkdtemp()
    >>> g = og.init(f"{folder}/team", schema="node City { name: String @key }")
    >>> g.branches.create("trial").name
    'trial'
    >>> _ = g.load({"City": [{"name": "Bern"}]}, branch="trial")
    >>> _ = og.clone(f"{folder}/team", f"{folder}/copy", branch="trial")
    >>> og.open(f"{folder}/copy").get("City", "Bern")
    {'id': 'Bern', 'name': 'Bern'}
    """
    from omnigraph.maintain.backup.backup import clone as run
    from omnigraph.maintain.backup.copy_options import CopyOptions

    options = CopyOptions(storage_options, durability, verify, progress)
    with _opened(source, storage_options, source_options) as repository:
        return run(repository, target, options, branch=branch, history=history)


@contextmanager
def _opened(
    source: Address, options: Mapping[str, str] | None, source_options: Mapping[str, str] | None
) -> Iterator[Repository]:
    from omnigraph.graph.repository import Repository

    repository = Repository.open(
        source, mode="r", options=options if source_options is None else source_options
    )
    try:
        yield repository
    finally:
        repository.close()
