"""The strict reader: what its records become, every refusal by its words, and that its two lanes are one reader."""

from __future__ import annotations

import base64
import io
import json
import math
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.columns import logical_schema
from omnigraph.errors import InvalidInput, OmnigraphError, ResourceLimit
from omnigraph.sources.json import ndjson_columns
from omnigraph.sources.json.line_blocks import LINE_BYTES, line_blocks
from omnigraph.sources.json.ndjson import read_ndjson
from omnigraph.sources.json.permissive import read_permissive
from omnigraph.sources.rejects import Reject
from omnigraph.sources.row_batch import InputBatch
from tests.catalog.test_identity import catalog_of

CATALOG = catalog_of("""
node Person { name: String @key  age: I32?  tags: [String]? }
node Event { day: Date  slot: U32  at: DateTime?  @key(slot, day) }
node Thing {
  b: Bool?  i: I32?  l: I64?  u: U32?  w: U64?  f: F32?  d: F64?  day: Date?  at: DateTime?
  v: Vector(3)?  blob: Blob?  kind: enum(a, b)?
  ls: [String]?  li: [I64]?  lf: [F32]?  ld: [Date]?  lt: [DateTime]?  lb: [Bool]?
}
node Strict { must: I64 }
edge Knows: Person -> Person { since: Date? }
edge Likes: Person -> Thing
""")


def read(text: str | bytes, **options: Any) -> list[InputBatch]:
    data = text if isinstance(text, bytes) else text.encode()
    return list(read_ndjson(io.BytesIO(data), CATALOG, **options))


def rows(text: str | bytes) -> list[dict[str, Any]]:
    return [row for batch in read(text) for row in batch.rows.to_pylist()]


def refusal(text: str | bytes) -> OmnigraphError:
    with pytest.raises(OmnigraphError) as caught:
        read(text, source="here.ndjson")
    assert caught.value.message.startswith("here.ndjson: ")
    return caught.value


def line(**record: Any) -> str:
    return json.dumps(record) + "\n"


def thing(**data: Any) -> str:
    return line(type="Thing", data=data)


# --- records ------------------------------------------------------------------------------------------------


def test_nodes_and_edges_become_typed_rows_with_their_lines() -> None:
    text = (
        line(type="Person", data={"name": "Ann", "age": 30})
        + "\n  \t\r\n"
        + line(edge="kNOWS", **{"from": "Ann", "to": "Bob"}, data={"id": "k1", "since": "2020-01-31"})
        + line(type="Person", data={"name": "Bob"}).replace("\n", "\r\n")
        + line(edge="Knows", **{"from": "Bob", "to": "Ann"}).rstrip("\n")
    )
    found = {batch.key: batch for batch in read(text + "\n", source="x")}
    people, knows = found["node:Person"], found["edge:Knows"]
    assert people.rows.schema == logical_schema(CATALOG.tables["node:Person"])
    assert people.rows.to_pylist() == [
        {"id": "Ann", "age": 30, "name": "Ann", "tags": None},
        {"id": "Bob", "age": None, "name": "Bob", "tags": None},
    ]
    assert (people.places.to_pylist(), people.source) == ([1, 5], "x")
    assert knows.rows["id"].to_pylist() == ["k1", None]
    assert knows.rows["src"].to_pylist() == ["Ann", "Bob"]
    assert knows.rows["since"].cast(pa.int32()).to_pylist() == [18292, None]
    assert knows.places.to_pylist() == [4, 6]


def test_the_id_of_a_composite_key_is_derived_and_may_be_written_out() -> None:
    (row,) = rows(line(type="Event", data={"id": '["1","7"]', "day": "1970-01-02", "slot": 7}))
    assert row["id"] == '["1","7"]'


def test_integers_beyond_a_double_keep_every_digit() -> None:
    text = thing(l=-(2**63), w=2**64 - 1, li=[2**53 + 1, 2**63 - 1])
    (row,) = rows(text)
    assert (row["l"], row["w"], row["li"]) == (-(2**63), 2**64 - 1, [2**53 + 1, 2**63 - 1])


