"""The receipt of a load, and the checks of its arguments.

Local and remote graphs share these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from omnigraph.api.results.commits import Commit
from omnigraph.engine.engine_choice import check_engine
from omnigraph.errors import InvalidInput
from omnigraph.load.load_request import LoadRequest, check_operations
from omnigraph.load.reject_limit import RejectLimit
from omnigraph.load.reject_target import check_rejects
from omnigraph.rules.load_mode import LOAD_MODES, LoadMode
from omnigraph.sources.input_warnings import InputWarnings


@dataclass(frozen=True, slots=True)
class LoadReceipt:
    """The result of a load.

    `nodes` and `edges` count records per type, `affected` counts rows per type. `superseded` counts records of a
    merge that a later record with the same id replaced. `rejected` counts records that were left out,
    `rejected_by_rule` counts them by type and rule, and `rejects` is the file, object or table that has them.
    `bytes` is the size of the input files, None for other inputs. `seconds` has the duration of each stage.
    `replayed` is true if an earlier call with the same idempotency key made the commit. For a dry run the counts
    are those of the commit that was not made, and `commit` is None. `warnings` has the values that a permissive
    load stored as null, and the fields that it dropped. `skipped` counts the input rows without an effect per type,
    for a load that patches, deletes, or has an operation or order column: ``superseded`` by a newer row of the same
    key, ``unchanged`` because the same values are stored, ``absent`` because there is no row to delete.
    `unindexed` counts the rows per type that a load with ``index="later"`` leaves to the next optimize.
    """

    commit: Commit | None
    mode: LoadMode
    branch: str
    branch_created: bool = False
    nodes: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, int] = field(default_factory=dict)
    affected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rejected: int = 0
    superseded: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    replayed: bool = False
    bytes: int | None = None
    engine: Literal["local", "spark"] = "local"
    dry_run: bool = False
    warnings: InputWarnings = field(default_factory=InputWarnings)
    skipped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rejected_by_rule: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rejects: str | None = None
    unindexed: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of records that became rows."""
        return sum(self.nodes.values()) + sum(self.edges.values())

    def report(self) -> dict[str, Any]:
        """Return the figures of the load as JSON: rows, rejects, bytes, and the seconds of each stage.

        >>> LoadReceipt(None, "append", "main", nodes={"City": 2}, seconds={"read": 0.25}).report()["rows"]
        {'nodes': {'City': 2}, 'edges': {}, 'total': 2}
        """
        seconds = {stage: round(value, 3) for stage, value in self.seconds.items()}
        return {
            "engine": self.engine,
            "mode": self.mode,
            "branch": self.branch,
            "dry_run": self.dry_run,
            "rows": {"nodes": dict(self.nodes), "edges": dict(self.edges), "total": self.total},
            "affected": {name: dict(counts) for name, counts in self.affected.items()},
            "rejected": self.rejected,
            "rejected_by_rule": {name: dict(counts) for name, counts in self.rejected_by_rule.items()},
            "rejects": self.rejects,
            "superseded": self.superseded,
            "skipped": {name: dict(counts) for name, counts in self.skipped.items()},
            "nulled": self.warnings.nulled,
            "dropped": self.warnings.dropped,
            "bytes": self.bytes,
            "unindexed": dict(self.unindexed),
            "seconds": {**seconds, "total": round(sum(self.seconds.values()), 3)},
        }


def check_load(request: LoadRequest) -> None:
    """Raise `InvalidInput` for an unknown engine or mode, and for rejects that cannot be written or limited."""
    check_engine(request.engine)
    if request.mode not in LOAD_MODES:
        raise InvalidInput(f"unknown load mode '{request.mode}'", hint=f"one of {', '.join(LOAD_MODES)}")
    check_operations(request.mode, request.op_column, request.order_by)
    if request.permissive and request.operations is not None:
        raise InvalidInput(
            "a permissive load appends, merges or overwrites whole records",
            hint="load without `permissive`",
        )
    check_rejects(request.rejects)
    if request.max_rejects is not None:
        if request.rejects is None:
            raise InvalidInput("max_rejects needs rejects", hint="rejects says where rejected records go")
        RejectLimit.parse(request.max_rejects)
