"""The results of pipeline commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from omnigraph.pipelines.run_record import SourceLineage

# `published`: merged. `left`: the review branch waits, because an audit failed or the file says so. `unchanged`:
# nothing to read, or nothing changed; no commit was made.
Outcome: TypeAlias = Literal["published", "left", "unchanged"]
Counts: TypeAlias = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class AuditResult:
    """An audit: its name, its condition, whether it passed, and the values that the condition had."""

    name: str
    expect: str
    passed: bool
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"name": self.name, "expect": self.expect, "passed": self.passed, "values": dict(self.values)}


@dataclass(frozen=True)
class RunReport:
    """The result of a run. `commit` is the commit with the rows, `merged` the commit that merged it."""

    pipeline: str
    run_id: str
    outcome: Outcome
    branch: str | None = None
    commit: str | None = None
    merged: str | None = None
    sources: Mapping[str, SourceLineage] = field(default_factory=dict)
    affected: Counts = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    quarantine: str | None = None
    audits: tuple[AuditResult, ...] = ()
    reason: str | None = None

    @property
    def passed(self) -> bool:
        """Whether every audit passed."""
        return all(audit.passed for audit in self.audits)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "pipeline": self.pipeline,
            "run_id": self.run_id,
            "outcome": self.outcome,
            "branch": self.branch,
            "commit": self.commit,
            "merged": self.merged,
            "sources": {name: item.to_json() for name, item in self.sources.items()},
            "affected": {name: dict(counts) for name, counts in self.affected.items()},
            "quarantined": dict(self.quarantined),
            "quarantine": self.quarantine,
            "audits": [audit.to_json() for audit in self.audits],
            "reason": self.reason,
        }


@dataclass(frozen=True)
class TargetPlan:
    """What a run would do to a type: rows, effects, failed rows, and some of the rows."""

    rows: int
    affected: Mapping[str, int]
    failed: int
    columns: Mapping[str, str]
    sample: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "rows": self.rows,
            "affected": dict(self.affected),
            "failed": self.failed,
            "columns": dict(self.columns),
            "sample": [dict(row) for row in self.sample],
        }


@dataclass(frozen=True)
class PlanReport:
    """What a run would read and change now. `definition_changed` is true if the last run had another definition."""

    pipeline: str
    has_work: bool
    definition_changed: bool
    sources: Mapping[str, SourceLineage] = field(default_factory=dict)
    targets: Mapping[str, TargetPlan] = field(default_factory=dict)
    schema_steps: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "pipeline": self.pipeline,
            "has_work": self.has_work,
            "definition_changed": self.definition_changed,
            "sources": {name: item.to_json() for name, item in self.sources.items()},
            "targets": {name: item.to_json() for name, item in self.targets.items()},
            "schema_steps": list(self.schema_steps),
        }


@dataclass(frozen=True)
class RunStatus:
    """A run in the lineage of a branch."""

    run_id: str
    commit: str
    branch: str
    started_at: str
    definition: str
    sources: Mapping[str, SourceLineage]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "run_id": self.run_id,
            "commit": self.commit,
            "branch": self.branch,
            "started_at": self.started_at,
            "definition": self.definition,
            "sources": {name: item.to_json() for name, item in self.sources.items()},
        }


@dataclass(frozen=True)
class StatusReport:
    """The published runs of a pipeline, newest first, and the runs that wait on their branches.

    `empty_branches` are branches of runs without a commit: the run is under way or was killed.
    """

    pipeline: str
    branch: str
    published: tuple[RunStatus, ...]
    waiting: tuple[RunStatus, ...]
    empty_branches: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "pipeline": self.pipeline,
            "branch": self.branch,
            "published": [run.to_json() for run in self.published],
            "waiting": [run.to_json() for run in self.waiting],
            "empty_branches": list(self.empty_branches),
        }


@dataclass(frozen=True)
class TestResult:
    """The result of a test of a pipeline file. `differences` has what was expected and missing, or in excess."""

    __test__ = False

    name: str
    passed: bool
    differences: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"name": self.name, "passed": self.passed, "differences": list(self.differences)}
