"""A transaction: staged work on top of one head, which becomes a plan. It cannot make anything visible."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.errors import Conflict
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.write_plan import OperationClass, Plan, TableWrite
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.records import CommitRecord, HeadRecord, TablePin
from omnigraph.store.tables.tables import StagedTable

if TYPE_CHECKING:
    import pyarrow as pa


class Transaction:
    """Work in progress on a branch. Dropping it leaves files that nothing names, and nothing else."""

    def __init__(self, head: HeadRecord, base: Snapshot, commit_id: str | None = None) -> None:
        self.head = head
        self.base = base
        self.commit_id = commit_id or new_id()
        self.merged_parent: CommitRecord | None = None
        self._writes: dict[str, TableWrite] = {}
        self._reads: set[str] = set()
        self._drops: set[str] = set()
        self._schema: Catalog | None = None
        self._hold: Callable[[], None] | None = None

    def read(self, key: str) -> TablePin:
        """The pin of a table that the work's correctness depends on; it joins the read-set."""
        self._reads.add(str(self.base.table(key).id))
        return self.base.pin(key)

    def pin(self, key: str) -> TablePin:
        """The pin to stage on: what this transaction staged already, else the base's."""
        table = str(self.base.table(key).id)
        written = self._writes.get(table)
        if written is None:
            return self.base.pin(key)
        return TablePin(written.path, written.version, written.rows, self.commit_id)

    def stage(
        self,
        key: str,
        *,
        delete_ids: Iterable[str] = (),
        delete_addresses: Sequence[int] = (),
        insert: pa.Table | None = None,
    ) -> StagedTable:
        """Stage deletes and inserts of a table; a second call builds on the first.

        Rows to delete are named by id, or by their address in the version that is staged on.
        """
        staged = self.base.tables.stage(
            self.pin(key), delete_ids=delete_ids, delete_addresses=delete_addresses, insert=insert
        )
        self.write(key, staged)
        return staged

    def write(self, key: str, staged: StagedTable) -> None:
        """Take over a version that was staged on this transaction's pin of the table."""
        table = str(self.base.table(key).id)
        expected = self.pin(key).version
        if staged.base_version != expected:
            raise Conflict(
                f"{key} was staged on version {staged.base_version}, the transaction is at {expected}",
                details={"table_key": key, "expected": str(expected), "actual": str(staged.base_version)},
            )
        first = self._writes.get(table)
        base = self.base.pin(key).version if first is None else first.expected
        self._writes[table] = TableWrite(staged.path, base, staged.version, staged.rows)

    def take(self, table: Table, pin: TablePin) -> None:
        """Make a version that exists the table's own: another branch's, or the empty one of a new table."""
        self._writes[str(table.id)] = TableWrite(
            pin.path, self._expected(table), pin.version, pin.rows, pin.content
        )

    def take_staged(self, table: Table, staged: StagedTable, built_on: int | None = None) -> None:
        """Take over a version of a table whatever it was staged on: this commit changes its rows.

        `built_on` is that version, where it is another branch's.
        """
        self._writes[str(table.id)] = TableWrite(
            staged.path, self._expected(table), staged.version, staged.rows, built_on=built_on
        )

    def _expected(self, table: Table) -> int | None:
        before = self.base.commit.tables.get(str(table.id))
        return None if before is None else before.version

    def drop(self, table: Table) -> None:
        """Let the commit be without a table."""
        self._drops.add(str(table.id))

    def evolve(self, catalog: Catalog) -> None:
        """Let the commit have another schema than its base."""
        self._schema = catalog

    @property
    def catalog(self) -> Catalog:
        """The schema that the commit will have."""
        return self.base.catalog if self._schema is None else self._schema

    def hold_by(self, hold: Callable[[], None]) -> None:
        """Tell how an intent is begun for this work."""
        self._hold = hold

    def hold(self) -> None:
        """Say that much is going to be written: from here on it is safe from cleanup and worth completing."""
        if self._hold is not None:
            self._hold()

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been staged."""
        return not self._writes

    @property
    def is_unchanged(self) -> bool:
        """Whether the commit would have the tables and the schema of its base."""
        return self.is_empty and not self._drops and self._schema is None

    def plan(
        self,
        operation: str,
        operation_class: OperationClass,
        *,
        actor: str | None = None,
        message: str | None = None,
        expected_head: str | None = None,
    ) -> Plan:
        """Freeze the work."""
        looked_at = self._reads | self._drops | set(self._writes)
        tables = [*self.base.catalog.tables.values(), *self.catalog.tables.values()]
        schema, payload = (None, None) if self._schema is None else schema_row(self._schema)
        return Plan(
            commit_id=self.commit_id,
            branch=self.head.branch,
            incarnation=self.head.incarnation,
            base=self.base.commit.id,
            base_schema=self.base.commit.schema,
            base_tables={key: pin for key, pin in self.base.commit.tables.items() if key in looked_at},
            operation=operation,
            operation_class=operation_class,
            writes=dict(self._writes),
            reads=frozenset(self._reads),
            drops=frozenset(self._drops),
            schema=schema,
            schema_payload=payload,
            merged_parent=None if self.merged_parent is None else self.merged_parent.id,
            merged_at=0 if self.merged_parent is None else self.merged_parent.created_at,
            actor=actor,
            message=message,
            expected_head=expected_head,
            labels={str(item.id): item.key for item in tables if str(item.id) in looked_at},
        )


def schema_row(catalog: Catalog) -> tuple[str, str]:
    """The name of a schema's row in the manifest, and what it holds."""
    payload = json.dumps(catalog.to_json(), separators=(",", ":"), ensure_ascii=False)
    return catalog.fingerprint.removeprefix("sha256:"), payload
