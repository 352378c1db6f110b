"""A transaction: changes staged on the head of a branch, which become a write plan for `publish`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.errors import Conflict
from omnigraph.graph.pipeline_runs import PipelineRun, RunChanges
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.write_plan import OperationClass, TableWrite, WritePlan
from omnigraph.store.boot_clock import boot_clock
from omnigraph.store.file_digests import FileDigest
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.records import CommitRecord, HeadRecord, TablePin
from omnigraph.store.tables.staged_table import StagedTable, content_files

if TYPE_CHECKING:
    import pyarrow as pa


class Transaction:
    """Staged changes of a branch. A transaction that is dropped leaves only files that no commit refers to.

    `fence` is the fence of garbage collection in the view that the head was read from. It is None if an intent that
    is older than the transaction protects the staged files.
    """

    def __init__(
        self, head: HeadRecord, base: Snapshot, commit_id: str | None = None, *, fence: int | None
    ) -> None:
        self.head = head
        self.base = base
        self.fence = fence
        self.commit_id = commit_id or new_id()
        self.merged_parent: CommitRecord | None = None
        self._writes: dict[str, TableWrite] = {}
        self._reads: set[str] = set()
        self._drops: set[str] = set()
        self._schema: Catalog | None = None
        self._run_changes: RunChanges = {}
        self._begin_intent: Callable[[], None] | None = None
        self._began_at = boot_clock()

    def read(self, key: str) -> TablePin:
        """Add a table to the read set, because the result depends on its rows, and return its pin in the base."""
        self._reads.add(str(self.base.table(key).id))
        return self.base.pin(key)

    def pin(self, key: str) -> TablePin:
        """Return the pin to stage on: the version that this transaction staged, else that of the base."""
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
        """Stage deletes and inserts of a table. A second call builds on the first.

        Rows to delete are given by id, or by their address in the version that is staged on.
        """
        staged = self.base.tables.stage(
            self.pin(key), delete_ids=delete_ids, delete_addresses=delete_addresses, insert=insert
        )
        self.write(key, staged)
        return staged

    def write(self, key: str, staged: StagedTable) -> None:
        """Add a version that was staged on `pin(key)`; `Conflict` if it was staged on another version."""
        table = str(self.base.table(key).id)
        expected = self.pin(key).version
        if staged.base_version != expected:
            raise Conflict(
                f"{key} was staged on version {staged.base_version}, the transaction is at {expected}",
                details={"table_key": key, "expected": str(expected), "actual": str(staged.base_version)},
            )
        first = self._writes.get(table)
        base = self.base.pin(key).version if first is None else first.expected
        files = staged.files
        if first is not None:
            files = (*content_files(first.files), *files) if staged.version != expected else first.files
        self._writes[table] = TableWrite(staged.path, base, staged.version, staged.rows, files=files)

    def adopt(self, table: Table, pin: TablePin, files: tuple[FileDigest, ...] = ()) -> None:
        """Set a table to an existing version: that of another branch, or the version of a new table.

        `files` has the digests of files that this transaction wrote for it.
        """
        self._writes[str(table.id)] = TableWrite(
            pin.path, self._expected(table), pin.version, pin.rows, pin.content, files=files
        )

    def adopt_staged(self, table: Table, staged: StagedTable, built_on: int | None = None) -> None:
        """Set a table to a staged version whose base may be that of another branch. Its rows count as changed.

        `built_on` is the version that it was staged on, if it belongs to another branch.
        """
        self._writes[str(table.id)] = TableWrite(
            staged.path,
            self._expected(table),
            staged.version,
            staged.rows,
            built_on=built_on,
            files=staged.files,
        )

    def _expected(self, table: Table) -> int | None:
        before = self.base.commit.tables.get(str(table.id))
        return None if before is None else before.version

    def drop(self, table: Table) -> None:
        """Remove a table from the commit."""
        self._drops.add(str(table.id))

    def evolve(self, catalog: Catalog) -> None:
        """Change the schema of the commit."""
        self._schema = catalog

    def change_runs(self, changes: RunChanges) -> None:
        """Change the last runs of pipelines in the commit."""
        self._run_changes = dict(changes)

    @property
    def catalog(self) -> Catalog:
        """The schema of the commit."""
        return self.base.catalog if self._schema is None else self._schema

    def discard_writes(self) -> None:
        """Leave all tables as they are in the base. Files that were staged for them may be deleted."""
        self._writes.clear()

    def on_begin_intent(self, begin: Callable[[], None]) -> None:
        """Set the function that writes the intent of this transaction."""
        self._begin_intent = begin

    def begin_intent(self) -> None:
        """Write an intent before a large amount of data is staged.

        It protects the staged files from garbage collection, and recovery completes the write after a crash.
        """
        if self._begin_intent is not None:
            self._begin_intent()

    @property
    def is_empty(self) -> bool:
        """Whether no table has been staged."""
        return not self._writes

    @property
    def is_unchanged(self) -> bool:
        """Whether the commit would have the tables, the schema and the pipeline runs of its base."""
        return self.is_empty and not self._drops and self._schema is None and not self._run_changes

    def plan(
        self,
        operation: str,
        operation_class: OperationClass,
        *,
        actor: str | None = None,
        message: str | None = None,
        expected_head: str | None = None,
        run: PipelineRun | None = None,
    ) -> WritePlan:
        """Return the write plan of the staged changes. `run` is the pipeline run that made them."""
        runs = self._run_changes if run is None else {run.pipeline: (run.previous, self.commit_id)}
        dependencies = self._reads | self._drops | set(self._writes)
        tables = [*self.base.catalog.tables.values(), *self.catalog.tables.values()]
        schema, payload = (None, None) if self._schema is None else schema_row(self._schema)
        return WritePlan(
            commit_id=self.commit_id,
            branch=self.head.branch,
            incarnation=self.head.incarnation,
            base=self.base.commit.id,
            base_schema=self.base.commit.schema,
            base_tables={key: pin for key, pin in self.base.commit.tables.items() if key in dependencies},
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
            labels={str(item.id): item.key for item in tables if str(item.id) in dependencies},
            staged_at=self._began_at,
            fence=self.fence,
            runs=runs,
            run="" if run is None else run.record,
        )


def schema_row(catalog: Catalog) -> tuple[str, str]:
    """Return the id and the payload of a schema's row in the manifest."""
    payload = json.dumps(catalog.to_json(), separators=(",", ":"), ensure_ascii=False)
    return catalog.fingerprint.removeprefix("sha256:"), payload
