"""Commits, receipts and branches as the API shows them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from omnigraph.errors import InvalidInput
from omnigraph.graph.argument_checks import require_text
from omnigraph.lang.temporal import EPOCH_TIME

if TYPE_CHECKING:
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.maintain.optimize import TypeOptimization
    from omnigraph.store.manifest.records import CommitRecord, RecoveryRecord


class _InUtc:
    """Has a moment that comes over a wire be one of `UTC`, and not of an equal zone that looks different."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: Any) -> Any:
        from pydantic_core.core_schema import no_info_after_validator_function

        return no_info_after_validator_function(lambda found: found.astimezone(UTC), handler(kind))


Moment: TypeAlias = Annotated[datetime, _InUtc()]


@dataclass(frozen=True, slots=True)
class Commit:
    """One state of the graph and how it came about."""

    id: str
    parents: tuple[str, ...]
    branch: str
    sequence: int
    actor: str | None
    created_at: Moment
    operation: str
    message: str | None
    recovered: bool = False

    @classmethod
    def of(cls, record: CommitRecord) -> Commit:
        """The commit of a manifest row."""
        parents = tuple(item for item in (record.parent, record.merged_parent) if item is not None)
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


# Which state is meant: the newest of a branch, or that of a commit, of its id, of a snapshot or of a moment.
At: TypeAlias = "str | datetime | Commit | Snapshot | None"


def state_at(at: At) -> str | datetime | Snapshot | None:
    """The state that is meant, as storage knows it; `InvalidInput` for what is none.

    >>> state_at("01JBZ8Q0000000000000000000")
    '01JBZ8Q0000000000000000000'
    """
    if at is None or isinstance(at, str | datetime):
        return at
    if isinstance(at, Commit):
        return at.id
    # Only now: it brings all of storage along, which is there already when somebody has a snapshot.
    from omnigraph.graph.snapshot import Snapshot

    if not isinstance(at, Snapshot):
        raise InvalidInput(
            f"a state is a commit or its id, a snapshot or a datetime, not a value of {type(at).__name__}"
        )
    return at


def id_of(commit: str | Commit) -> str:
    """The id of a commit that is given itself or by its id."""
    return commit.id if isinstance(commit, Commit) else require_text("commit_id", commit)


def check_limit(limit: int | None) -> None:
    """`InvalidInput` for a number of commits that there cannot be."""
    if limit is not None and (type(limit) is not int or not 0 <= limit <= sys.maxsize):
        raise InvalidInput(f"`limit` is a whole number that is not negative, not {limit!r}")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a write did. `commit` is None when nothing matched, and then nothing was committed.

    `affected` counts rows per type. `replayed` says that an earlier call with the same idempotency key had done
    the work already; what it affected is not counted again.
    """

    commit: Commit | None
    affected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    affected_nodes: int = 0
    affected_edges: int = 0
    replayed: bool = False
    query_name: str | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """An index on a property, or on ``id``, ``src`` or ``dst``: how many of the type's rows are in it.

    An index is derived: rows that are not in it are looked through, so what it covers changes speed alone.
    """

    type: str
    property: str
    kind: str
    rows: int
    covered: int


@dataclass(frozen=True, slots=True)
class Optimized:
    """What optimize did, type by type. `commit` is None when there was nothing to do."""

    commit: Commit | None
    branch: str
    datasets: tuple[TypeOptimization, ...] = ()


@dataclass(frozen=True, slots=True)
class Repair:
    """What bulk writes that were interrupted left: how many, and what became of each that was settled."""

    confirmed: bool
    pending: int
    settled: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of one bulk write that was interrupted: `rolled_forward`, `discarded` or `orphaned`.

    `actor` is whose write it was, `commit_id` the commit that it was published as.
    """

    id: str
    outcome: str
    branch: str
    operation: str
    actor: str | None
    commit_id: str | None
    reason: str
    created_at: Moment

    @classmethod
    def of(cls, record: RecoveryRecord) -> Recovery:
        """The outcome of a manifest row."""
        return cls(
            id=record.id,
            outcome=record.outcome,
            branch=record.branch,
            operation=record.operation,
            actor=record.actor,
            commit_id=record.commit_id,
            reason=record.reason,
            created_at=EPOCH_TIME + timedelta(microseconds=record.created_at),
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch and the commit it stands at."""

    name: str
    commit_id: str


def by_type_name(affected: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
    """Counts by the name of the type; an edge that shares its name with a node keeps its full key."""
    found: dict[str, Mapping[str, int]] = {}
    for key, counts in sorted(affected.items(), key=lambda item: item[0].startswith("edge:")):
        name = key.split(":", 1)[1]
        found[key if name in found else name] = counts
    return found