def test_dates_are_read_from_texts_and_from_the_integers_of_an_export() -> None:
    found = rows(
        thing(day=30, at=1500, ld=[1], lt=[2]) + thing(day="1970-01-31", at="1970-01-01T00:00:01.5Z")
    )
    assert found[0]["day"] == found[1]["day"]
    assert found[0]["at"] == found[1]["at"]


def test_batches_are_bounded_by_bytes_and_keep_the_order() -> None:
    text = "".join(line(type="Person", data={"name": f"p{index:04}"}) for index in range(1000))
    found = read(text, batch_bytes=2_000)
    assert max(batch.rows.num_rows for batch in found) < 60
    assert [place for batch in found for place in batch.places.to_pylist()] == list(range(1, 1001))


def test_lines_that_are_spelled_differently_stay_in_order() -> None:
    spellings = ['{"type":"Thing",', '{"type": "Thing",', '{"type":"Thing",', '{ "type":"Thing",'] * 2
    (batch,) = read("".join(f'{head}"data":{{"id":"{index}"}}}}\n' for index, head in enumerate(spellings)))
    assert batch.rows["id"].to_pylist() == [str(index) for index in range(8)]
    assert batch.places.to_pylist() == list(range(1, 9))


def test_batches_are_bounded_by_rows() -> None:
    text = line(type="Person", data={"name": "Ann"}) * 70_000
    assert [batch.rows.num_rows for batch in read(text)] == [65_536, 70_000 - 65_536]


def test_an_empty_input_has_no_batches() -> None:
    assert read("") == read("\n\n") == []


def test_a_stream_may_be_handed_over_in_any_pieces() -> None:
    text = (line(type="Person", data={"name": "Änn"}) * 3).encode()
    pieces = [text[index : index + 1] for index in range(len(text))]
    (batch,) = read_ndjson(pieces, CATALOG)
    assert batch.rows.num_rows == 3


# --- refusals -----------------------------------------------------------------------------------------------

