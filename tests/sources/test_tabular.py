"""Tables of one type: casts that lose nothing, rows named in errors, CSV and Parquet in batches."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.catalog.columns import logical_schema
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.sources.columnar_files import read_parquet
from omnigraph.sources.csv_files import read_csv
from omnigraph.sources.rejects import Reject
from omnigraph.sources.row_batch import InputBatch
from omnigraph.sources.table_reader import TableInput
from omnigraph.sources.tabular import read_table, read_typed_rows
from tests.catalog.test_identity import catalog_of

CATALOG = catalog_of("""
node Person { name: String @key  age: I32?  score: F32?  ok: Bool?  born: Date?  seen: DateTime? }
node Thing { i: I64?  u: U64?  d: F64?  v: Vector(2)?  tags: [String]?  nums: [I32]?  blob: Blob?  days: [Date]? }
node Point { x: F64 @key }
node Strict { must: String }
edge Knows: Person -> Person { since: Date? }
""")


def read(key: str, columns: dict[str, Any] | pa.Table, **options: Any) -> list[InputBatch]:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    return list(read_table(key, table, CATALOG, **options))


def column(key: str, columns: dict[str, Any], name: str) -> list[Any]:
    found: list[Any] = [value for batch in read(key, columns) for value in batch.rows[name].to_pylist()]
    return found


def refusal(key: str, columns: dict[str, Any]) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        read(key, columns, source="t")
    assert caught.value.details["source"] == "t"
    assert caught.value.message.startswith("t: ")
    return caught.value


# --- tables -------------------------------------------------------------------------------------------------


def test_rows_have_the_types_of_the_properties_and_derived_ids() -> None:
    (batch,) = read(
        "node:Person", {"age": pa.array([30, None], pa.int64()), "name": ["Ann", "Bob"]}, source="t"
    )
    assert batch.rows.schema == logical_schema(CATALOG.tables["node:Person"])
    assert batch.rows["id"].to_pylist() == ["Ann", "Bob"]
    assert batch.rows["age"].to_pylist() == [30, None]
    assert (batch.places.to_pylist(), batch.source) == ([1, 2], "t")


@pytest.mark.parametrize("ends", [("from", "to"), ("src", "dst")])
def test_edges_have_their_ends_under_either_name(ends: tuple[str, str]) -> None:
    (batch,) = read("edge:Knows", {ends[0]: ["a"], ends[1]: ["b"], "since": [date(1970, 1, 2)]})
    assert batch.rows.to_pylist() == [{"id": None, "src": "a", "dst": "b", "since": date(1970, 1, 2)}]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("i", pa.array([1.0, 2.0**60]), [1, 2**60]),
        ("i", pa.array([Decimal("5.00"), None]), [5, None]),
        ("u", pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
        ("d", pa.array([2**53, None], pa.int64()), [2.0**53, None]),
        ("d", pa.array([float("inf")]), [float("inf")]),
        ("v", pa.array([[1, 2], None, [3, 4]]), [[1, 2], None, [3, 4]]),
        ("v", pa.array([[0.5, 2.0]], pa.list_(pa.float64(), 2)), [[0.5, 2]]),
        ("tags", pa.array([["a"], None, []], pa.large_list(pa.large_string())), [["a"], None, []]),
        ("nums", pa.array([[1], [2, 3]], pa.list_(pa.int64())), [[1], [2, 3]]),
        ("days", pa.array([["1970-01-02"], [1]][:1]), [[date(1970, 1, 2)]]),
        ("blob", pa.array([b"x"]), [{"data": b"x", "uri": None}]),
        (
            "blob",
            pa.array(["base64:eA==", "s3://b/k"]),
            [{"data": b"x", "uri": None}, {"data": None, "uri": "s3://b/k"}],
        ),
        ("blob", pa.array([{"data": b"x", "uri": None}]), [{"data": b"x", "uri": None}]),
        ("d", pa.nulls(2), [None, None]),
    ],
)
def test_values_keep_what_they_are(name: str, values: pa.Array, expected: list[Any]) -> None:
    assert column("node:Thing", {name: values}, name) == expected


@pytest.mark.parametrize(
    ("values", "millis"),
    [
        (pa.array(["1970-01-01T01:00:00.001000+01:00"]), 1),
        (pa.array([5], pa.int64()), 5),
        (pa.array([1_000], pa.timestamp("us")), 1),
        (pa.array([-1_000_000], pa.timestamp("ns")), -1),
        (pa.array([datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))]), 0),
        (pa.array([1], pa.date32()), 86_400_000),
        (pa.array(["1970-01-01"]).dictionary_encode(), 0),
    ],
)
def test_datetimes_are_read_in_every_form(values: pa.Array, millis: int) -> None:
    (batch,) = read("node:Person", {"name": ["a"], "seen": values})
    assert batch.rows["seen"].cast(pa.int64()).to_pylist() == [millis]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["1970-01-01T00:00:00.0019Z"]),
        pa.array(["1970-01-01T00:00:00.0019Z"]).dictionary_encode(),
        pa.array([1_999], pa.timestamp("us")),
        pa.array([1_000_001], pa.timestamp("ns")),
        pa.array([-1], pa.timestamp("ns", "Europe/Rome")),
        pa.array([datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
    ],
)
def test_datetimes_below_a_millisecond_are_refused(values: pa.Array) -> None:
    error = refusal("node:Person", {"name": ["a"], "seen": values})
    assert "row 1, column 'seen': DateTime has milliseconds, got" in error.message
    assert "round it to milliseconds" in error.message


def test_a_moment_at_midnight_is_a_date_and_another_is_not() -> None:
    midnight = pa.array([datetime(1970, 1, 2, tzinfo=UTC), None])
    assert column("node:Person", {"name": ["a", "b"], "born": midnight}, "born") == [date(1970, 1, 2), None]
    later = pa.array([datetime(1970, 1, 2, 3, tzinfo=UTC)])
    assert "row 1, column 'born'" in refusal("node:Person", {"name": ["a"], "born": later}).message


BEYOND = 253402300800  # The first second of the year 10000.


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("born", pa.array([0, 2932897], pa.date32()), "value 2932897 exceeds Date"),
        ("born", pa.array([0, -719163], pa.date32()), "value -719163 exceeds Date"),
        ("born", pa.array([0, BEYOND * 1_000], pa.date64()), "value 2932897 exceeds Date"),
        ("born", pa.array([0, BEYOND], pa.timestamp("s")), "value 2932897 exceeds Date"),
        ("born", pa.array([0, 2932897], pa.int64()), "value 2932897 exceeds Date"),
        ("seen", pa.array([0, BEYOND], pa.timestamp("s", "UTC")), f"value {BEYOND}000 exceeds DateTime"),
        ("seen", pa.array([0, 2**62], pa.timestamp("s")), f"value {2**62 * 1_000} exceeds DateTime"),
        ("seen", pa.array([0, BEYOND * 1_000], pa.timestamp("ms")), f"value {BEYOND}000 exceeds DateTime"),
        ("seen", pa.array([0, BEYOND * 10**6], pa.timestamp("us")), f"value {BEYOND}000 exceeds DateTime"),
        ("seen", pa.array([0, -62135596800001], pa.int64()), "value -62135596800001 exceeds DateTime"),
        ("seen", pa.array([0, 2932897], pa.date32()), f"value {BEYOND}000 exceeds DateTime"),
    ],
)
def test_a_time_beyond_the_years_1_to_9999_is_refused_with_its_row(
    name: str, values: pa.Array, message: str
) -> None:
    error = refusal("node:Person", {"name": ["a", "b"], name: values})
    assert error.message == f"t: Person row 2, column '{name}': {message}"


def test_lists_of_dates_and_cells_are_held_to_the_same_years() -> None:
    days = pa.array([[0], [1, 2932897]], pa.list_(pa.date32()))
    found = refusal("node:Thing", {"days": days}).message
    assert found == "t: Thing row 2, column 'days': value 2932897 exceeds Date"
    for born, seen in (("2932897", ""), ("", "253402300800000")):
        with pytest.raises(InvalidInput, match=r"row 2, column '(born|seen)': value \d+ exceeds Date"):
            csv(f"name,born,seen\na,0,0\nb,{born},{seen}\n", "node:Person")
    last = {"name": ["a"], "born": pa.array([2932896], pa.date32()), "seen": pa.array([-62135596800000])}
    assert column("node:Person", last, "born") == [date(9999, 12, 31)]
    assert column("node:Person", last, "seen") == [datetime(1, 1, 1, tzinfo=UTC).replace(tzinfo=None)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"i": [1.0, 2.5]}, "row 2, column 'i': expected I64, got 2.5"),
        ({"i": ["1"]}, "row 1, column 'i': expected I64, got \"1\""),
        ({"i": [True]}, "row 1, column 'i': expected I64, got true"),
        ({"u": [0, -1]}, "row 2, column 'u': value -1 exceeds U64"),
        ({"nums": [[1], [2**31]]}, "row 2, column 'nums': value 2147483648 exceeds I32"),
        ({"nums": [[1, None]]}, "row 1, column 'nums': expected [I32], got [1,null]"),
        ({"d": [2**53 + 1]}, "row 1, column 'd': expected F64, got 9007199254740993"),
        ({"v": [[1.0, 2.0], [1.0]]}, "row 2, column 'v': vector property 'v' expects 2 dimensions, got 1"),
        ({"v": [[1e39, 2.0]]}, "row 1, column 'v': vector property 'v' elements must be finite"),
        ({"tags": [1]}, "row 1, column 'tags': expected [String], got 1"),
        ({"x": [1], "yy": [2]}, "unknown columns 'x', 'yy' for 'node:Thing'"),
    ],
)
def test_a_value_that_would_change_is_refused_with_its_row(columns: dict[str, Any], message: str) -> None:
    assert refusal("node:Thing", columns).message in (f"t: Thing {message}", f"t: {message}")


@pytest.mark.parametrize(
    ("key", "columns", "message"),
    [
        (
            "node:Person",
            {"name": ["a"], "score": [1e39]},
            "Person row 1, column 'score': value 1e+39",
        ),
        (
            "node:Person",
            {"name": ["a"], "born": ["soon"]},
            "Person row 1, column 'born': expected Date, got \"soon\"",
        ),
        ("node:Person", {"name": ["a", None]}, "Person row 2: node Person is missing a non-null @key value"),
        (
            "node:Person",
            {"name": ["a", "b"], "id": ["a", "c"]},
            'Person row 2: node Person has id "c", but its @key',
        ),
        ("node:Point", {"x": [1.0, float("nan")]}, "Point row 2: key property 'x' must be a finite F64"),
        (
            "node:Strict",
            {"must": [None]},
            "Strict row 1: non-nullable property 'must' has null or invalid values",
        ),
        ("node:Strict", {"id": ["x"]}, "missing column 'must', which 'node:Strict' requires"),
        ("edge:Knows", {"from": ["a"]}, "'edge:Knows' requires exactly one of the columns 'to', 'dst'"),
        (
            "edge:Knows",
            {"from": ["a"], "to": ["b"], "src": ["a"]},
            "'edge:Knows' requires exactly one of the columns 'from'",
        ),
        (
            "edge:Knows",
            {"from": ["a", None], "to": ["b", "c"]},
            "Knows row 2, column 'src': must not be null",
        ),
    ],
)
def test_a_row_that_is_not_whole_is_refused(key: str, columns: dict[str, Any], message: str) -> None:
    assert refusal(key, columns).message.startswith(f"t: {message}")


def test_an_unknown_column_has_a_near_name_and_an_unknown_type_too() -> None:
    assert refusal("node:Person", {"nam": ["a"]}).hint == "did you mean `name`?"
    with pytest.raises(NotFound) as caught:
        read("node:Persn", {"name": ["a"]})
    assert caught.value.hint == "did you mean `node:Person`?"


@pytest.mark.parametrize(
    ("ages", "suffix"),
    [([1, "x"], ""), (["x", "y"], " (and 1 more row)"), (["x", 1, "y", "z"], " (and 2 more rows)")],
)
def test_read_table_in_memory_several_invalid_rows_reports_their_number(ages: list[Any], suffix: str) -> None:
    rows = [{"name": f"p{number}", "age": age} for number, age in enumerate(ages)]
    with pytest.raises(InvalidInput) as caught:
        list(read_typed_rows("node:Person", rows, CATALOG))
    first = ages.index("x") + 1
    assert caught.value.message == f"Person row {first}, column 'age': expected I32, got \"x\"{suffix}"


def test_rejected_rows_are_left_out_and_the_others_keep_their_places() -> None:
    rejected: list[Reject] = []
    table = pa.table(
        {
            "name": ["a", "b", None, "d", "e"],
            "age": [1.0, 1.5, 2.0, 3.0, 4.0],
            "id": ["a", "b", "c", "d", "x"],
        }
    )
    (batch,) = read("node:Person", table, on_reject=rejected.append)
    assert batch.rows["name"].to_pylist() == ["a", "d"]
    assert batch.places.to_pylist() == [1, 4]
    assert [reject.place for reject in rejected] == [2, 3, 5]
    assert rejected[0].record == {"name": "b", "age": 1.5, "id": "b"}


def test_batches_and_readers_are_counted_through() -> None:
    table = pa.table({"name": [f"p{index}" for index in range(10)]})
    for given in (table.to_reader(max_chunksize=4), iter(table.to_batches(max_chunksize=4))):
        found = list(read_table("node:Person", given, CATALOG))
        assert [batch.places.to_pylist() for batch in found] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    long = pa.table({"name": [str(index) for index in range(70_000)]})
    assert [batch.rows.num_rows for batch in read("node:Person", long)] == [65_536, 4_464]


# --- files --------------------------------------------------------------------------------------------------


def csv(text: str, key: str, **options: Any) -> list[InputBatch]:
    options.setdefault("source", None)
    return list(read_csv(io.BytesIO(text.encode()), TableInput(key, CATALOG, **options)))


def test_csv_cells_are_read_by_the_type_of_their_column() -> None:
    text = (
        "name,age,score,ok,born,seen\n"
        "007,30,1.5,True,1970-01-02,1970-01-01T00:00:01Z\n"
        '"a,\n""b""",,1e2,false,3,5\n'
    )
    (batch,) = csv(text, "node:Person")
    assert batch.rows["name"].to_pylist() == ["007", 'a,\n"b"']
    assert batch.rows["age"].to_pylist() == [30, None]
    assert batch.rows["score"].to_pylist() == [1.5, 100.0]
    assert batch.rows["ok"].to_pylist() == [True, False]
    assert batch.rows["born"].cast(pa.int32()).to_pylist() == [1, 3]
    assert batch.rows["seen"].cast(pa.int64()).to_pylist() == [1000, 5]


