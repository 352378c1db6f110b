"""Differences of tables of names, as plain lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omnigraph.engine.diff.table_diff import DELETE, INSERT, UPDATE, ChangeBatch, Side, TableDiff
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.tables import Tables
from tests.support.rows import stage

COLUMNS = {"id": "id", "name": "name"}
Change = tuple[str, int, Any, Any]


def diff_of(
    tables: Tables, before: TablePin | None, after: TablePin | None, in_memory_rows: int = 1_000
) -> TableDiff:
    """The difference of two versions of a table of names."""
    old, new = (None if pin is None else Side(tables, pin, COLUMNS) for pin in (before, after))
    return TableDiff(old, new, in_memory_rows)


def changes(batches: Iterator[ChangeBatch]) -> list[Change]:
    """Every change in order: id, op, name before and after."""
    found: list[Change] = []
    for batch in batches:
        assert len(batch) > 0
        columns = (batch.ids, batch.before["name"], batch.after["name"])
        ids, before, after = (column.to_pylist() for column in columns)
        assert batch.before["id"].to_pylist() == [
            None if op == INSERT else id_ for id_, op in zip(ids, batch.ops, strict=True)
        ]
        assert batch.after["id"].to_pylist() == [
            None if op == DELETE else id_ for id_, op in zip(ids, batch.ops, strict=True)
        ]
        found += zip(ids, batch.ops.tolist(), before, after, strict=True)
    return found


def naive(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """The changes from one dictionary to another."""
    found: list[Change] = []
    for id_ in sorted(before.keys() | after.keys(), key=str.encode):
        if id_ not in before:
            found.append((id_, INSERT, None, after[id_]))
        elif id_ not in after:
            found.append((id_, DELETE, before[id_], None))
        elif before[id_] != after[id_]:
            found.append((id_, UPDATE, before[id_], after[id_]))
    return found


def people(tables: Tables, pin: TablePin, start: int, stop: int) -> TablePin:
    """The table with so many more rows, the id of each its number."""
    return stage(tables, pin, {f"{number:05}": f"n{number}" for number in range(start, stop)})
