"""Commits, and the arguments that name a commit or a state."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from omnigraph.errors import InvalidInput
from omnigraph.graph.argument_checks import require_text
from omnigraph.lang.temporal import EPOCH_TIME

if TYPE_CHECKING:
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.store.manifest.records import CommitRecord


class _UtcValidator:
    """Make pydantic convert a decoded timestamp to `UTC`, so that it has the same repr as the encoded one."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: Any) -> Any:
        from pydantic_core.core_schema import no_info_after_validator_function

        return no_info_after_validator_function(lambda value: value.astimezone(UTC), handler(kind))


Timestamp: TypeAlias = Annotated[datetime, _UtcValidator()]


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: one state of the graph, its parents, and who created it when.

    `sequence` is the manifest version of the branch. `recovered` is true if recovery published the commit after its
    writer was interrupted.
    """

    id: str
    parents: tuple[str, ...]
    branch: str
    sequence: int
    actor: str | None
    created_at: Timestamp
    operation: str
    message: str | None
    recovered: bool = False

    @classmethod
    def of(cls, record: CommitRecord) -> Commit:
        """Return the commit of a manifest record."""
        parents = tuple(parent for parent in (record.parent, record.merged_parent) if parent is not None)
        return cls(
            id=record.id,
            parents=parents,
            branch=record.branch,
            sequence=record.sequence,
            actor=record.actor,
            created_at=EPOCH_TIME + timedelta(microseconds=record.created_at),
            operation=record.operation,
            message=record.message,
            recovered=record.recovered,
        )


# A state of the graph: a commit, the name of a commit, a snapshot, a time or a manifest version of the branch, or
# None for the head of the branch.
At: TypeAlias = "str | int | datetime | Commit | Snapshot | None"


def state_at(at: At) -> str | datetime | Snapshot | None:
    """Return the state in the form that `Repository.snapshot` accepts.

    Raises `InvalidInput` if `at` is a value of another type.

    >>> state_at("01JBZ8Q0000000000000000000"), state_at(7)
    ('01JBZ8Q0000000000000000000', '@{7}')
    """
    if at is None or isinstance(at, str | datetime):
        return at
    if type(at) is int:
        return f"@{{{at}}}"
    if isinstance(at, Commit):
        return at.id
    # Imported late because it imports the storage packages. A caller that has a snapshot has imported them.
    from omnigraph.graph.snapshot import Snapshot

    if not isinstance(at, Snapshot):
        raise InvalidInput(
            "a state is a commit, the name of a commit, a snapshot, a datetime or a manifest version,"
            f" not a value of {type(at).__name__}"
        )
    return at


def commit_id_of(commit: str | Commit) -> str:
    """Return the id of a commit that is given as a `Commit` or by its id."""
    return commit.id if isinstance(commit, Commit) else require_text("commit_id", commit)


def check_limit(limit: int | None) -> None:
    """Raise `InvalidInput` unless `limit` is None or a number of results."""
    if limit is not None and (type(limit) is not int or not 0 <= limit <= sys.maxsize):
        raise InvalidInput(f"`limit` must be a non-negative integer, got {limit!r}")