def test_an_empty_cell_is_null_and_a_quoted_one_is_the_empty_text() -> None:
    (batch,) = csv('must,id\n"",x\n', "node:Strict")
    assert batch.rows["must"].to_pylist() == [""]
    with pytest.raises(InvalidInput, match="row 2: non-nullable property 'must'"):
        csv("must,id\na,x\n,y\n", "node:Strict")


def test_lists_are_json_arrays_in_a_cell() -> None:
    (batch,) = csv(
        'tags,nums,v,days\n"[""a"",""b""]",[1],"[0.5,1]","[""1970-01-02""]"\n,[],,\n', "node:Thing"
    )
    assert batch.rows["tags"].to_pylist() == [["a", "b"], None]
    assert batch.rows["nums"].to_pylist() == [[1], []]
    assert batch.rows["v"].to_pylist() == [[0.5, 1.0], None]
    assert batch.rows["days"].to_pylist() == [[date(1970, 1, 2)], None]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("x,,,", "row 2, column 'i': expected I64, got \"x\""),
        ("0x1F,,,", "row 2, column 'i': expected I64, got \"0x1F\""),
        ("9223372036854775808,,,", "row 2, column 'i': value 9223372036854775808 exceeds I64"),
        ("1.0,,,", "row 2, column 'i': expected I64, got \"1.0\""),
        (",one,,", "row 2, column 'd': expected F64, got \"one\""),
        (",1e999,,", "row 2, column 'd': expected F64, got \"1e999\""),
        (",,[1", "row 2: expected 4 cells, got 3"),
        (",,[1],", "row 2, column 'v': vector property 'v' expects 2 dimensions, got 1"),
        (",,,nope", "row 2, column 'tags': expected [String], got \"nope\""),
    ],
)
def test_a_bad_cell_is_refused_with_its_row(row: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        csv(f"i,d,v,tags\n1,NaN,,\n{row}\n", "node:Thing")
    assert caught.value.message.startswith(f"Thing {message}")


def test_rows_of_another_width_are_rejected_and_counted() -> None:
    rejected: list[Reject] = []
    found = csv(
        "name,age\na,1\nb\nc,x\nd,4\ne,5,6\n", "node:Person", on_reject=rejected.append, source="f.csv"
    )
    assert [batch.places.to_pylist() for batch in found] == [[1, 4]]
    assert sorted(reject.place for reject in rejected) == [2, 3, 5]
    assert {reject.source for reject in rejected} == {"f.csv"}


def test_a_csv_without_a_header_or_with_other_columns_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Empty CSV file"):
        csv("", "node:Person")
    with pytest.raises(InvalidInput, match="unknown column 'nme' for 'node:Person'"):
        csv("nme\na\n", "node:Person")
    with pytest.raises(InvalidInput, match="duplicate column 'name'"):
        csv("name,name\na,b\n", "node:Person")


def test_parquet_is_read_in_batches(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"name": [f"p{index}" for index in range(70_000)]}), path)
    with path.open("rb") as stream:
        found = list(read_parquet(stream, TableInput("node:Person", CATALOG, str(path))))
    assert [batch.rows.num_rows for batch in found] == [65_536, 4_464]
    assert found[1].places[0].as_py() == 65_537
    assert found[0].source == str(path)


def test_a_file_that_is_not_what_it_says_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot read"):
        list(
            read_parquet(io.BytesIO(b"not parquet at all"), TableInput("node:Person", CATALOG, "odd.parquet"))
        )
