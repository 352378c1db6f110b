"""A write as frozen data: what it changed, what it looked at, and how it behaves when the branch has moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from omnigraph.store.manifest.records import Body, CommitRecord, TablePin

# insert: prepared again when others changed what it looked at. strict: refused then. maintenance: changes no
# rows, and is planned again.
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
    """One table's new version and the one that the base has; `expected` is None for a table that is new.

    `content` names the commit that made the rows, where that is not this one: the version is another branch's.
    `built_on` is the version of another branch that this one shares its files with.
    """

    path: str
    expected: int | None
    version: int
    rows: int
    content: str | None = None
    built_on: int | None = None

    def to_body(self) -> Body:
        """The JSON form."""
        expected = None if self.expected is None else str(self.expected)
        return {
            "path": self.path,
            "expected": expected,
            "version": str(self.version),
            "rows": self.rows,
            "content": self.content,
            "built_on": None if self.built_on is None else str(self.built_on),
        }

    @classmethod
    def from_body(cls, body: Body) -> TableWrite:
        """Read the JSON form."""
        expected = None if body["expected"] is None else int(body["expected"])
        found = body.get("built_on")
        built_on = None if found is None else int(found)
        return cls(
            body["path"], expected, int(body["version"]), int(body["rows"]), body.get("content"), built_on
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything `publish` needs. Recovery replays the same plan through the same function.

    The commit id is minted once and stays over every attempt; the parent is whatever the head is then. `base` is
    the commit the work was prepared on, `base_tables` the pins of every table it read or wrote there. `merged_at`
    is when the second parent was made.
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

    @property
    def looked_at(self) -> frozenset[str]:
        """Every table whose change by others concerns this plan."""
        return self.reads | frozenset(self.writes) | self.drops

    @property
    def taken(self) -> tuple[tuple[str, int], ...]:
        """The versions of other branches that this commit takes over or builds on, each with its table's path."""
        found = [
            (write.path, write.version if write.content is not None else write.built_on)
            for write in self.writes.values()
        ]
        return tuple((path, version) for path, version in found if version is not None)

    def label(self, table: str) -> str:
        """What messages call a table."""
        return self.labels.get(table, table)

    def record_on(self, head: CommitRecord, now: int, *, recovered: bool = False) -> CommitRecord:
        """The commit that this plan makes of a head."""
        tables = {key: pin for key, pin in head.tables.items() if key not in self.drops}
        for key, write in self.writes.items():
            # Maintenance keeps the content: readers and writers may go on as if nothing had happened.
            keeps = self.operation_class == "maintenance" and key in head.tables
            content = head.tables[key].content if keeps else write.content or self.commit_id
            tables[key] = TablePin(write.path, write.version, write.rows, content)
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
            # A clock that steps back must not make a child older than its parents: lineage is walked by age.
            created_at=max(now, head.created_at + 1, self.merged_at + 1),
            schema=self.schema or head.schema,
            tables=tables,
            touched=tuple(sorted({*self.writes, *self.drops})),
            recovered=recovered,
        )

    def to_body(self) -> Body:
        """The JSON form, which an intent carries."""
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
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Plan:
        """Read the JSON form."""
        plain = {
            "base_tables": {key: TablePin.from_body(pin) for key, pin in body["base_tables"].items()},
            "writes": {key: TableWrite.from_body(write) for key, write in body["writes"].items()},
            "reads": frozenset(body["reads"]),
            "drops": frozenset(body["drops"]),
        }
        return cls(**{**body, **plain})