PERSON = '{"type":"Person","data":{"name":"Ann"}}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "invalid strict JSON at line 2: Expecting property name"),
        ('{"type":"Person"} {}', "invalid strict JSON at line 2: Extra data"),
        (PERSON.strip() * 2, "invalid strict JSON at line 2: Extra data"),
        ('{"type":"Person","type":"Person"}', "invalid strict JSON at line 2: duplicate JSON member 'type'"),
        ('{"type":"Person","data":{"name":"a","name":"a"}}', "duplicate JSON member 'name'"),
        ('{"type":"Person","data":{"x":[{"k":1,"k":2}]}}', "duplicate JSON member 'k'"),
        ('{"type":"Thing","data":{"d":NaN}}', "invalid strict JSON at line 2: NaN is not a JSON number"),
        ('{"type":"Thing","data":{"d":-Infinity}}', "-Infinity is not a JSON number"),
        ('{"type":"Person","data":{"name":"\\ud800"}}', "invalid strict JSON at line 2: unpaired surrogate"),
        ("[1]", "line 2: graph batch record must be one JSON object"),
        ("null", "line 2: graph batch record must be one JSON object"),
        ("{}", "line 2: graph batch record must contain exactly one of 'type' or 'edge'"),
        (
            '{"type":"Person","edge":"Knows"}',
            "line 2: graph batch record must contain exactly one of 'type' or 'edge'",
        ),
        ('{"type":"Person","_rowid":1}', "line 2: top-level field '_rowid' is reserved physical state"),
        ('{"type":"Person","x":1}', "line 2: unknown top-level graph batch field 'x'"),
        ('{"type":"Person","from":"a"}', "line 2: unknown top-level graph batch field 'from'"),
        ('{"type":7}', "line 2: graph batch field 'type' must be a string, got 7"),
        (
            '{"edge":"Knows","from":null,"to":"b"}',
            "line 2: graph batch field 'from' must be a string, got null",
        ),
        ('{"edge":"Knows","from":"a"}', "line 2: graph batch record requires field 'to'"),
        ('{"type":"Person","data":null}', "line 2: graph batch field 'data' must be an object, got null"),
        ('{"type":"Person","data":[1]}', "line 2: graph batch field 'data' must be an object, got [1]"),
        ('{"type":"person"}', "line 2: unknown node type 'person'"),
        ('{"edge":"Know","from":"a","to":"b"}', "line 2: unknown edge type 'Know'"),
        (
            '{"edge":"Knows","from":"a","to":"b","data":{"src":"a"}}',
            "line 2: edge data field 'src' is reserved structural state",
        ),
        ('{"type":"Person","data":{"_tombstone":1}}', "input field '_tombstone' is reserved physical state"),
        ('{"type":"Person","data":{"nam":"a"}}', "unknown input field 'nam' for 'node:Person'"),
        (
            '{"type":"Thing","data":{"id":7}}',
            "input entity of type 'Thing' field 'id' must be a string, got 7",
        ),
        (
            '{"type":"Thing","data":{"id":null}}',
            "input entity of type 'Thing' field 'id' must be a string, got null",
        ),
        ('{"type":"Person","data":{}}', "line 2: node Person is missing a non-null @key value"),
        ('{"type":"Person","data":{"name":null}}', "line 2: node Person is missing a non-null @key value"),
        ('{"type":"Person","data":{"name":"a","id":"b"}}', 'node Person has id "b", but its @key gives "a"'),
        (
            '{"type":"Thing","data":{"v":[1,2]}}',
            "line 2: vector property 'v' expects 3 dimensions, got 2",
        ),
        (
            '{"type":"Thing","data":{"v":[1,"x",2]}}',
            "vector property 'v' elements must be numeric, got \"x\"",
        ),
        (
            '{"type":"Thing","data":{"v":[1,null,2]}}',
            "vector property 'v' elements must be numeric, got null",
        ),
        ('{"type":"Thing","data":{"v":[1,1e39,2]}}', "vector property 'v' elements must be finite"),
        ('{"type":"Strict","data":{"must":null}}', "line 2: non-nullable property 'must' has null"),
        ('{"type":"Strict"}', "line 2: non-nullable property 'must' has null or invalid values"),
        ('{"type":"Thing","data":{"i":3.0}}', "Thing line 2, property 'i': expected I32, got 3.0"),
        ('{"type":"Thing","data":{"i":1e2}}', "property 'i': expected I32, got 100.0"),
        ('{"type":"Thing","data":{"i":"3"}}', "property 'i': expected I32, got \"3\""),
        ('{"type":"Thing","data":{"i":true}}', "property 'i': expected I32, got true"),
        ('{"type":"Thing","data":{"i":2147483648}}', "property 'i': value 2147483648 exceeds I32"),
        ('{"type":"Thing","data":{"w":18446744073709551616}}', "value 18446744073709551616 exceeds U64"),
        ('{"type":"Thing","data":{"u":-1}}', "property 'u': value -1 exceeds U32"),
        ('{"type":"Thing","data":{"d":1e400}}', "property 'd': value Infinity exceeds F64"),
        ('{"type":"Thing","data":{"f":3.5e38}}', "property 'f': value 3.5e+38 exceeds F32"),
        ('{"type":"Thing","data":{"d":"1"}}', "property 'd': expected F64, got \"1\""),
        ('{"type":"Thing","data":{"b":1}}', "property 'b': expected Bool, got 1"),
        ('{"type":"Thing","data":{"kind":1}}', "property 'kind': expected enum(a, b), got 1"),
        ('{"type":"Thing","data":{"day":"2023-02-29"}}', "property 'day': expected Date, got \"2023-02-29\""),
        ('{"type":"Thing","data":{"day":2147483648}}', "property 'day': value 2147483648 exceeds Date"),
        ('{"type":"Thing","data":{"day":2932897}}', "property 'day': value 2932897 exceeds Date"),
        ('{"type":"Thing","data":{"day":-719163}}', "property 'day': value -719163 exceeds Date"),
        ('{"type":"Thing","data":{"at":253402300800000}}', "'at': value 253402300800000 exceeds DateTime"),
        ('{"type":"Thing","data":{"lt":[0,-62135596800001]}}', "value -62135596800001 exceeds DateTime"),
        ('{"type":"Thing","data":{"at":1.5}}', "property 'at': expected DateTime, got 1.5"),
        ('{"type":"Thing","data":{"li":[1,null]}}', "list property 'li' elements must not be null"),
        ('{"type":"Thing","data":{"li":[1,2.5]}}', "property 'li': expected [I64], got [1,2.5]"),
        ('{"type":"Thing","data":{"li":1}}', "property 'li': expected [I64], got 1"),
        ('{"type":"Thing","data":{"blob":"base64:*"}}', "invalid `base64:` payload"),
    ],
)
def test_a_bad_record_is_refused_in_the_words_of_the_language(text: str, message: str) -> None:
    error = refusal(PERSON + text + "\n" + PERSON)
    assert message in error.message
    assert "line 2" in error.message
    assert isinstance(error, InvalidInput)
    assert (error.details["line"], error.details["source"]) == (2, "here.ndjson")


