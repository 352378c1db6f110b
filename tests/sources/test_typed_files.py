"""Files with rows of one type: every format, wherever its files are, and what is wrong with them."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.budget.query_budget import QueryLimits, limit_query
from omnigraph.errors import InvalidInput, NotFound, OmnigraphError, ResourceLimit, StorageError
from omnigraph.sources.decoded_sizes import BATCH_BYTES, bounded_batches, parquet_batches
from omnigraph.sources.json import json_files, json_lines_arrow
from omnigraph.sources.json.json_array import parse_json_array
from omnigraph.sources.json.json_files import read_json_lines
from omnigraph.sources.json.line_blocks import line_blocks
from omnigraph.sources.mapping.mapping_reader import read_mapping
from omnigraph.sources.mapping.type_mapping import TypeMapping
from omnigraph.sources.readers import open_source
from omnigraph.sources.rejects import Reject
from omnigraph.sources.table_reader import TableInput
from omnigraph.store.objects.object_store import ObjectStore
from tests.catalog.test_identity import catalog_of
from tests.support.places import fresh_memory

CATALOG = catalog_of("""
node Person {
  name: String @key  age: I32?  born: Date?  seen: DateTime?  score: F64?  tags: [String]?  v: Vector(2)?
}
edge Knows: Person -> Person { since: Date?  weight: F32? }
""")
SEEN = datetime(2020, 1, 31, 12, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {
        "name": "Ann",
        "age": 7,
        "born": date(1990, 1, 2),
        "seen": SEEN,
        "score": 0.5,
        "tags": ["a"],
        "v": [1.0, 2.0],
    },
    {"name": "Bob", "age": None, "born": None, "seen": None, "score": None, "tags": None, "v": None},
]
TABLE = pa.Table.from_pylist(ROWS)


def optional(kind: Any) -> list[Any]:
    return ["null", kind]


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": optional("int")},
        {"name": "born", "type": optional({"type": "int", "logicalType": "date"})},
        {"name": "seen", "type": optional({"type": "long", "logicalType": "timestamp-millis"})},
        {"name": "score", "type": optional("double")},
        {"name": "tags", "type": optional({"type": "array", "items": "string"})},
        {"name": "v", "type": optional({"type": "array", "items": "float"})},
    ],
}


def text(row: dict[str, Any]) -> str:
    return json.dumps(row, default=lambda value: value.isoformat())


def write_avro(path: Path, schema: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, codec="deflate")


def cell(value: Any) -> str:
    if value is None:
        return ""
    found = json.dumps(value) if isinstance(value, list) else str(value)
    return '"' + found.replace('"', '""') + '"'


def write_csv(path: Path) -> None:
    lines = [",".join(map(cell, row.values())) for row in ROWS]
    path.write_text("\n".join([",".join(ROWS[0]), *lines]) + "\n")


def write_stream(path: Path) -> None:
    with pa.ipc.new_stream(path, TABLE.schema) as writer:
        writer.write_table(TABLE)


def packed(write: Callable[[Path], object]) -> Callable[[Path], object]:
    def write_packed(path: Path) -> None:
        write(path)
        path.write_bytes(gzip.compress(path.read_bytes()))

    return write_packed


WRITERS: dict[str, Callable[[Path], object]] = {
    "p.parquet": lambda path: pq.write_table(TABLE, path),
    "p.orc": lambda path: po.write_table(TABLE, path),
    "p.feather": lambda path: pf.write_feather(TABLE, path),
    "p.ipc": lambda path: pf.write_feather(TABLE, path, compression="zstd"),
    "p.arrow": write_stream,
    "p.avro": lambda path: write_avro(path, AVRO, ROWS),
    "p.ndjson": lambda path: path.write_text("".join(text(row) + "\n" for row in ROWS)),
    "p.jsonl.gz": lambda path: path.write_bytes(gzip.compress("\n".join(map(text, ROWS)).encode())),
    "p.json": lambda path: path.write_text("\n[" + ",\n".join(map(text, ROWS)) + "]\n"),
    "p.csv": write_csv,
    "p.csv.gz": packed(write_csv),
    "p.PARQUET.GZ": packed(lambda path: pq.write_table(TABLE, path)),
}


def read(source: Any, **options: Any) -> list[dict[str, Any]]:
    return [row for batch in open_source(source, CATALOG, **options) for row in batch.rows.to_pylist()]


def names(source: Any, **options: Any) -> list[str]:
    return [row["name"] for row in read({"Person": source}, **options)]


# --- formats ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    wanted = [{**row, "id": row["name"]} for row in ROWS]
    wanted[0]["seen"] = SEEN.replace(tzinfo=None)
    assert [dict(sorted(row.items())) for row in read({"Person": path})] == [
        dict(sorted(row.items())) for row in wanted
    ]


@pytest.mark.parametrize("name", [name for name in WRITERS if "csv" not in name])
def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x00nothing of the kind")
    with pytest.raises(OmnigraphError) as caught:
        read({"Person": path})
    assert isinstance(caught.value, InvalidInput | StorageError)
    assert caught.value.details["source"] == str(path)


@pytest.mark.parametrize("name", ["p.avro", "p.parquet", "p.orc", "p.feather"])
def test_a_torn_file_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    path.write_bytes(path.read_bytes()[:-20])
    # Arrow says of some damages that the system could not read the file.
    with pytest.raises((InvalidInput, StorageError), match=rf"cannot read `.*{name}`"):
        read({"Person": path})


def test_avro_without_its_library_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.avro"
    WRITERS["p.avro"](path)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(InvalidInput, match=r"p\.avro` is Avro, which needs fastavro; .*'omnigraph\[avro\]'$"):
        read({"Person": path})


def test_avro_values_of_several_types_are_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "p.avro"
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    fields = [{"name": "name", "type": "string"}, {"name": "age", "type": ["null", "int", "string", amount]}]
    given: list[Any] = [7, Decimal("8.00"), "9", None]
    rows = [{"name": f"p{number}", "age": age} for number, age in enumerate(given)]
    write_avro(path, {**AVRO, "fields": fields}, rows)
    rejects: list[Reject] = []
    found = read({"Person": path}, on_reject=rejects.append)
    assert [(row["name"], row["age"]) for row in found] == [("p0", 7), ("p1", 8), ("p3", None)]
    assert [(item.place, item.message) for item in rejects] == [
        (3, "Person row 3, column 'age': expected I32, got \"9\"")
    ]


# --- where files are ----------------------------------------------------------------------------------------


def put(path: Path, *people: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"name": name}) + "\n" for name in people))


def test_folders_and_patterns_hold_files_of_any_format(tmp_path: Path) -> None:
    put(tmp_path / "country=AT" / "day=1" / "part-0.ndjson", "Ann")
    put(tmp_path / "country=CH" / "day=1" / "part-0.json", "Bob")
    pq.write_table(pa.table({"name": ["Cy"]}), tmp_path / "z.parquet")
    put(tmp_path / "_temporary" / "0" / "part-9.ndjson", "half written")
    put(tmp_path / "country=AT" / "_SUCCESS")
    (tmp_path / "notes.txt").write_text("no rows")
    assert names(tmp_path) == ["Ann", "Bob", "Cy"]
    assert names(str(tmp_path / "**" / "part-0.*")) == ["Ann", "Bob"]
    assert names(str(tmp_path / "country=*" / "*" / "*.json")) == ["Bob"]
    with pytest.raises(InvalidInput, match=r"unknown format of `.*notes\.txt`"):
        names(str(tmp_path / "*.*"))
    (tmp_path / "none").mkdir()
    with pytest.raises(NotFound, match=r"has no file with \.csv, \.ndjson"):
        names(tmp_path / "none")


def test_an_object_store_has_the_same_folders_and_patterns() -> None:
    uri = fresh_memory()
    store = ObjectStore.open(uri, {})
    for key, name in [("in/a=1/x.ndjson", "Ann"), ("in/a=2/y.json", "Bob"), ("in/_temporary/z.json", "half")]:
        store.put(key, json.dumps({"name": name}).encode())
    buffer = io.BytesIO()
    po.write_table(pa.table({"name": ["Cy"]}), buffer)
    store.put("in/c.orc", buffer.getvalue())
    assert names(f"{uri}/in/") == ["Ann", "Bob", "Cy"]
    assert names(f"{uri}/in/**/*.json", mapping=None)[-1:] == ["Bob"]
    assert names(f"{uri}/in/c.orc") == ["Cy"]


def test_a_mapping_says_the_format_of_files_whose_names_do_not(tmp_path: Path) -> None:
    put(tmp_path / "out" / "000000_0", "Ann")
    put(tmp_path / "out" / "000001_0", "Bob")
    put(tmp_path / "out" / "_SUCCESS")
    mapping = read_mapping({"Person": {"format": "json"}}, CATALOG)
    assert names(tmp_path / "out", mapping=mapping) == ["Ann", "Bob"]
    assert names(tmp_path / "out" / "000001_0", mapping=mapping) == ["Bob"]
    # Where some files have the name of the format, they are meant.
    put(tmp_path / "out" / "c.ndjson", "Cy")
    assert names(tmp_path / "out", mapping=mapping) == ["Cy"]


# --- JSON ---------------------------------------------------------------------------------------------------


def test_an_array_tells_elements_by_number_and_bad_json_by_line(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text('[{"name": "a"},\n {"name": 5},\n 7, {"name": "b", "x": 1}]')
    rejects: list[Reject] = []
    assert names(path, on_reject=rejects.append) == ["a"]
    assert [(item.place, item.message, item.record) for item in rejects] == [
        (2, "Person row 2, column 'name': expected String, got 5", {"name": 5}),
        (3, "Person row 3: expected an object, got 7", 7),
        (4, "Person row 4: unknown column 'x' for 'node:Person'", {"name": "b", "x": 1}),
    ]
    path.write_text('[{"name": "a"},\n\n {"name" 5}]')
    with pytest.raises(
        InvalidInput, match="invalid strict JSON at line 3: Expecting ':' delimiter"
    ) as caught:
        names(path, on_reject=rejects.append)
    assert caught.value.details == {"line": 3, "source": str(path)}


def test_array_element_that_is_too_long_is_refused() -> None:
    text = b'[{"name": "a"}, {"name": "' + b"b" * 300 + b'"}]'
    elements = parse_json_array([text], "p.json", limit=100, read_bytes=64)
    assert next(elements) == {"name": "a"}
    with pytest.raises(ResourceLimit, match="row 2: longer than 100 characters"):
        next(elements)


def test_array_is_read_element_by_element() -> None:
    sent = []

    def parts() -> Iterator[bytes]:
        yield b"["
        for number in range(1_000):
            sent.append(number)
            yield b'{"name": "p%d"},' % number
        yield b'{"name": "last"}]'

    elements = parse_json_array(parts(), read_bytes=64)
    assert next(elements) == {"name": "p0"}
    assert len(sent) < 20
    assert len(list(elements)) == 1_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1, 2", "line 1: Expecting ',' delimiter at column 6"),
        ("[1\n 2]", "line 2: Expecting ',' delimiter at column 2"),
        ("[1] 2", "line 1: Extra data at column 5"),
        ("[1,]", "line 1: Expecting value at column 4"),
        ('[\n{"a": tru}]', "line 2: Expecting value at column 7"),
        ('[{"a": 1, "a": 2}]', "line 1: duplicate JSON member 'a'"),
        ("[NaN]", "line 1: NaN is not a JSON number"),
        ("[" * 100_000, "line 1: nested too deeply"),
    ],
)
@pytest.mark.parametrize("read_bytes", [1, 64])
def test_invalid_array_reports_line_and_column(text: str, reason: str, read_bytes: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        list(parse_json_array([text.encode()], read_bytes=read_bytes))
    assert caught.value.message == f"invalid strict JSON at {reason}"


@pytest.mark.parametrize("keep_dictionary", [True, False])
def test_parquet_with_a_long_value_in_many_rows_is_read_in_small_batches(
    tmp_path: Path, *, keep_dictionary: bool
) -> None:
    rows = 3_000
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["x" * 200_000])
    table = pa.table({"name": [f"p{number}" for number in range(rows)], "text": values})
    options = {} if keep_dictionary else {"store_schema": False}
    pq.write_table(table, tmp_path / "p.parquet", compression="zstd", **options)
    assert (tmp_path / "p.parquet").stat().st_size < 100_000
    with (tmp_path / "p.parquet").open("rb") as stream:
        opened = pq.ParquetFile(stream)
        largest = found = 0
        for batch in bounded_batches(parquet_batches(stream, opened, range(1), rows)):
            found += batch.num_rows
            largest = max(largest, batch.num_rows)
    assert found == rows
    assert largest * 200_000 <= BATCH_BYTES


def test_decoded_bytes_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p.json.gz").write_bytes(gzip.compress(json.dumps([{"name": "a" * 3_000_000}]).encode()))
    with limit_query(QueryLimits(decoded=1_000_000)), pytest.raises(ResourceLimit) as caught:
        names(tmp_path / "p.json.gz")
    assert caught.value.details["resource"] == "load_decoded_bytes"


def test_a_line_that_is_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.ndjson"
    path.write_text('{"name": "a"}\n{"name": "' + "b" * 200 + '"}\n{"name": "c"}\n')
    monkeypatch.setattr(json_files, "line_blocks", lambda stream, size: line_blocks(stream, size, 100))
    rejects: list[Reject] = []
    assert names(path, on_reject=rejects.append) == ["a", "c"]
    assert [item.place for item in rejects] == [2]


values = st.sampled_from(
    [
        "null", "0", "-0", "7", "7.0", "1e2", "2147483648", "9223372036854775808", "-0.0", "1.5", "1e400",
        '"x"', '""', '"2020-01-31"', '"2020-02-30"', '"2020-01-31T12:00:00Z"', '"é\\u00e9"', '"\\ud800"', "true",
        "[]", '["a"]', '["a",null]', "[1,2]", "[1.5,-0]", "[1]", '{"y":1}', '{"y":"z"}', '{"y":1,"y":2}', "NaN",
    ]
)  # fmt: skip
NAMES = st.sampled_from(["name", "age", "born", "score", "tags", "v", "id", "x", "nest", "nest.y"])
fields = st.lists(st.tuples(NAMES, values), max_size=4)
bodies = st.one_of(
    fields.map(lambda pairs: "{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}"),
    # One thing at a time: the fast way gives up on a line that is wrong anyway.
    st.tuples(NAMES, values).map(lambda pair: f'{{"name":"a","{pair[0]}":{pair[1]}}}'),
    st.sampled_from(["", "[]", "{", '{"name":"a"}{"name":"b"}', ' {"name":"a"} ', '{"name":"q"}\r']),
)
MAPPED = TypeMapping(
    "node:Person",
    columns={"age": "nest.y"},
    casts={"born": "%Y-%m-%d"},
    constants={"score": 1.5},
    ignore=("x", "score", "age"),
    null_values=("x",),
)


def lines_read(data: bytes, mapping: TypeMapping | None, size: int) -> tuple[list[Any], list[Any]]:
    rejects: list[Reject] = []
    file = TableInput("node:Person", CATALOG, "f", rejects.append, mapping)
    found = [
        (place, repr(row))
        for batch in read_json_lines([data], file, block_bytes=size)
        for place, row in zip(batch.places.to_pylist(), batch.rows.to_pylist(), strict=True)
    ]
    return found, [(item.place, item.message, item.record) for item in rejects]


@settings(max_examples=120, deadline=None)
@given(
    bodies=st.lists(bodies, max_size=4),
    mapping=st.sampled_from([None, MAPPED, TypeMapping("node:Person", ignores_others=True)]),
    size=st.sampled_from([1, 40, 1 << 20]),
    is_ended=st.booleans(),
)
def test_lines_read_at_once_are_lines_read_one_by_one(
    bodies: list[str], mapping: TypeMapping | None, size: int, is_ended: bool
) -> None:
    data = ("\n".join(bodies) + "\n" * is_ended).encode()
    found = lines_read(data, mapping, size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines_arrow, "MAX_FAILURES", 0)
        assert lines_read(data, mapping, 1 << 20) == found


@pytest.mark.parametrize(
    ("text", "mapping"),
    [
        ('{"name":"a","score":-0}', None),
        ('{"name":"a","v":[1,-0]}', None),
        ('{"name":"a","score":1e400}', None),
        ('{"name":"a","score":NaN}', None),
        ('{"name":"a","name":"b"}', None),
        ('{"name":"a"} {"name":"b"}', None),
        ('{"name":"a"},\n{"name":"b"}', None),
        ('{"name":"a\0"}', None),
        ('{"name":"a","x":NaN}', MAPPED),
        ('{"name":"a","x":1,"x":2}', MAPPED),
        ('{"name":"a","nest.y":1}\n{"name":"b","nest":{"y":2}}', MAPPED),
        ('{"name":"a","nest":"{\\"y\\": 3}"}', MAPPED),
        ('{"name":"x"}', MAPPED),
        ('{"name":"a","unknown":1}', MAPPED),
        ('{"name":"a","id":"b"}', None),
        ('{"name":"a","born":"2020-02-30"}', MAPPED),
    ],
)
def test_what_the_fast_way_would_read_differently_is_left_alone(
    text: str, mapping: TypeMapping | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With an end, so that all lines are in one block.
    data = f"{text}\n".encode()
    found = lines_read(data, mapping, 1 << 20)
    monkeypatch.setattr(json_lines_arrow, "MAX_FAILURES", 0)
    assert lines_read(data, mapping, 1 << 20) == found


def test_good_lines_take_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_files, "decode_line", lambda *_: pytest.fail("read one by one"))
    nest = '{"name":"a","nest":{"y":1,"z":0},"born":"2020-01-31","x":[1]}\n'
    assert len(lines_read(nest.encode() * 3, MAPPED, 1 << 20)[0]) == 3
    plain = '{"name":"a","age":1,"born":18000,"score":1,"tags":["a"],"v":[1,2]}\n'
    assert len(lines_read(plain.encode() * 3, None, 1 << 20)[0]) == 3


def test_edges_in_lines_have_their_ends_under_either_name(tmp_path: Path) -> None:
    path = tmp_path / "k.ndjson"
    path.write_text(
        '{"from":"a","to":"b","weight":0.5}\n{"src":"c","dst":"d"}\n{"from":"a","src":"b","to":"c"}\n{"from":"a"}\n'
    )
    rejects: list[Reject] = []
    found = read({"Knows": path}, on_reject=rejects.append)
    assert [(row["src"], row["dst"], row["weight"]) for row in found] == [("a", "b", 0.5), ("c", "d", None)]
    assert [item.message for item in rejects] == [
        "Knows line 3: only one of 'from' and 'src' is allowed",
        "Knows line 4, column 'dst': must not be null",
    ]


# --- refusals in order --------------------------------------------------------------------------------------


def test_the_first_bad_row_of_a_file_is_the_one_that_is_told() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.csv"
        for row, message in [
            ("b,1,c", 'Person row 1: node Person has id "c", but its @key gives "b"'),
            ("b,1", "Person row 1: expected 3 cells, got 2"),
            ("b,x,b", "Person row 1, column 'age': expected I32, got \"x\""),
        ]:
            path.write_text(f"name,age,id\n{row}\nd,x,d\ne,1\nf,1,g\n")
            with pytest.raises(InvalidInput) as caught:
                read({"Person": path})
            assert caught.value.message == f"{path}: {message}"
            rejects: list[Reject] = []
            read({"Person": path}, on_reject=rejects.append)
            assert [item.place for item in rejects] == [1, 2, 3, 4]
