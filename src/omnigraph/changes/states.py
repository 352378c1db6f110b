"""The states of a graph that a diff compares, by the names that callers give."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from omnigraph.changes.change_records import ChangeFilter
from omnigraph.errors import NotFound
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang.suggestions import suggestion


@dataclass(frozen=True)
class ComparedStates:
    """Two states; `branch` is the branch that named the later one, if a branch did."""

    before: Snapshot
    after: Snapshot
    branch: str | None


def find_states(
    repository: Repository,
    before: str | datetime | Snapshot,
    after: str | datetime | Snapshot,
    wanted: ChangeFilter,
) -> ComparedStates:
    """Resolve both states and check that the filter names types of either; reads no rows."""
    first, _ = find_state(repository, before)
    second, branch = find_state(repository, after)
    wanted.check_types(table.name for state in (first, second) for table in state.catalog.tables.values())
    return ComparedStates(first, second, branch)


def find_state(repository: Repository, named: str | datetime | Snapshot) -> tuple[Snapshot, str | None]:
    """The snapshot, and the branch if a branch named it. A branch takes precedence over a commit id."""
    if not isinstance(named, str):
        return repository.snapshot(at=named), None
    name = named.strip()
    branches = repository.branches()
    if name in branches:
        return repository.snapshot(name), name
    try:
        return repository.snapshot(at=name), None
    except NotFound as error:
        raise NotFound(
            f"there is neither a branch nor a commit '{name}'",
            details={"branch": name, "commit_id": name, "branches": list(branches)[:50]},
            hint=suggestion(name, branches),
        ) from error
