"""What a load can be given: files and folders of records, tables per type, records, streams, and nothing else."""

from __future__ import annotations

import gzip
import io
import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import InvalidInput, NotFound, StorageError
from omnigraph.write.dicts import read_dicts
from omnigraph.write.input import Reject
from omnigraph.write.sources import open_source
from tests.catalog.test_identity import catalog_of

CATALOG = catalog_of("""
node Person { name: String @key  age: I32?  born: Date?  seen: DateTime?  v: Vector(2)? }
node Knows { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge Likes: Person -> Person
""")
ANN = {"type": "Person", "data": {"name": "Ann"}}
# Naive on purpose: it stands for UTC.
MOMENT = datetime(2020, 1, 31)  # noqa: DTZ001
BOB = {"type": "Person", "data": {"name": "Bob"}}


def lines(*records: dict[str, Any]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def ids(source: Any, **options: Any) -> list[str | None]:
    found: list[str | None] = []
    for batch in open_source(source, CATALOG, **options):
        found += batch.rows["id"].to_pylist()
    return found


# --- files of records ---------------------------------------------------------------------------------------


def test_a_path_a_folder_a_glob_and_a_stream_of_records(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(lines(ANN))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines(BOB)))
    (tmp_path / "notes.txt").write_text("no records")
    assert ids(tmp_path / "a.ndjson") == ids(str(tmp_path / "a.ndjson")) == ["Ann"]
    assert ids((tmp_path / "a.ndjson").as_uri()) == ["Ann"]
    assert ids(tmp_path) == ids(str(tmp_path / "*.*[nz]*")) == ids(str(tmp_path / "?.*")) == ["Ann", "Bob"]
    assert ids(str(tmp_path / "**" / "a.ndjson")) == ["Ann"]
    assert ids(io.BytesIO(lines(BOB))) == ["Bob"]
    with (tmp_path / "a.ndjson").open("rb") as stream:
        (batch,) = open_source(stream, CATALOG)
    assert batch.source == str(tmp_path / "a.ndjson")


def test_a_bad_record_names_its_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(lines(ANN))
    (tmp_path / "b.ndjson").write_bytes(lines(BOB, {"type": "Nobody"}))
    with pytest.raises(InvalidInput, match="line 2: unknown node type 'Nobody'") as caught:
        ids(tmp_path)
    assert caught.value.details == {"line": 2, "source": str(tmp_path / "b.ndjson")}
    rejected: list[Reject] = []
    assert ids(tmp_path, rejecting=rejected.append) == ["Ann", "Bob"]
    assert [(reject.place, reject.source) for reject in rejected] == [(2, str(tmp_path / "b.ndjson"))]


def test_the_permissive_reader_reads_what_the_strict_one_refuses() -> None:
    text = json.dumps({**ANN, "extra": 1}, indent=2).encode()
    assert ids(io.BytesIO(text), permissive=True) == ["Ann"]
    with pytest.raises(InvalidInput):
        ids(io.BytesIO(text))


def test_what_is_not_there_or_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "people.ndjson").write_bytes(lines(ANN))
    with pytest.raises(NotFound, match="there is no file") as caught:
        open_source(tmp_path / "peple.ndjson", CATALOG)
    assert caught.value.hint == "did you mean `people.ndjson`?"
    with pytest.raises(NotFound, match="no file matches"):
        open_source(str(tmp_path / "*.gz"), CATALOG)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match=r"has no file with \.ndjson"):
        open_source(tmp_path / "empty", CATALOG)
    (tmp_path / "torn.ndjson.gz").write_bytes(gzip.compress(lines(ANN))[:-6])
    with pytest.raises(StorageError, match="cannot be read"):
        ids(tmp_path / "torn.ndjson.gz")


# --- tables per type ----------------------------------------------------------------------------------------


def test_tables_of_every_library_are_read_per_type(tmp_path: Path) -> None:
    arrow = pa.table({"name": ["Ann", "Bob"], "age": [1, None]})
    pq.write_table(arrow, tmp_path / "p.parquet")
    (tmp_path / "p.csv").write_text("name,age\nAnn,1\nBob,\n")
    (tmp_path / "p.csv.gz").write_bytes(gzip.compress(b"name,age\nAnn,1\nBob,\n"))
    given: list[Any] = [
        arrow,
        arrow.to_reader(),
        arrow.to_batches()[0],
        arrow.to_batches(),
        pd.DataFrame({"name": ["Ann", "Bob"], "age": [1, None]}),
        pl.DataFrame({"name": ["Ann", "Bob"], "age": [1, None]}),
        [{"name": "Ann", "age": np.int64(1)}, {"name": "Bob", "age": None}],
        tmp_path / "p.parquet",
        str(tmp_path / "p.csv"),
        tmp_path / "p.csv.gz",
    ]
    for source in given:
        announced, batch = open_source({"Person": source}, CATALOG)
        assert (announced.key, announced.rows.num_rows) == ("node:Person", 0)
        assert batch.key == "node:Person"
        assert batch.rows.select(["id", "age"]).to_pylist() == [
            {"id": "Ann", "age": 1},
            {"id": "Bob", "age": None},
        ]


