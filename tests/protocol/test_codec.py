"""The exact encoding of results, errors, rows and snapshots."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.api.results.maintenance_reports import Optimized
from omnigraph.changes.change_pages import ChangePage
from omnigraph.changes.feed import FeedPage
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.protocol.codec import (
    decode,
    decode_error,
    decode_snapshot,
    dump_json,
    encode,
    encode_error,
    encode_snapshot,
    read_result,
    to_json_value,
    write_result,
)

SCHEMA = """
node City { name: String @key  size: U64?  area: F32?  founded: Date?  seen: DateTime?  tags: [String]?
            shape: Vector(3)?  photo: Blob?  kind: enum(big, small)? }
edge Near: City -> City { km: F64? }
"""
BERN = {
    "name": "Bern",
    "size": 2**64 - 1,
    "area": 51.6,
    "founded": "1191-01-01",
    "seen": "2024-01-01T12:00:00Z",
    "tags": ["old", "Aare"],
    "shape": [0.1, 0.2, 0.3],
    "photo": "base64:aGVsbG8=",
    "kind": "small",
}


@pytest.fixture(scope="module")
def graph() -> og.Graph:
    made = og.init("memory://wire", SCHEMA, actor="ana")
    made.load({"City": [BERN, {"name": "Rome"}], "Near": [{"from": "Bern", "to": "Rome", "km": 690.5}]})
    return made


def travel(value: Any) -> Any:
    """Encode and decode a value through JSON text."""
    return decode(type(value), json.loads(json.dumps(encode(value))))


class TestObjects:
    def test_receipts_round_trip(self, graph: og.Graph) -> None:
        added = graph.mutate('query add() { insert City { name: "Oslo" } }', message="north")
        assert added.commit is not None
        assert travel(added) == added
        assert repr(travel(added.commit).created_at) == repr(added.commit.created_at)
        loaded = graph.load({"City": [{"name": "Oslo", "size": 1}]}, mode="merge")
        assert travel(loaded) == loaded
        graph.branches.create("trial")
        made = graph.branches.merge("trial", delete_source=True)
        assert (travel(made), made.branch_deleted) == (made, True)
        optimized = graph.optimize()
        assert isinstance(travel(optimized), Optimized)
        assert (travel(optimized), optimized.datasets != ()) == (optimized, True)
        for value in (*graph.indexes(), graph.repair(), *graph.commits()):
            assert travel(value) == value

    def test_changes_round_trip_with_images(self, graph: og.Graph) -> None:
        done = graph.load({"City": [{**BERN, "size": 7}]}, mode="merge").commit
        assert done is not None
        page = graph.changes(done.id)
        assert (travel(page), len(page)) == (page, 1)
        assert isinstance(travel(page), ChangePage)
        assert [json.loads(dump_json(change)) for change in page] == [encode(change) for change in page]
        poll = graph.feed(start="beginning")
        assert (travel(poll), len(poll) > 1, isinstance(poll, FeedPage)) == (poll, True, True)

    def test_decode_other_shape_raises_storage_error(self) -> None:
        with pytest.raises(errors.StorageError, match="not a valid Commit"):
            decode(og.Commit, {"id": 1})


class TestValues:
    @pytest.mark.parametrize(
        ("value", "sent"),
        [
            (datetime(2024, 1, 1, 12, tzinfo=UTC), "2024-01-01T12:00:00+00:00"),
            (np.float32(0.5), 0.5),
            (np.array([1, 2]), [1, 2]),
            ({"a": (None, True)}, {"a": [None, True]}),
            (float("inf"), "inf"),
        ],
    )
    def test_python_values_become_json(self, value: Any, sent: Any) -> None:
        assert to_json_value(value) == sent
        json.dumps(to_json_value(value), allow_nan=False)

    def test_value_without_json_form_raises_invalid_input(self) -> None:
        with pytest.raises(errors.InvalidInput, match="a object cannot be sent"):
            to_json_value({"x": object()})


class TestErrors:
    @pytest.mark.parametrize(
        "error",
        [
            errors.NotFound("no", details={"branch": "x"}, hint="make it"),
            errors.ConstraintViolation("bad", [{"rule": "key", "id": "a"}], details={"violations": 1}),
            errors.InvalidInput("bad", details={"limit": 3}),
            errors.InvalidInput("bad").with_violations([{"message": "bad", "line": 2}], 7, 1),
            errors.MergeConflicts("both", [{"kind": "update_update"}]),
            errors.StorageError("slow", transient=True),
            errors.PreconditionFailed("moved", details={"expected": "a", "actual": "b"}),
        ],
    )
    def test_error_round_trips_with_class_and_details(self, error: og.OmnigraphError) -> None:
        found = decode_error(json.loads(json.dumps(encode_error(error))))
        assert type(found) is type(error)
        assert vars(found) == vars(error)

    def test_language_error_round_trips_with_position(self, graph: og.Graph) -> None:
        with pytest.raises(LanguageError) as caught:
            graph.query("query q() { match { $c: Town } return { $c.name } }")
        found = decode_error(json.loads(json.dumps(encode_error(caught.value))))
        assert isinstance(found, LanguageError)
        assert (found.line, found.column, str(found)) == (1, caught.value.column, str(caught.value))

    def test_every_error_class_round_trips(self) -> None:
        public = [getattr(errors, name) for name in errors.__all__]
        for kind in (
            item for item in public if isinstance(item, type) and issubclass(item, og.OmnigraphError)
        ):
            assert type(decode_error(encode_error(kind("x")))) is kind

    @pytest.mark.parametrize(
        "found",
        [
            None,
            "NullPointerException",
            {},
            {"code": [], "message": "x", "details": {}, "hint": None},
            {"code": "conflict", "message": "x", "details": ["a"], "hint": None},
            {**encode_error(errors.ConstraintViolation("x")), "violations": 7},
        ],
    )
    def test_decode_error_of_other_data_raises_storage_error(self, found: Any) -> None:
        with pytest.raises(errors.StorageError, match="the server's response"):
            decode_error(found)

    def test_details_without_json_form_become_strings(self) -> None:
        found = decode_error(
            encode_error(errors.Conflict("x", details={"at": datetime(2024, 1, 1, tzinfo=UTC)}))
        )
        assert found.details == {"at": "2024-01-01 00:00:00+00:00"}


class TestRows:
    QUERY = """query all() { match { $c: City } return { $c.name as name, $c.size as size, $c.area as area,
        $c.founded as founded, $c.seen as seen, $c.tags as tags, $c.shape as shape,
        $c.kind as kind, count($c) as n } order { name asc } }"""

    def test_result_round_trips_with_types(self, graph: og.Graph) -> None:
        result = graph.query(self.QUERY)
        found = read_result(write_result(result))
        assert found.table.equals(result.table, check_metadata=True)
        assert found.to_json() == result.to_json()
        assert found.rows()[0]["size"] is not None
        assert found.types == tuple(result.types)

    def test_result_is_a_plain_arrow_stream(self, graph: og.Graph) -> None:
        with pa.ipc.open_stream(write_result(graph.query(self.QUERY))) as stream:
            assert stream.read_all().num_rows == len(graph.query(self.QUERY))

    def test_empty_result_keeps_columns(self, graph: og.Graph) -> None:
        result = graph.query('query q() { match { $c: City  $c.name = "-" } return { $c.size as s } }')
        found = read_result(write_result(result))
        assert (len(found), found.columns, found.table.schema) == (0, ["s"], result.table.schema)


class TestStates:
    def test_snapshot_round_trips(self, graph: og.Graph) -> None:
        before = graph.snapshot()
        found = decode_snapshot(json.loads(json.dumps(encode_snapshot(before))))
        assert (found.commit, found.catalog, found.schema) == (before.commit, before.catalog, SCHEMA)
        assert found.types == before.types
        assert graph.get("City", "Rome", at=found.commit_id) is not None

    def test_decoded_snapshot_rows_raise_with_hint(self, graph: og.Graph) -> None:
        found = decode_snapshot(encode_snapshot(graph.snapshot()))
        with pytest.raises(errors.InvalidInput, match="cannot be scanned"):
            found.scan("node:City")