def test_bytes_that_are_not_utf8_are_refused() -> None:
    error = refusal(PERSON.encode() + b'{"type":"Person","data":{"name":"\xff"}}\n')
    assert error.message == "here.ndjson: invalid strict JSON at line 2: invalid UTF-8 at byte 34"


def test_a_byte_order_mark_is_no_json() -> None:
    assert "invalid strict JSON at line 1" in refusal(b"\xef\xbb\xbf" + PERSON.encode()).message


def test_an_object_over_two_lines_is_no_record() -> None:
    assert "invalid strict JSON at line 1" in refusal('{"type":"Person",\n"data":{"name":"Ann"}}\n').message


def test_two_objects_on_a_line_are_refused_even_where_another_line_has_half_of_none() -> None:
    text = PERSON.rstrip() + PERSON + "\n" + PERSON
    assert "invalid strict JSON at line 1: Extra data" in refusal(text).message


def test_the_near_name_is_a_hint() -> None:
    assert refusal('{"type":"Person","data":{"name":"a","agee":1}}').hint == "did you mean `age`?"
    assert refusal('{"type":"person"}').hint == "did you mean `Person`?"


def test_a_line_may_be_as_long_as_the_limit_and_no_longer() -> None:
    def padded(size: int) -> Iterator[bytes]:
        yield PERSON.encode()
        yield b'{"type":"Person","data":{"name":"x"}'
        for _ in range((size - 37) // 65_536):
            yield b" " * 65_536
        yield b" " * ((size - 37) % 65_536)
        yield b"}\r\n" + PERSON.encode()

    found = list(read_ndjson(padded(LINE_BYTES), CATALOG))
    assert [place for batch in found for place in batch.places.to_pylist()] == [1, 2, 3]
    with pytest.raises(ResourceLimit, match="line 2: the line is longer than") as caught:
        list(read_ndjson(padded(LINE_BYTES + 1), CATALOG))
    assert caught.value.details["resource"] == "graph_batch_line_bytes"
    rejected: list[Reject] = []
    kept = list(read_ndjson(padded(LINE_BYTES + 1), CATALOG, on_reject=rejected.append))
    assert [place for batch in kept for place in batch.places.to_pylist()] == [1, 3]
    assert [reject.place for reject in rejected] == [2]


@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 9), st.booleans())
@settings(max_examples=150, deadline=None)
def test_blocks_keep_every_line_within_the_limit_and_number_them_all(
    lengths: list[int], size: int, ended: bool
) -> None:
    lines = [bytes([97 + index]) * length for index, length in enumerate(lengths)]
    data = b"\n".join(lines) + (b"\n" if ended else b"")
    found: dict[int, bytes | None] = {}
    for block in line_blocks(io.BytesIO(data), size, limit=6):
        if block.too_long:
            found[block.first] = None
        else:
            for number, text in enumerate(block.data.split(b"\n"), block.first):
                assert found.get(number, b"") == b""
                found[number] = text
    wanted = dict(enumerate((None if len(text) > 6 else text for text in lines), 1))
    assert {number: text for number, text in found.items() if text != b""} == {
        number: text for number, text in wanted.items() if text != b""
    }