def test_pandas_and_polars_dates_are_dates() -> None:
    for frame in (pd.DataFrame, pl.DataFrame):
        source = frame({"name": ["a"], "born": [MOMENT], "seen": [MOMENT], "v": [[1.0, 2.0]]})
        announced, batch = open_source({"Person": source}, CATALOG)
        assert (announced.key, announced.rows.num_rows) == ("node:Person", 0)
        (row,) = batch.rows.to_pylist()
        assert (row["born"], row["seen"], row["v"]) == (date(2020, 1, 31), MOMENT, [1.0, 2.0])


def test_a_name_of_two_types_needs_its_kind() -> None:
    ends = pa.table({"from": ["a"], "to": ["b"]})
    opened = open_source({"edge:Knows": ends, "likes": ends}, CATALOG)
    assert [batch.key for batch in opened if batch.rows.num_rows] == [
        "edge:Knows",
        "edge:Likes",
    ]
    with pytest.raises(InvalidInput, match="'Knows' is a node type and an edge type") as caught:
        open_source({"Knows": ends}, CATALOG)
    assert caught.value.hint == "write node:Knows or edge:Knows"
    with pytest.raises(NotFound, match="no type 'Persn'") as missing:
        open_source({"Persn": ends}, CATALOG)
    assert missing.value.hint == "did you mean `Person`?"


def test_rows_as_dicts_are_read_strictly() -> None:
    _, batch = open_source(
        {"Likes": [{"from": "a", "to": "b"}, {"src": "c", "dst": "d", "id": "x"}]}, CATALOG
    )
    assert batch.rows.to_pylist() == [
        {"id": None, "src": "a", "dst": "b"},
        {"id": "x", "src": "c", "dst": "d"},
    ]
    with pytest.raises(InvalidInput, match="row 2: unknown input field 'nam'"):
        ids({"Person": [{"name": "a"}, {"nam": "b"}]})
    with pytest.raises(InvalidInput, match="row 1: an edge needs the id of a node under 'to', got null"):
        ids({"Likes": [{"from": "a"}]})
    assert ids({"Person": []}) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (pa.table({"name": ["a"]}), "a table does not say what type its rows have"),
        (pd.DataFrame({"name": ["a"]}), "a table does not say what type its rows have"),
        (pl.DataFrame({"name": ["a"]}), "a table does not say what type its rows have"),
        (ANN, "a single record is no source"),
        (7, "cannot load from int"),
        (b"{}", "cannot load from bytes"),
        ({"Person": 7}, "'node:Person' cannot be loaded from int"),
        ({"Person": [7]}, "record batches expected, got int"),
    ],
)
def test_anything_else_is_refused(source: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ids(source)
    assert caught.value.message == message


def test_table_files_need_a_type_and_record_files_none(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("name\na\n")
    (tmp_path / "p.ndjson").write_bytes(lines(ANN))
    with pytest.raises(InvalidInput, match="does not say what type its rows have"):
        open_source(tmp_path / "p.csv", CATALOG)
    with pytest.raises(InvalidInput, match="'node:Person': graph records are given without a type"):
        ids({"Person": tmp_path / "p.ndjson"})
    (tmp_path / "p.txt").write_text("name")
    with pytest.raises(InvalidInput, match=r"p\.txt` is of no known format"):
        open_source({"Person": tmp_path / "p.txt"}, CATALOG)


# --- records ------------------------------------------------------------------------------------------------


def test_records_as_dicts_may_hold_python_values() -> None:
    record: dict[str, Any] = {
        "type": "Person",
        "data": {
            "name": "a",
            "born": date(1970, 1, 2),
            "seen": MOMENT,
            "v": np.array([1, 2]),
        },
    }
    for source in ([record], iter([record])):
        (batch,) = open_source(source, CATALOG)
        (row,) = batch.rows.to_pylist()
        assert (row["born"], row["seen"], row["v"]) == (
            record["data"]["born"],
            record["data"]["seen"],
            [1.0, 2.0],
        )


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (7, "record 2: graph batch record must be one JSON object"),
        (
            {"type": "Person", "data": {"name": "a", "age": 1.0}},
            "record 2: property 'age' expects I32?, got 1.0",
        ),
        (
            {"type": "Person", "data": {"name": "a", "born": MOMENT}},
            "record 2: property 'born'",
        ),
        (
            {"type": "Person", "data": {"name": "\ud800"}},
            "record 2: property 'name' is not valid Unicode text",
        ),
    ],
)
def test_a_bad_record_is_refused_with_its_number(record: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        list(read_dicts([ANN, record], CATALOG))
    assert caught.value.message.startswith(message)
    rejected: list[Reject] = []
    list(read_dicts([ANN, record], CATALOG, rejecting=rejected.append))
    assert [(reject.place, reject.record) for reject in rejected] == [(2, record)]
