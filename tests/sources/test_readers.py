"""What a load can be given: files and folders of records, tables per type, records, streams, and nothing else."""

from __future__ import annotations

import gzip
import io
import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import InvalidInput, NotFound, StorageError
from omnigraph.sources.python_records import read_dicts
from omnigraph.sources.readers import open_source
from omnigraph.sources.rejects import Reject
from tests.catalog.test_identity import catalog_of

CATALOG = catalog_of("""
node Person { name: String @key  age: I32?  born: Date?  seen: DateTime?  v: Vector(2)? }
node Knows { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge Likes: Person -> Person
node Order { number: I32 @key }
edge Placed: Person -> Order
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


def test_open_source_reads_path_folder_glob_and_stream(tmp_path: Path) -> None:
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


def test_open_source_with_invalid_record_reports_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(lines(ANN))
    (tmp_path / "b.ndjson").write_bytes(lines(BOB, {"type": "Nobody"}))
    with pytest.raises(InvalidInput, match="line 2: unknown node type 'Nobody'") as caught:
        ids(tmp_path)
    assert caught.value.details == {"line": 2, "source": str(tmp_path / "b.ndjson")}
    rejected: list[Reject] = []
    assert ids(tmp_path, on_reject=rejected.append) == ["Ann", "Bob"]
    assert [(reject.place, reject.source) for reject in rejected] == [(2, str(tmp_path / "b.ndjson"))]


def test_permissive_reader_accepts_records_that_strict_refuses() -> None:
    text = json.dumps({**ANN, "extra": 1}, indent=2).encode()
    assert ids(io.BytesIO(text), permissive=True) == ["Ann"]
    with pytest.raises(InvalidInput):
        ids(io.BytesIO(text))


def test_open_source_of_missing_or_unreadable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "people.ndjson").write_bytes(lines(ANN))
    with pytest.raises(NotFound, match="not found") as caught:
        open_source(tmp_path / "peple.ndjson", CATALOG)
    assert caught.value.hint == "did you mean `people.ndjson`?"
    with pytest.raises(NotFound, match="no file matches"):
        open_source(str(tmp_path / "*.gz"), CATALOG)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match=r"has no file with \.ndjson"):
        open_source(tmp_path / "empty", CATALOG)
    (tmp_path / "torn.ndjson.gz").write_bytes(gzip.compress(lines(ANN))[:-6])
    with pytest.raises(StorageError, match="cannot read"):
        ids(tmp_path / "torn.ndjson.gz")


# --- tables per type ----------------------------------------------------------------------------------------


def test_open_source_reads_tables_of_every_library(tmp_path: Path) -> None:
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


def test_open_source_reads_dates_of_pandas_and_polars() -> None:
    for frame in (pd.DataFrame, pl.DataFrame):
        source = frame({"name": ["a"], "born": [MOMENT], "seen": [MOMENT], "v": [[1.0, 2.0]]})
        announced, batch = open_source({"Person": source}, CATALOG)
        assert (announced.key, announced.rows.num_rows) == ("node:Person", 0)
        (row,) = batch.rows.to_pylist()
        assert (row["born"], row["seen"], row["v"]) == (date(2020, 1, 31), MOMENT, [1.0, 2.0])


def test_open_source_with_name_of_two_types_needs_the_kind() -> None:
    ends = pa.table({"from": ["a"], "to": ["b"]})
    opened = open_source({"edge:Knows": ends, "likes": ends}, CATALOG)
    assert [batch.key for batch in opened if batch.rows.num_rows] == [
        "edge:Knows",
        "edge:Likes",
    ]
    with pytest.raises(InvalidInput, match="ambiguous type 'Knows'") as caught:
        open_source({"Knows": ends}, CATALOG)
    assert caught.value.hint == "write node:Knows or edge:Knows"
    with pytest.raises(NotFound, match="unknown type 'Persn'; did you mean `Person`"):
        open_source({"Persn": ends}, CATALOG)


def test_open_source_reads_rows_as_dicts_strictly() -> None:
    _, batch = open_source(
        {"Likes": [{"from": "a", "to": "b"}, {"src": "c", "dst": "d", "id": "x"}]}, CATALOG
    )
    assert batch.rows.to_pylist() == [
        {"id": None, "src": "a", "dst": "b"},
        {"id": "x", "src": "c", "dst": "d"},
    ]
    with pytest.raises(InvalidInput, match="row 2: unknown input field 'nam'"):
        ids({"Person": [{"name": "a"}, {"nam": "b"}]})
    with pytest.raises(InvalidInput, match="row 1: endpoint 'to': expected the id of a node, got null"):
        ids({"Likes": [{"from": "a"}]})
    assert ids({"Person": []}) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (pa.table({"name": ["a"]}), "the type of the rows of a table is unknown"),
        (pd.DataFrame({"name": ["a"]}), "the type of the rows of a table is unknown"),
        (pl.DataFrame({"name": ["a"]}), "the type of the rows of a table is unknown"),
        (ANN, "cannot load from a single record"),
        (7, "cannot load from int"),
        (b"{}", "cannot load from bytes"),
        ({"Person": 7}, "cannot load 'node:Person' from int"),
        ({"Person": [7]}, "expected record batches, got int"),
    ],
)
def test_open_source_of_unsupported_value_is_refused(source: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ids(source)
    assert caught.value.message == message


def test_open_source_of_table_file_needs_a_type(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("name\na\n")
    (tmp_path / "p.ndjson").write_bytes(lines(ANN))
    with pytest.raises(InvalidInput, match=r"the type of the rows of .* is unknown"):
        open_source(tmp_path / "p.csv", CATALOG)
    with pytest.raises(InvalidInput, match="'node:Person'\nhint: the row is a graph record"):
        ids({"Person": tmp_path / "p.ndjson"})
    (tmp_path / "p.txt").write_text("name")
    with pytest.raises(InvalidInput, match=r"unknown format of `.*p\.txt`"):
        open_source({"Person": tmp_path / "p.txt"}, CATALOG)


# --- columns that Arrow holds in other ways, or not at all ----------------------------------------------------


def test_open_source_reads_column_of_mixed_values_row_by_row() -> None:
    frame = pd.DataFrame({"name": ["a", "b", "c", "d"], "age": [1, "x", None, 2.0], "seen": [MOMENT] * 4})
    with pytest.raises(InvalidInput, match="row 2, column 'age': expected I32, got \"x\""):
        ids({"Person": frame})
    rejected: list[Reject] = []
    _, batch = open_source({"Person": frame}, CATALOG, on_reject=rejected.append)
    assert batch.rows.select(["id", "age", "seen"]).to_pylist() == [
        {"id": "a", "age": 1, "seen": MOMENT},
        {"id": "c", "age": None, "seen": MOMENT},
        {"id": "d", "age": 2, "seen": MOMENT},
    ]
    assert [(item.place, item.record["age"]) for item in rejected] == [(2, "x")]
    with pytest.raises(InvalidInput, match=r"^unknown column 'agee' for 'node:Person'"):
        ids({"Person": frame.rename(columns={"age": "agee"})})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["x", "\ud800"], "not valid Unicode text"),
        (["x", 1j], "expected String"),
        (pd.Categorical(["x", 1]), "expected String"),
    ],
)
def test_open_source_of_values_outside_arrow_reports_the_row(values: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"row 2, column 'name': .*{message}"):
        ids({"node:Knows": pd.DataFrame({"name": values})})


def test_open_source_of_number_too_large_for_arrow_reports_the_row() -> None:
    for value in (2**70, Decimal("1e999999999")):
        frame = pd.DataFrame({"name": ["a", "b"], "age": pd.Series([1, value], dtype=object)})
        with pytest.raises(InvalidInput, match="row 2, column 'age': "):
            ids({"Person": frame})


def test_open_source_of_frame_with_duplicate_columns_is_refused() -> None:
    with pytest.raises(InvalidInput, match="duplicate column 'age'"):
        ids({"Person": pd.DataFrame([["a", 1, 2]], columns=["name", "age", "age"])})


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["b", "a"])])
def test_open_source_reads_polars_categories_as_strings(tmp_path: Path, kind: Any) -> None:
    frame = pl.DataFrame({"name": pl.Series(["a", "b", "a"], dtype=kind).unique(maintain_order=True)})
    assert ids({"node:Knows": frame}) == ["a", "b"]
    frame.write_ipc(tmp_path / "k.arrow")
    assert ids({"node:Knows": tmp_path / "k.arrow"}) == ["a", "b"]


@pytest.mark.parametrize("text", [pa.string_view(), pa.string(), pa.large_string()])
def test_open_source_reads_dictionaries_of_strings(text: pa.DataType) -> None:
    names = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), pa.array(["a", "b"], text))
    assert ids({"node:Knows": pa.table({"name": names})}) == ["b", "a"]


@pytest.mark.parametrize("kind", [pl.Int128, pl.Object])
def test_open_source_of_polars_column_unknown_to_arrow_is_refused(kind: Any) -> None:
    frame = pl.DataFrame({"name": ["a"], "age": pl.Series([1], dtype=kind)})
    with pytest.raises(InvalidInput) as caught:
        ids({"Person": frame})
    assert "convert the column" in str(caught.value.hint)


def test_open_source_of_extension_type_is_refused() -> None:
    periods = pd.DataFrame({"name": ["a"], "born": pd.period_range("2020-01", periods=1, freq="M")})
    with pytest.raises(
        InvalidInput, match=r"column 'born' has the unsupported extension type 'pandas\.period'"
    ):
        ids({"Person": periods})
    told = {b"ARROW:extension:name": b"pandas.period"}
    schema = pa.schema([("name", pa.string()), pa.field("born", pa.int32(), metadata=told)])
    unregistered = pa.table([["a"], [600]], schema=schema)
    with pytest.raises(
        InvalidInput, match=r"column 'born' has the unsupported extension type 'pandas\.period'"
    ):
        ids({"Person": unregistered})
    assert ids({"node:Knows": pa.table({"name": pa.array(['"a"'], pa.json_())})}) == ['"a"']


def test_open_source_reads_numpy_datetimes_of_any_unit() -> None:
    for unit in ("ns", "us", "s"):
        _, batch = open_source({"Person": [{"name": "a", "seen": np.datetime64(MOMENT, unit)}]}, CATALOG)
        assert batch.rows["seen"].to_pylist() == [MOMENT]
    with pytest.raises(InvalidInput, match="property 'age': expected I32"):
        ids({"Person": [{"name": "a", "age": np.timedelta64(5, "ns")}]})
    too_fine = np.datetime64("2020-01-01T00:00:00.000000001")
    with pytest.raises(InvalidInput, match=r"property 'seen': DateTime has milliseconds, got \"2020.*01Z\""):
        ids({"Person": [{"name": "a", "seen": too_fine}]})
    with pytest.raises(InvalidInput, match="property 'seen': expected DateTime"):
        ids({"Person": [{"name": "a", "seen": pd.NaT}]})


# --- ends whose key is an integer -----------------------------------------------------------------------------


def ends(source: Any) -> list[str]:
    return [
        end for batch in open_source({"Placed": source}, CATALOG) for end in batch.rows["dst"].to_pylist()
    ]


def test_open_source_converts_integer_keys_of_endpoints(tmp_path: Path) -> None:
    rows = [{"from": "a", "to": 10248}, {"from": "a", "to": "7"}]
    (tmp_path / "p.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.table({"src": ["a"], "dst": pa.array([10248], pa.int64())}), tmp_path / "p.parquet")
    assert ends(rows) == ends(tmp_path / "p.ndjson") == ends(pd.DataFrame(rows)) == ["10248", "7"]
    assert ends(tmp_path / "p.parquet") == ["10248"]
    assert ends(pl.DataFrame(rows[:1])) == ends([{"from": "a", "to": np.int64(10248)}]) == ["10248"]


@pytest.mark.parametrize("end", [2**40, 1.5, True])
def test_open_source_of_invalid_endpoint_is_refused(end: Any) -> None:
    for source in ([{"from": "a", "to": end}], pa.table({"from": ["a"], "to": [end]})):
        with pytest.raises(InvalidInput, match="Placed row 1"):
            ends(source)


def test_open_source_of_number_as_string_endpoint_is_refused() -> None:
    with pytest.raises(InvalidInput, match="record 1: graph batch field 'to' must be a string, got 7"):
        ids([{"edge": "Placed", "from": "a", "to": 7}])
    with pytest.raises(InvalidInput, match="row 1, column 'from': expected String, got 7"):
        ids({"Likes": pa.table({"from": [7], "to": ["a"]})})


# --- how lines are laid out -----------------------------------------------------------------------------------


@pytest.mark.parametrize("permissive", [False, True])
def test_open_source_ignores_byte_order_mark(tmp_path: Path, permissive: bool) -> None:
    mark = b"\xef\xbb\xbf"
    (tmp_path / "p.ndjson").write_bytes(mark + lines(ANN, BOB))
    assert ids(tmp_path / "p.ndjson", permissive=permissive) == ["Ann", "Bob"]
    assert ids(io.BytesIO(mark + lines(ANN)), permissive=permissive) == ["Ann"]
    for text in (b'{"name": "Ann"}\n', b'[{"name": "Ann"}]'):
        (tmp_path / "t.json").write_bytes(mark + text)
        assert ids({"Person": tmp_path / "t.json"}) == ["Ann"]


@pytest.mark.parametrize("text", [json.dumps([ANN]), json.dumps([ANN], indent=1), json.dumps(ANN, indent=1)])
def test_open_source_of_records_not_one_per_line_has_a_hint(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ids(io.BytesIO(text.encode()))
    assert "one JSON object per line" in str(caught.value.hint)


# --- records ------------------------------------------------------------------------------------------------


def test_read_dicts_accepts_python_values() -> None:
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
            "Person record 2, property 'age': expected I32, got 1.0",
        ),
        (
            {"type": "Person", "data": {"name": "a", "born": MOMENT}},
            "Person record 2, property 'born'",
        ),
        (
            {"type": "Person", "data": {"name": "\ud800"}},
            "Person record 2, property 'name': not valid Unicode text",
        ),
    ],
)
def test_read_dicts_of_invalid_record_reports_its_number(record: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        list(read_dicts([ANN, record], CATALOG))
    assert caught.value.message.startswith(message)
    rejected: list[Reject] = []
    list(read_dicts([ANN, record], CATALOG, on_reject=rejected.append))
    assert [(reject.place, reject.record) for reject in rejected] == [(2, record)]