def test_no_more_of_a_line_is_held_than_the_limit() -> None:
    tracemalloc.start()
    found = list(line_blocks((b"x" * 100_000 for _ in range(50)), 100_000, limit=300_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [(block.first, block.too_long) for block in found] == [(1, True)]
    assert peak < 1_500_000


def test_rejected_records_are_handed_over_and_the_others_stay() -> None:
    rejected: list[Reject] = []
    text = PERSON + '{"type":"Person","data":{"nam":"é"}}\r\n' + "x\n" + PERSON
    found = read(text, source="s", on_reject=rejected.append)
    assert [batch.places.to_pylist() for batch in found] == [[1, 4]]
    assert [reject.to_json() for reject in rejected] == [
        {
            "source": "s",
            "line": 2,
            "type": "Person",
            "id": None,
            "rule": "record",
            "reason": "unknown input field 'nam' for 'node:Person'",
            "error": "line 2: unknown input field 'nam' for 'node:Person'",
            "record": '{"type":"Person","data":{"nam":"é"}}',
        },
        {
            "source": "s",
            "line": 3,
            "type": None,
            "id": None,
            "rule": "record",
            "reason": "Expecting value at column 1",
            "error": "invalid strict JSON at line 3: Expecting value at column 1",
            "record": "x",
        },
    ]


# --- any typed record, and the two lanes --------------------------------------------------------------------


TEXT = st.text(max_size=6)
I64S = st.integers(-(2**63), 2**63 - 1)
DAYS = st.integers(-700_000, 2_900_000)
MILLIS = st.integers(-62_135_596_800_000, 253_402_300_799_999)
F32S = st.floats(width=32, allow_nan=False, allow_infinity=False)
F64S = st.floats(allow_nan=False, allow_infinity=False)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "b": st.booleans(),
    "i": st.integers(-(2**31), 2**31 - 1),
    "l": I64S,
    "u": st.integers(0, 2**32 - 1),
    "w": st.integers(0, 2**64 - 1),
    "f": F32S,
    "d": F64S,
    "day": DAYS,
    "at": MILLIS,
    "v": st.lists(F32S, min_size=3, max_size=3),
    "kind": st.sampled_from(["a", "b"]),
    "ls": st.lists(TEXT, max_size=3),
    "li": st.lists(I64S, max_size=3),
    "lf": st.lists(F32S, max_size=3),
    "ld": st.lists(DAYS, max_size=3),
    "lt": st.lists(MILLIS, max_size=3),
    "lb": st.lists(st.booleans(), max_size=3),
    "blob": st.binary(max_size=5) | TEXT.filter(lambda text: not text.startswith("base64:")),
}
THINGS = st.lists(
    st.fixed_dictionaries({}, optional={k: st.none() | v for k, v in VALUES.items()}), max_size=4
)


def stored(rows_: pa.Table) -> list[dict[str, Any]]:
    """Rows as plain values: dates as their integers, blobs as their bytes or address."""
    found = {}
    for name in rows_.column_names:
        column = rows_[name].combine_chunks()
        kinds = {"day": pa.int32(), "at": pa.int64(), "ld": pa.list_(pa.int32()), "lt": pa.list_(pa.int64())}
        values = column.cast(kinds[name]).to_pylist() if name in kinds else column.to_pylist()
        if name == "blob":
            values = [
                value and (value["uri"] if value["data"] is None else value["data"]) for value in values
            ]
        found[name] = values
    return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]


@given(THINGS, st.booleans())
@settings(max_examples=120, deadline=None)
def test_any_typed_record_comes_back_as_it_was_written(things: list[dict[str, Any]], ascii_: bool) -> None:
    text = ""
    for item in things:
        data = dict(item)
        if isinstance(data.get("blob"), bytes):
            data["blob"] = "base64:" + base64.b64encode(data["blob"]).decode()
        text += json.dumps({"type": "Thing", "data": data}, ensure_ascii=ascii_) + "\n"
    found = [row for batch in read(text) for row in stored(batch.rows)]
    expected = [{**dict.fromkeys(["id", *VALUES]), **item} for item in things]
    assert found == expected


