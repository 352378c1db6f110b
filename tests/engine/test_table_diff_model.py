"""Random histories of two branches: their difference is that of their rows."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables import tables as tables_module
from omnigraph.store.tables.table_fragments import list_fragments
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.uncommitted_fragments import rewrite_fragments
from tests.engine.diffs import changes, diff_of, naive
from tests.support.places import fresh_memory
from tests.support.rows import SCHEMA, arrow, compact, make_table, pin_of, read

IDS = ["a", "b", "c", "d", "é", "🙂", "\uffff", "aa", "A", "", "b\0"]
STEP = st.tuples(
    st.sampled_from(["stage", "stage", "stream", "overwrite", "rewrite", "compact"]),
    st.frozensets(st.sampled_from(IDS), max_size=4),
    st.dictionaries(st.sampled_from(IDS), st.sampled_from([None, "", "x", "y"]), max_size=4),
)
HISTORY = st.lists(STEP, max_size=5)


@pytest.fixture
def small_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folding sets in after a few rows."""
    monkeypatch.setattr(tables_module, "COMPACT_AT", 3)
    monkeypatch.setattr(tables_module, "COMPACTION_TIERS", (2, 4, 8))


def grow(tables: Tables, pin: TablePin, history: list[Any]) -> TablePin:
    for kind, deleted, new in history:
        there = read(tables, pin)
        gone = sorted((deleted | new.keys()) & there.keys())
        rows = arrow(new, SCHEMA)
        if kind == "stage":
            pin = pin_of(tables.stage(pin, delete_ids=gone, insert=rows))
        elif kind == "stream":
            found = (
                tables.open(pin.path, pin.version).scanner(columns=["id"], with_row_address=True).to_table()
            )
            at = dict(zip(*(column.to_pylist() for column in found.columns), strict=True))
            doomed = np.array([at[id_] for id_ in gone], np.uint64)
            pin = pin_of(tables.stage_rows(pin, rows.to_batches(), SCHEMA, doomed))
        elif kind == "overwrite":
            pin = pin_of(tables.stage_overwrite(pin, rows.to_batches(), SCHEMA))
        elif kind == "rewrite":
            pin = pin_of(compact(tables, pin))
        else:
            numbers = [item.id for item in list_fragments(tables, pin)]
            if numbers:
                old, new = numbers[:2], max(numbers) + 10
                rewritten = rewrite_fragments(tables.root, pin, old, new)
                pin = pin_of(tables.stage_compaction(pin, [(old, rewritten)]))
    return pin


@pytest.mark.usefixtures("small_tiers")
@settings(
    max_examples=25,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(HISTORY, HISTORY, HISTORY, st.sampled_from([1, 3, 100]))
def test_two_branches_of_any_history_differ_as_their_rows_do(
    shared: list[Any], left: list[Any], right: list[Any], batch_rows: int
) -> None:
    tables, empty = make_table(fresh_memory())
    base = grow(tables, empty, shared)
    pins = [base, grow(tables, base, left), grow(tables, base, right), None]
    contents = [{} if pin is None else read(tables, pin) for pin in pins]
    for (before, old), (after, new) in product(zip(pins, contents, strict=True), repeat=2):
        expected = naive(old, new)
        diff = diff_of(tables, before, after)
        assert changes(diff.batches(batch_rows=batch_rows)) == expected
        assert len(expected) <= diff.rows
    on_disk = diff_of(tables, pins[1], pins[2], in_memory_rows=0)
    assert changes(on_disk.batches(batch_rows=batch_rows)) == naive(contents[1], contents[2])
