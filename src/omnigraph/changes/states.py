"""The two states of a diff, resolved from names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from omnigraph.changes.change_records import ChangeFilter
from omnigraph.errors import NotFound
from omnigraph.graph.branch_lookup import has_branch, known_branches
from omnigraph.graph.branch_names import LISTED_IN_ERRORS
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang.suggestions import suggestion


@dataclass(frozen=True)
class ComparedStates:
    """Two states. `branch` is the branch that names the later one, if any."""

    before: Snapshot
    after: Snapshot
    branch: str | None


def find_states(
    repository: Repository,
    before: str | datetime | Snapshot,
    after: str | datetime | Snapshot,
    change_filter: ChangeFilter,
) -> ComparedStates:
    """Resolve both states, and check that each type of the filter exists in one of them. Reads no rows."""
    first, _ = find_state(repository, before)
    second, branch = find_state(repository, after)
    change_filter.check_types(
        table.name for state in (first, second) for table in state.catalog.tables.values()
    )
    return ComparedStates(first, second, branch)


def find_state(
    repository: Repository, name_or_state: str | datetime | Snapshot
) -> tuple[Snapshot, str | None]:
    """Return the snapshot, and the branch if a branch names it. The name is that of a branch, a tag or a commit.

    Raises `NotFound` if there is neither.
    """
    if not isinstance(name_or_state, str):
        return repository.snapshot(at=name_or_state), None
    name = name_or_state.strip()
    if has_branch(repository.manifest, name):
        return repository.snapshot(name), name
    try:
        return repository.snapshot(at=name), None
    except NotFound as error:
        branches = known_branches(repository.manifest, repository.manifest.view, name)
        raise NotFound(
            f"'{name}' is neither a branch, a tag nor a commit",
            details={"branch": name, "commit_id": name, "branches": branches[:LISTED_IN_ERRORS]},
            hint=suggestion(name, branches),
        ) from error
