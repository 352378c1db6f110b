"""The permissive reader: what it makes of loose records, what it still refuses, and values cut anywhere."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput, ResourceLimit
from omnigraph.sources.input_warnings import MAX_LISTED, WarningCollector
from omnigraph.sources.json.json_stream import parse_json_stream
from omnigraph.sources.json.permissive import read_permissive
from omnigraph.sources.rejects import Reject
from omnigraph.sources.row_batch import InputBatch
from tests.catalog.test_identity import catalog_of

CATALOG = catalog_of("""
node Person { name: String @key  age: I32?  v: Vector(2)?  tags: [String]? }
node Day { day: Date @key }
node Slot { slot: I32  tenant: String  @key(slot, tenant) }
node Strict { must: I64 }
edge Knows: Person -> Person { since: Date? }
edge On: Day -> Slot
""")


def read(text: str, **options: Any) -> list[InputBatch]:
    return list(read_permissive(io.BytesIO(text.encode()), CATALOG, **options))


def rows(text: str) -> list[dict[str, Any]]:
    return [row for batch in read(text) for row in batch.rows.to_pylist()]


def test_records_may_be_laid_out_over_lines() -> None:
    records = [{"type": "Person", "data": {"name": "Ann"}}, {"type": "Person", "data": {"name": "Bob"}}]
    (batch,) = read("\n\n".join(json.dumps(record, indent=2) for record in records) + json.dumps(records[0]))
    assert batch.rows["id"].to_pylist() == ["Ann", "Bob", "Ann"]
    assert batch.places.to_pylist() == [1, 2, 3]


def test_read_unknown_field_or_wrong_value_is_left_out_and_reported() -> None:
    warnings = WarningCollector()
    text = (
        '{"type":"Person","x":1,"data":{"name":"Ann","nam":1,"age":"30"}}\n'
        '{"type":"Person","data":{"id":"Bob","name":"Bob","age":null,"age":1}}'
        '{"edge":"Knows","from":"Ann","to":"Bob","data":{"since":"soon"}}'
        '{"type":"Person","data":{"name":"Cy","tags":"no","age":"x"}}'
    )
    rejects: list[Reject] = []
    batches = read(text, source="in.json", warnings=warnings, on_reject=rejects.append)
    found = [row for batch in batches for row in batch.rows.to_pylist()]
    assert [(row.get("name"), row.get("age"), row.get("since")) for row in found] == [
        ("Ann", None, None),
        ("Bob", 1, None),
        (None, None, None),
    ]
    assert [item.place for item in rejects] == [4]
    collected = warnings.collected()
    assert (collected.nulled, collected.dropped, collected.total) == (2, 3, 5)
    assert list(map(str, collected.listed)) == [
        "in.json: Person record 1, property 'age': expected I32, got \"30\"; stored as null",
        "in.json: Person record 1, property 'x': unknown field dropped",
        "in.json: Person record 1, property 'nam': unknown field dropped; did you mean `name`?",
        "in.json: Person record 2, property 'age': repeated field: all but the last value dropped",
        "in.json: Knows record 3, property 'since': expected Date, got \"soon\"; stored as null",
    ]


def test_read_more_wrong_values_than_are_listed_counts_all() -> None:
    warnings = WarningCollector()
    read('{"type":"Person","data":{"name":"Ann","age":"30"}}' * (MAX_LISTED + 7), warnings=warnings)
    collected = warnings.collected()
    assert (collected.nulled, len(collected.listed)) == (MAX_LISTED + 7, MAX_LISTED)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"type":"Strict","data":{"must":"1"}}',
            "record 2: non-nullable property 'must' has null or invalid values",
        ),
        ('{"type":"Person","data":{"name":7}}', "record 2: node Person is missing a non-null @key value"),
        (
            '{"type":"Person","data":{"name":"a","v":[0.1,null]}}',
            "Person record 2: vector property 'v' elements must be numeric, got null",
        ),
        (
            '{"type":"Person","data":{"name":"a","v":"x"}}',
            "Person record 2, property 'v': expected Vector(2), got \"x\"",
        ),
        (
            '{"type":"Person","data":{"name":"a","tags":["a",7]}}',
            "Person record 2, property 'tags': expected [String], got [\"a\",7]",
        ),
        (
            '{"type":"Person","data":{"name":"a","tags":"x"}}',
            "Person record 2, property 'tags': expected [String], got \"x\"",
        ),
        (
            '{"type":"Person","data":{"name":"a","tags":["a",null]}}',
            "Person record 2: list property 'tags' elements must not be null",
        ),
        (
            '{"type":"Person","data":{"name":"a","age":2147483648}}',
            "record 2, property 'age': value 2147483648",
        ),
        (
            '{"type":"Person","data":{"name":"a","v":[1]}}',
            "record 2: vector property 'v' expects 2 dimensions, got 1",
        ),
        ('{"type":"person"}', "record 2: unknown node type 'person'"),
        ('{"edge":"Know"}', "record 2: unknown edge type 'Know'"),
        ('{"edge":"Knows","to":"a"}', "record 2: edge missing 'from'"),
        ('{"edge":"Knows","from":"a","to":1}', "record 2: edge missing 'to'"),
        ('{"data":{}}', "record 2: expected 'type' or 'edge' field"),
        ("12", "record 2: expected 'type' or 'edge' field"),
        ('{"type":"Person" "data"}', "invalid JSON at record 2: Expecting ',' delimiter"),
        ('{"type":"Person', "invalid JSON at record 2: Unterminated string"),
        ('{"type":NaN}', "invalid JSON at record 2: NaN is not a JSON number"),
        ('{"type":"Person","data":{"name":"a","id":"b"}}', "record 2: node Person has id"),
    ],
)
def test_a_record_that_cannot_be_used_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read('{"type":"Person","data":{"name":"Ann"}}\n' + text, source="here")
    assert caught.value.message.startswith(f"here: {message}")
    assert (caught.value.details["record"], caught.value.details["source"]) == (2, "here")


def test_edges_may_name_nodes_the_way_their_records_did() -> None:
    text = """
    {"edge": "On", "from": "1970-01-31", "to": "acme"}
    {"type": "Day", "data": {"id": "1970-01-31", "day": "1970-01-31"}}
    {"type": "Slot", "data": {"id": "acme", "slot": 7, "tenant": "acme"}}
    """
    found = {batch.key: batch.rows.to_pylist() for batch in read(text)}
    assert found["edge:On"] == [{"id": None, "src": "30", "dst": '["7","acme"]'}]
    assert [row["id"] for row in found["node:Slot"]] == ['["7","acme"]']


AMBIGUOUS = """
{"type": "Slot", "data": {"id": "acme", "slot": 7, "tenant": "acme"}}
{"type": "Slot", "data": {"id": "acme", "slot": 8, "tenant": "acme"}}
{"edge": "On", "from": "1", "to": "acme"}
{"edge": "On", "from": "2", "to": "other"}
"""


def test_an_ambiguous_endpoint_is_refused() -> None:
    with pytest.raises(InvalidInput, match="record 3: ambiguous endpoint 'acme' of type Slot"):
        read(AMBIGUOUS)
    rejected: list[Reject] = []
    edges = [batch for batch in read(AMBIGUOUS, on_reject=rejected.append) if batch.key == "edge:On"]
    assert [batch.places.to_pylist() for batch in edges] == [[4]]
    assert [(reject.place, reject.record["to"]) for reject in rejected] == [(3, "acme")]


def test_rejected_records_are_handed_over_but_text_that_is_no_json_ends_the_reading() -> None:
    rejected: list[Reject] = []
    (batch,) = read('{"x":1} {"type":"Person","data":{"name":"Ann"}}', on_reject=rejected.append)
    assert batch.places.to_pylist() == [2]
    assert [(reject.place, reject.record) for reject in rejected] == [(1, {"x": 1})]
    with pytest.raises(InvalidInput, match="invalid JSON at record 1"):
        read("} {}", on_reject=rejected.append)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@example([None, 0.0, 1e30, -1.5], None, True, 1)
@given(st.lists(JSON, max_size=5), st.sampled_from([None, 1]), st.booleans(), st.integers(1, 7))
@settings(max_examples=100, deadline=None)
def test_values_come_out_as_they_went_in_wherever_the_stream_is_cut(
    values: list[Any], indent: int | None, ascii_: bool, read: int
) -> None:
    text = "\n".join(json.dumps(value, indent=indent, ensure_ascii=ascii_) for value in values)
    assert list(parse_json_stream(io.BytesIO(text.encode()), read_bytes=read)) == values


def test_no_more_than_one_value_is_held() -> None:
    with pytest.raises(ResourceLimit, match="record 2: longer than 50 characters"):
        list(parse_json_stream([b"{}", b'"' + b"x" * 200], limit=50, read_bytes=10))
    with pytest.raises(InvalidInput, match="invalid JSON at record 1: invalid UTF-8"):
        list(parse_json_stream([b'"\xff"']))
