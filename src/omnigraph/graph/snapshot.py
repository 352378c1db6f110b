"""A snapshot: the state of the graph at one commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.errors import NotFound
from omnigraph.graph.damage import CommitState, check_versions, reading
from omnigraph.store.manifest.records import CommitRecord, TablePin
from omnigraph.store.tables.tables import Tables

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.graph.read_leases import ReadLeases


@dataclass(frozen=True, repr=False)
class Snapshot:
    """The state of the graph at one commit. Reads do not access the head of the branch again.

    `format_version` is the storage format of the graph when the snapshot was taken.
    """

    branch: str
    commit: CommitRecord
    catalog: Catalog
    tables: Tables
    format_version: int
    # Whether the commit was the head of its branch when the manifest was read for the present call.
    is_head: bool = field(default=False, compare=False)
    leases: ReadLeases | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        rows = ", ".join(
            f"{table.name}: {self.pin(table.key).rows:,}" for table in self.catalog.tables.values()
        )
        return f"Snapshot(branch={self.branch!r}, commit_id={self.commit_id!r}, rows={{{rows}}})"

    def __getstate__(self) -> dict[str, object]:
        # Another process has no handle that could renew a lease.
        return {**self.__dict__, "leases": None}

    @property
    def commit_id(self) -> str:
        """The id of the commit."""
        return self.commit.id

    @property
    def schema(self) -> str:
        """The source text of the schema."""
        return self.catalog.source

    @property
    def types(self) -> Mapping[str, TablePin]:
        """The pins of all tables by key, such as ``node:Person``."""
        return {key: self.pin(key) for key in self.catalog.tables}

    def table(self, key: str) -> Table:
        """Return the table of a key; `NotFound` if the schema has none."""
        found = self.catalog.tables.get(key)
        if found is None:
            raise NotFound(f"unknown type '{key}'", details={"table_key": key})
        return found

    def pin(self, key: str) -> TablePin:
        """Return the pin of a table."""
        return self.commit.tables[str(self.table(key).id)]

    def scan(
        self,
        key: str,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Return rows of a table by physical column. See `reading` for the errors."""
        pin = self.pin(key)
        with self.reading(), self.held():
            return self.tables.scan(pin, columns, where, limit)

    def scan_batches(
        self, key: str, columns: Sequence[str] | None = None, where: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `scan` in batches."""
        pin = self.pin(key)
        with self.reading(), self.held():
            yield from self.tables.scan_batches(pin, columns, where)

    def check_retained(self, key: str) -> None:
        """Raise the errors of `reading` if the version of a table is not in storage any more.

        The head of a branch is always retained. Any other commit may be reclaimed while its rows are cached.
        """
        if not self.is_head:
            check_versions(replace(self.state, types=[self.table(key)]))

    def reading(self) -> AbstractContextManager[None]:
        """Report missing and damaged files of the tables.

        Raises `NotFound` with the reason ``reclaimed`` if garbage collection removed the data, and `StorageError`
        with the reason ``damaged`` for any other missing file and for a file that cannot be read.
        """
        return reading(self.state)

    def held(self) -> AbstractContextManager[None]:
        """Keep the commit for the duration of a read, should it take long. See `ReadLeases`."""
        return nullcontext() if self.leases is None else self.leases.reading(self.commit_id)

    @property
    def state(self) -> CommitState:
        """The tables of the commit, for the search for the cause of a failed read."""
        return CommitState(self.tables, self.commit, self.catalog.tables.values(), self.branch)
