"""A snapshot: one commit, and everything it pins, for as long as somebody reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.errors import NotFound
from omnigraph.store.manifest.records import CommitRecord, TablePin
from omnigraph.store.tables.tables import Tables

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Snapshot:
    """The state of the graph at one commit. Reading it never looks at a head again."""

    branch: str
    commit: CommitRecord
    catalog: Catalog
    tables: Tables

    @property
    def commit_id(self) -> str:
        """The commit this is the state of."""
        return self.commit.id

    @property
    def schema(self) -> str:
        """The text of the schema that the state obeys."""
        return self.catalog.source

    @property
    def types(self) -> Mapping[str, TablePin]:
        """Every table by its key, ``node:Person``, with its pin."""
        return {key: self.pin(key) for key in self.catalog.tables}

    def table(self, key: str) -> Table:
        """The table of that key, or `NotFound`."""
        found = self.catalog.tables.get(key)
        if found is None:
            raise NotFound(f"unknown type '{key}'", details={"table_key": key})
        return found

    def pin(self, key: str) -> TablePin:
        """The version of a table that this commit sees."""
        return self.commit.tables[str(self.table(key).id)]

    def scan(
        self,
        key: str,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Rows of a table by physical column; a commit whose files are gone answers that it was reclaimed."""
        pin = self.pin(key)
        try:
            return self.tables.scan(pin, columns, where, limit)
        except NotFound as error:
            raise reclaimed(self.commit) from error

    def scan_batches(
        self, key: str, columns: Sequence[str] | None = None, where: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The same as a stream."""
        pin = self.pin(key)
        try:
            yield from self.tables.scan_batches(pin, columns, where)
        except NotFound as error:
            raise reclaimed(self.commit) from error


def reclaimed(commit: CommitRecord) -> NotFound:
    """The error of a commit that is on record but whose data is gone: cleanup removed it, or a hard drop."""
    return NotFound(
        f"the data of commit '{commit.id}' was reclaimed by cleanup, or by a schema change that allowed data loss",
        details={"commit_id": commit.id, "reason": "reclaimed"},
        hint="keep more history with a larger `keep` or `older_than`",
    )
