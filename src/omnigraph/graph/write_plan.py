"""A write as frozen data: its changes, the tables it depends on, and its reaction to concurrent commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from omnigraph.graph.pipeline_runs import RunChanges, apply_run_changes
from omnigraph.store.file_digests import FileDigest, format_digests, parse_digests
from omnigraph.store.manifest.records import Body, CommitRecord, TablePin

# The reaction to a concurrent commit that changed a table the write depends on. `insert` is prepared again,
# `strict` raises `Conflict`. `maintenance` changes no rows and is prepared again.
OperationClass: TypeAlias = Literal["insert", "strict", "maintenance"]

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Prepared(Generic[T_co]):
    """The work that one preparation staged into a transaction.

    `operation_class` is None when there is nothing to commit. `result` is what the operation reports to its caller.
    """

    operation_class: OperationClass | None
    result: T_co


@dataclass(frozen=True, slots=True)
class TableWrite:
    """The new version of one table, and the version in the base; `expected` is None for a new table.

    `content` is the id of the commit that created the rows, if the version is adopted from another branch.
    `built_on` is the version of another branch that this version shares files with. `files` has the digests of the
    files that the write introduces.
    """

    path: str
    expected: int | None
    version: int
    rows: int
    content: str | None = None
    built_on: int | None = None
    files: tuple[FileDigest, ...] = ()

    def to_body(self) -> Body:
        """Return the JSON form."""
        expected = None if self.expected is None else str(self.expected)
        return {
            "path": self.path,
            "expected": expected,
            "version": str(self.version),
            "rows": self.rows,
            "content": self.content,
            "built_on": None if self.built_on is None else str(self.built_on),
            "files": format_digests({self.path: self.files}),
        }

    @classmethod
    def from_body(cls, body: Body) -> TableWrite:
        """Parse the JSON form."""
        expected = None if body["expected"] is None else int(body["expected"])
        version = body.get("built_on")
        return cls(
            body["path"],
            expected,
            int(body["version"]),
            int(body["rows"]),
            body.get("content"),
            built_on=None if version is None else int(version),
            files=tuple(digest for _, digest in parse_digests(body.get("files", ""))),
        )


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The input of `publish`. Recovery publishes the same plan with the same function.

    All attempts use one commit id; the parent is the head at the time of the attempt. `base` is the commit that
    the write was prepared on, and `base_tables` has the pins of all tables that it depends on. `merged_at` is
    the time of the second parent. `labels` has the name of each table for messages. `staged_at` is the time of this
    machine's boot clock when staging began; None in a plan that was read from an intent. `fence` is the fence of
    garbage collection when staging began. It is None if the staged files are protected otherwise: by an intent that
    is older than they are. `runs` has the changes of the last runs of pipelines, each with the expected commit and
    the new one. `run` is the record of the pipeline run that makes the commit.
    """

    commit_id: str
    branch: str
    incarnation: str
    base: str
    base_schema: str
    base_tables: Mapping[str, TablePin]
    operation: str
    operation_class: OperationClass
    writes: Mapping[str, TableWrite] = field(default_factory=dict)
    reads: frozenset[str] = frozenset()
    drops: frozenset[str] = frozenset()
    schema: str | None = None
    schema_payload: str | None = None
    merged_parent: str | None = None
    merged_at: int = 0
    actor: str | None = None
    message: str | None = None
    expected_head: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    staged_at: float | None = field(default=None, compare=False)
    fence: int | None = None
    runs: RunChanges = field(default_factory=dict)
    run: str = ""

    @property
    def dependencies(self) -> frozenset[str]:
        """The tables that the write reads, changes or drops."""
        return self.reads | frozenset(self.writes) | self.drops

    @property
    def adopted_versions(self) -> tuple[tuple[str, int], ...]:
        """The versions of other branches that this commit adopts or builds on, each with the path of its table."""
        versions = [
            (write.path, write.version if write.content is not None else write.built_on)
            for write in self.writes.values()
        ]
        return tuple((path, version) for path, version in versions if version is not None)

    @property
    def files(self) -> Mapping[str, tuple[FileDigest, ...]]:
        """The digests of the files that the commit introduces, by the path of their table."""
        return {write.path: write.files for write in self.writes.values() if write.files}

    def label(self, table: str) -> str:
        """Return the name of a table for messages."""
        return self.labels.get(table, table)

    def commit_on(self, head: CommitRecord, now: int, *, recovered: bool = False) -> CommitRecord:
        """Return the commit that this plan creates on top of a head."""
        tables = {key: pin for key, pin in head.tables.items() if key not in self.drops}
        for key, write in self.writes.items():
            # Maintenance keeps the content id, so that caches and concurrent writers treat the rows as unchanged.
            keeps = self.operation_class == "maintenance" and key in head.tables
            content = head.tables[key].content if keeps else write.content or self.commit_id
            number = head.tables[key].number + 1 if key in head.tables else 1
            tables[key] = TablePin(write.path, write.version, write.rows, content, number)
        return CommitRecord(
            id=self.commit_id,
            branch=self.branch,
            incarnation=self.incarnation,
            sequence=head.sequence + 1,
            parent=head.id,
            merged_parent=self.merged_parent,
            actor=self.actor,
            operation=self.operation,
            message=self.message,
            # A child must be newer than its parents even if the clock steps back: merge bases are found by time.
            created_at=max(now, head.created_at + 1, self.merged_at + 1),
            schema=self.schema or head.schema,
            tables=tables,
            touched=tuple(sorted({*self.writes, *self.drops})),
            recovered=recovered,
            files=format_digests(self.files),
            runs=apply_run_changes(head.runs, self.runs),
            run=self.run,
        )

    def to_body(self) -> Body:
        """Return the JSON form, which an intent stores."""
        return {
            "commit_id": self.commit_id,
            "branch": self.branch,
            "incarnation": self.incarnation,
            "base": self.base,
            "base_schema": self.base_schema,
            "base_tables": {key: pin.to_body() for key, pin in sorted(self.base_tables.items())},
            "operation": self.operation,
            "operation_class": self.operation_class,
            "writes": {key: write.to_body() for key, write in sorted(self.writes.items())},
            "reads": sorted(self.reads),
            "drops": sorted(self.drops),
            "schema": self.schema,
            "schema_payload": self.schema_payload,
            "merged_parent": self.merged_parent,
            "merged_at": self.merged_at,
            "actor": self.actor,
            "message": self.message,
            "expected_head": self.expected_head,
            "labels": dict(self.labels),
            **({} if self.fence is None else {"fence": self.fence}),
            **({"runs": {name: list(change) for name, change in self.runs.items()}} if self.runs else {}),
            **({"run": self.run} if self.run else {}),
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> WritePlan:
        """Parse the JSON form."""
        decoded = {
            "base_tables": {key: TablePin.from_body(pin) for key, pin in body["base_tables"].items()},
            "writes": {key: TableWrite.from_body(write) for key, write in body["writes"].items()},
            "reads": frozenset(body["reads"]),
            "drops": frozenset(body["drops"]),
            "runs": {name: (change[0], change[1]) for name, change in body.get("runs", {}).items()},
        }
        return cls(**{**body, **decoded})