TOKENS = st.sampled_from(
    [
        "0",
        "-0",
        "-0.0",
        "1",
        "3.0",
        "1e2",
        "-1",
        "1e400",
        "1e39",
        "2147483648",
        "9007199254740993",
        '"a"',
        '"é"',
        '"2020-01-31"',
        '"1970-01-01T00:00:01Z"',
        '"base64:YQ=="',
        '"\\u0061"',
        '"\\ud800"',
        '"\\u0000"',
        '"a\tb"',
        "true",
        "null",
        "NaN",
        "Infinity",
        "[]",
        "[1,2,3]",
        "[1.5,2,-0]",
        '["a"]',
        "[null]",
        "{}",
        "[[1]]",
        "01",
        "",
    ]
)
NAMES = st.sampled_from(
    ["id", "i", "l", "w", "f", "d", "b", "day", "at", "v", "kind", "ls", "li", "lf", "x", "d\\u0061y"]
)
FIELDS = st.lists(st.tuples(NAMES, TOKENS), max_size=3).map(
    lambda fields: ",".join(f'"{name}":{token}' for name, token in fields)
)
LINES = st.one_of(
    FIELDS.map(lambda fields: f'{{"type":"Thing","data":{{{fields}}}}}'),
    FIELDS.map(lambda fields: f'{{"data":{{{fields}}},"type":"Thing"}}'),
    st.sampled_from(
        [
            PERSON.strip(),
            '{"type":"Person","data":{"name":"a","id":"a"}}',
            '{"type":"Person","data":{"name":"a","id":"b"}}',
            '{"type":"Event","data":{"day":"1970-01-02","slot":1}}',
            '{"edge":"Likes","from":"a","to":"b"}',
            '{"edge":"LIKES","from":"a","to":"b","data":{}}',
            '{"edge":"Likes","from":"a","to":"b","data":null}',
            '{"edge":"Knows","from":"a","to":"b","data":{"since":5}}',
            '{"type":"Thing"}',
            '{"type":"Thing","data":{}}{"type":"Thing","data":{}}',
            '{"type":"Thing","data":{}',
            "}",
            "",
            "\r",
            " ",
            "null",
            '{"type":"Thing","d\\u0061ta":null}',
        ]
    ),
)


def outcome(data: bytes, catalog: Catalog) -> tuple[dict[str, list[tuple[int, str]]], list[Reject]]:
    rejected: list[Reject] = []
    found: dict[str, list[tuple[int, str]]] = {}
    for batch in read_ndjson([data], catalog, on_reject=rejected.append):
        batch.rows.validate(full=True)
        assert batch.rows.schema == logical_schema(catalog.tables[batch.key])
        # As text, because it tells the zeros apart.
        moments = batch.rows.schema.get_field_index("at")
        # Python has no datetime for every integer that is one here.
        rows_ = (
            batch.rows
            if moments < 0
            else batch.rows.set_column(moments, "at", batch.rows["at"].cast(pa.int64()))
        )
        placed = zip(batch.places.to_pylist(), map(str, rows_.to_pylist()), strict=True)
        found.setdefault(batch.key, []).extend(placed)
    return found, rejected


@given(st.lists(LINES, max_size=4), st.booleans())
@settings(max_examples=300, deadline=None)
def test_the_column_lane_reads_what_the_record_lane_reads(lines: list[str], ended: bool) -> None:
    data = ("\n".join(lines) + ("\n" if ended else "")).encode()
    with pytest.MonkeyPatch.context() as patch:
        by_columns = outcome(data, CATALOG)
        patch.setattr(ndjson_columns, "MAX_FAILURES", 0)
        assert outcome(data, CATALOG) == by_columns


