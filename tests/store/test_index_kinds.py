"""Index kinds: each can be built as a segment and extended to new fragments, without changes to rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.tables import Tables
from tests.support.places import lance_root, uri
from tests.support.rows import pin_of

__all__ = ["uri"]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), 4)),
    ]
)


def _rows(first: int, count: int) -> pa.Table:
    numbers = np.random.default_rng(first).random((count, 4), dtype=np.float32)
    return pa.table(
        [
            pa.array([f"row-{number}" for number in range(first, first + count)]),
            pa.array([f"word{number % 7} hello" for number in range(first, first + count)]),
            pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), 4),
        ],
        schema=SCHEMA,
    )


def _search(tables: Tables, pin: TablePin, **how: Any) -> list[str]:
    found = tables.open(pin.path, pin.version).scanner(columns=["id"], **how).to_table()
    return sorted(found["id"].to_pylist())


@pytest.mark.parametrize(
    ("column", "kind", "parameters", "how"),
    [
        ("id", "BTREE", {}, {"filter": "id = 'row-310'"}),
        ("text", "BITMAP", {}, {"filter": "text = 'word3 hello'"}),
        ("id", "ZONEMAP", {}, {"filter": "id >= 'row-31'"}),
        ("text", "NGRAM", {}, {"filter": "contains(text, 'word5')"}),
        (
            "vector",
            "IVF_FLAT",
            {"num_partitions": 1},
            {"nearest": {"column": "vector", "q": [0.5] * 4, "k": 9}},
        ),
    ],
)
def test_an_index_gives_the_rows_of_a_scan_before_and_after_it_is_extended(
    uri: str, column: str, kind: str, parameters: dict[str, Any], how: dict[str, Any]
) -> None:
    tables = Tables(lance_root(uri))
    pin = TablePin("nodes/1-x", tables.create("nodes/1-x", SCHEMA).version, 0, "content")
    pin = pin_of(tables.stage(pin, insert=_rows(0, 300)))
    plain = _search(tables, pin, **how)
    indexed = pin_of(tables.stage_index(pin, column, kind, **parameters))
    assert _search(tables, indexed, **how) == plain
    more = pin_of(tables.stage(pin, insert=_rows(300, 40)))
    extended = pin_of(tables.stage(indexed, insert=_rows(300, 40)))
    expected = _search(tables, more, **how)
    assert _search(tables, extended, **how) == expected
    covered = pin_of(tables.stage_index(extended, column, kind, **parameters))
    assert covered.version != extended.version
    assert _search(tables, covered, **how) == expected
    assert tables.stage_index(covered, column, kind, **parameters).version == covered.version


def test_a_full_text_index_finds_rows_it_covers_and_rows_newer_than_it(uri: str) -> None:
    tables = Tables(lance_root(uri))
    pin = TablePin("nodes/1-x", tables.create("nodes/1-x", SCHEMA).version, 0, "content")
    pin = pin_of(tables.stage(pin, insert=_rows(0, 70)))
    pin = pin_of(tables.stage_index(pin, "text", "INVERTED"))
    assert len(_search(tables, pin, full_text_query="word3")) == 10
    pin = pin_of(tables.stage(pin, insert=_rows(70, 7)))
    assert len(_search(tables, pin, full_text_query="word3")) == 11
    pin = pin_of(tables.stage_index(pin, "text", "INVERTED"))
    assert len(_search(tables, pin, full_text_query="word3")) == 11
    pin = pin_of(tables.stage(pin, delete_ids=["row-3", "row-73"]))
    assert len(_search(tables, pin, full_text_query="word3")) == 9