@pytest.mark.parametrize(
    "text",
    [
        PERSON * 3,
        PERSON + line(edge="Knows", **{"from": "Ann", "to": "Bob"}) * 2 + PERSON,
        '{"type":"Thing"}\n' + '{"type": "Thing"}\n' + '{"type":"Thing"}\n',
        thing(id="t", day=3, at=5, ld=[1], v=[1, 2, 3], f=0.1, blob="s3://x") * 2,
        thing(day="2020-01-31", at="2020-01-31", lf=[1.5], v=None) * 2,
        line(data={"name": "Ann"}, type="Person") + line(data={"name": "Bob"}, type="Person"),
        line(edge="Likes", **{"from": "Ann", "to": "Bob"}) * 2,
    ],
)
def test_ordinary_records_take_the_column_lane(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "omnigraph.sources.json.ndjson.decode_line", lambda *_: pytest.fail("the record lane was taken")
    )
    assert sum(batch.rows.num_rows for batch in read(text)) == text.count("\n")


def test_ids_that_begin_in_a_later_block_take_the_column_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "omnigraph.sources.json.ndjson.decode_line", lambda *_: pytest.fail("the record lane was taken")
    )
    blocks = [thing(i=1), thing(i=2, id="t"), thing(i=3)]
    found = [batch.rows.to_pylist() for batch in read_ndjson(map(str.encode, blocks), CATALOG, batch_bytes=1)]
    assert [(row["id"], row["i"]) for [row] in found] == [(None, 1), ("t", 2), (None, 3)]


def test_a_number_is_rounded_to_f32_in_one_way_whatever_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    # Half an ulp above 1 and a little: through a double it ties to 1, straight to float32 it would not.
    text = '{"type":"Thing","data":{"f":1.00000005960464477540}}\n'
    fast = rows(text)[0]["f"]
    monkeypatch.setattr(ndjson_columns, "MAX_FAILURES", 0)
    assert rows(text)[0]["f"] == fast == 1.0
    assert not math.isnan(fast)


@pytest.mark.parametrize(("token", "sign"), [("-0", 1.0), ("-0.0", -1.0), ("0", 1.0)])
def test_the_integer_zero_has_no_sign_and_the_float_keeps_its_own(token: str, sign: float) -> None:
    (row,) = rows(f'{{"type":"Thing","data":{{"d":{token},"v":[{token},1,2]}}}}\n')
    assert [math.copysign(1.0, value) for value in (row["d"], row["v"][0])] == [sign, sign]


def test_line_over_the_limit_because_of_base64_values_is_read() -> None:
    catalog = catalog_of("node Doc { name: String @key  body: Blob?  other: Blob? }")
    payload = b"QUJD" * (LINE_BYTES // 8)

    def lines() -> Iterator[bytes]:
        yield b'{"type":"Doc","data":{"name":"a"}}\n{"type":"Doc","data":{"name":"b","body":"base64:'
        yield payload
        yield b'","other": "base64:'
        yield payload
        yield payload + b'"}}\n{"type":"Doc","data":{"name":"c"}}'

    for found in (read_ndjson(lines(), catalog), read_permissive(lines(), catalog)):
        rows = {
            name: (body.as_py() and len(body.as_py()["data"]), other.as_py() and len(other.as_py()["data"]))
            for batch in found
            for name, body, other in zip(
                batch.rows["name"].to_pylist(), batch.rows["body"], batch.rows["other"], strict=True
            )
        }
        size = len(payload) * 3 // 4
        assert rows == {"a": (None, None), "b": (size, 2 * size), "c": (None, None)}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=5), st.integers(1, 30))
@settings(max_examples=150, deadline=None)
def test_blocks_count_no_base64_values_towards_the_limit(lengths: list[tuple[int, int]], size: int) -> None:
    lines = [b"x" * plain + b'"base64:' + b"A" * value + b'"' for plain, value in lengths]
    found: list[bytes] = []
    too_long = 0
    for block in line_blocks(io.BytesIO(b"\n".join(lines) + b"\n"), size, limit=6):
        too_long += block.too_long
        found += block.data.split(b"\n")
    # The closing quote counts.
    assert [line for line in found if line] == [
        line
        for line, (plain, value) in zip(lines, lengths, strict=True)
        if plain < 6 or plain + value + 9 <= 6
    ]
    assert too_long == sum(plain >= 6 for plain, _ in lengths)
