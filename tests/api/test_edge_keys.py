"""Edges with a key: the id of an edge is derived from its key in every way of writing it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation, InvalidInput
from tests.support.places import fresh_memory

SCHEMA = """\
node Customer { name: String @key }
node Order { number: I64 @key }
edge Placed: Customer -> Order { quantity: I32?  @key(src, dst) }
edge Rated: Customer -> Order { day: Date  stars: I32?  @key(src, dst, day) }
edge Paid: Customer -> Order { receipt: String  @key(receipt) }
edge Viewed: Customer -> Order { @unique(src, dst) }
"""
NODES: list[dict[str, Any]] = [
    {"type": "Customer", "data": {"name": "ana"}},
    {"type": "Customer", "data": {"name": "bo"}},
    {"type": "Order", "data": {"number": 7}},
    {"type": "Order", "data": {"number": 8}},
]
PLACED_ID = '["ana","7"]'


@pytest.fixture
def graph() -> og.Graph:
    graph = og.init(fresh_memory(), SCHEMA)
    graph.load(NODES, "append")
    return graph


def placed(src: str, dst: str, **data: Any) -> dict[str, Any]:
    return {"edge": "Placed", "from": src, "to": dst, "data": data}


def exported(graph: og.Graph, type_name: str, branch: str = "main") -> list[dict[str, Any]]:
    out = StringIO()
    graph.export(out, types=[type_name], branch=branch)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def rows(graph: og.Graph, type_name: str = "Placed", branch: str = "main") -> dict[str, Any]:
    """Return the data of the edges of a type, without the id, by id."""
    found = {}
    for record in exported(graph, type_name, branch):
        id_ = record["data"].pop("id")
        found[id_] = (record["from"], record["to"], *record["data"].values())
    return found


class TestIds:
    def test_insert_of_keyed_edge_derives_the_id_from_endpoints(self, graph: og.Graph) -> None:
        graph.mutate('query q() { insert Placed { from: "ana", to: "7", quantity: 1 } }')

        assert rows(graph) == {PLACED_ID: ("ana", "7", 1)}

    def test_load_of_edge_key_with_property_derives_the_id_from_all_columns(self, graph: og.Graph) -> None:
        record = {"edge": "Rated", "from": "ana", "to": "7", "data": {"day": "1970-01-31", "stars": 5}}
        graph.load([record], "append")

        assert rows(graph, "Rated") == {'["ana","7","30"]': ("ana", "7", 30, 5)}

    def test_load_of_edge_key_of_one_property_uses_its_text_as_id(self, graph: og.Graph) -> None:
        graph.load([{"edge": "Paid", "from": "ana", "to": "7", "data": {"receipt": "r1"}}], "append")

        assert rows(graph, "Paid") == {"r1": ("ana", "7", "r1")}

    @pytest.mark.parametrize(
        "source",
        [
            [placed("ana", "7", quantity=2)],
            {"Placed": [{"from": "ana", "to": 7, "quantity": 2}]},
            {"Placed": pa.table({"from": ["ana"], "to": [7], "quantity": [2]})},
            BytesIO(json.dumps(placed("ana", "7", quantity=2)).encode()),
        ],
        ids=["records", "rows", "table", "ndjson"],
    )
    def test_merge_of_the_same_pair_updates_the_edge_from_every_input(
        self, graph: og.Graph, source: Any
    ) -> None:
        graph.mutate('query q() { insert Placed { from: "ana", to: "7", quantity: 1 } }')

        receipt = graph.load(source, "merge")

        assert rows(graph) == {PLACED_ID: ("ana", "7", 2)}
        assert receipt.affected["Placed"] == {"inserted": 0, "updated": 1, "deleted": 0}

    def test_insert_of_an_existing_key_replaces_the_whole_edge(self, graph: og.Graph) -> None:
        graph.mutate('query q() { insert Placed { from: "ana", to: "7", quantity: 1 } }')
        graph.mutate('query q() { insert Placed { from: "ana", to: "7" } }')

        assert rows(graph) == {PLACED_ID: ("ana", "7", None)}

    def test_insert_of_an_existing_key_of_properties_moves_the_edge(self, graph: og.Graph) -> None:
        graph.mutate('query q() { insert Paid { from: "ana", to: "7", receipt: "r1" } }')
        graph.mutate('query q() { insert Paid { from: "bo", to: "8", receipt: "r1" } }')

        assert rows(graph, "Paid") == {"r1": ("bo", "8", "r1")}

    def test_update_of_keyed_edge_sets_properties_of_matching_edges(self, graph: og.Graph) -> None:
        graph.load([placed("ana", "7", quantity=1), placed("ana", "8"), placed("bo", "7")], "append")

        receipt = graph.mutate('query q() { update Placed set { quantity: 5 } where from = "ana" }')

        assert receipt.affected["Placed"] == {"inserted": 0, "updated": 2, "deleted": 0}
        assert [item[2] for item in rows(graph).values()] == [5, 5, None]

    def test_delete_of_keyed_edge_by_its_key_deletes_one(self, graph: og.Graph) -> None:
        graph.load([placed("ana", "7"), placed("ana", "8"), placed("bo", "7")], "append")
        graph.mutate('query q() { delete Placed where from = "ana" and to = "7" }')

        assert set(rows(graph)) == {'["ana","8"]', '["bo","7"]'}

    def test_patch_and_delete_of_keyed_edges_find_them_by_key(self, graph: og.Graph) -> None:
        graph.load([{"edge": "Rated", "from": "ana", "to": "7", "data": {"day": 1, "stars": 4}}], "append")
        graph.load([placed("ana", "7", quantity=3), placed("ana", "8", quantity=4)], "append")

        graph.load({"Placed": [{"from": "ana", "to": 7, "quantity": 9}]}, "patch")
        graph.load(
            {"Placed": [{"from": "ana", "to": 8}], "Rated": [{"from": "ana", "to": 7, "day": 1}]}, "delete"
        )

        assert rows(graph) == {PLACED_ID: ("ana", "7", 9)}
        assert rows(graph, "Rated") == {}

    def test_get_of_keyed_edge_by_its_id_returns_it(self, graph: og.Graph) -> None:
        graph.load([placed("ana", "7", quantity=3)], "append")

        assert graph.get("Placed", PLACED_ID) == {"id": PLACED_ID, "from": "ana", "to": "7", "quantity": 3}

    def test_export_of_keyed_edges_loads_back_unchanged(self, graph: og.Graph) -> None:
        graph.load([placed("ana", "7", quantity=3), placed("bo", "8")], "append")
        out = StringIO()
        graph.export(out)
        copy = og.init(fresh_memory(), SCHEMA)

        copy.load(BytesIO(out.getvalue().encode()), "append")

        assert rows(copy) == rows(graph)


class TestRefusals:
    def test_append_of_existing_edge_key_is_refused_with_its_line(self, graph: og.Graph) -> None:
        graph.load([placed("ana", "7")], "append")

        with pytest.raises(ConstraintViolation) as caught:
            graph.load([placed("bo", "8"), placed("ana", "7")], "append")

        assert caught.value.message == f"edge type 'Placed' already has id '{PLACED_ID}'"
        assert caught.value.violations[0]["line"] == 2

    @pytest.mark.parametrize("mode", ["append", "merge"])
    def test_load_of_two_edges_of_one_key_is_refused_with_the_second_line(
        self, graph: og.Graph, mode: Any
    ) -> None:
        with pytest.raises(ConstraintViolation) as caught:
            graph.load([placed("ana", "7"), placed("bo", "7"), placed("ana", "7")], mode)

        held = f"held by '{PLACED_ID}' and '{PLACED_ID}'"
        assert caught.value.message == f"@unique violation on Placed.(src, dst): value '(ana, 7)' {held}"
        assert caught.value.violations[0]["line"] == 3
        assert rows(graph) == {}

    def test_load_of_another_explicit_id_is_refused(self, graph: og.Graph) -> None:
        with pytest.raises(InvalidInput, match='edge Placed has id "mine", but its @key gives'):
            graph.load([placed("ana", "7", id="mine")], "append")

    def test_load_of_keyed_edge_without_key_property_is_refused(self, graph: og.Graph) -> None:
        with pytest.raises(InvalidInput, match="edge Rated is missing a non-null @key value"):
            graph.load([{"edge": "Rated", "from": "ana", "to": "7"}], "append")

    def test_merge_of_keyless_edge_that_breaks_unique_names_the_missing_key(self, graph: og.Graph) -> None:
        viewed = {"edge": "Viewed", "from": "ana", "to": "7"}
        graph.load([viewed], "merge")

        with pytest.raises(ConstraintViolation) as caught:
            graph.load([viewed], "merge")

        assert "@key(src, dst)" in (caught.value.hint or "")


class TestPermissiveRecords:
    def test_ingest_derives_ids_after_endpoints_are_resolved(self) -> None:
        schema = "node Day { on: Date @key }\nedge Next: Day -> Day { @key(src, dst) }"
        graph = og.init(fresh_memory(), schema)
        days = [{"type": "Day", "data": {"id": text, "on": text}} for text in ("1970-01-02", "1970-01-03")]
        edge = {"edge": "Next", "from": "1970-01-02", "to": "1970-01-03"}

        text = "\n".join(json.dumps(record) for record in (*days, edge))
        graph.load(BytesIO(text.encode()), permissive=True)

        assert list(rows(graph, "Next")) == ['["1","2"]']

    def test_ingest_of_another_explicit_id_is_refused(self, graph: og.Graph) -> None:
        with pytest.raises(InvalidInput, match="edge Placed has id"):
            graph.load(BytesIO(json.dumps(placed("ana", "7", id="mine")).encode()), permissive=True)


class TestMappings:
    @pytest.mark.parametrize("key", [["who", "what", "on"], {"src": "who", "dst": "what", "day": "on"}])
    def test_load_with_mapping_that_names_edge_key_columns_derives_ids(
        self, graph: og.Graph, key: Any
    ) -> None:
        table = pa.table({"who": ["ana"], "what": [7], "on": ["1970-01-31"], "stars": [4]})

        graph.load({"Rated": table}, "merge", mapping={"Rated": {"key": key}})

        assert rows(graph, "Rated") == {'["ana","7","30"]': ("ana", "7", 30, 4)}

    def test_load_with_mapping_that_names_an_endpoint_twice_is_refused(self, graph: og.Graph) -> None:
        mapping = {"Placed": {"key": ["who", "what"], "from": "who"}}

        with pytest.raises(InvalidInput, match="'src' is also mapped by `from`"):
            graph.load({"Placed": pa.table({"who": ["ana"], "what": [7]})}, "merge", mapping=mapping)


def test_concurrent_inserts_of_one_edge_key_keep_one_edge(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    og.init(uri, SCHEMA).load(NODES, "append")

    def insert(number: int) -> None:
        with og.open(uri) as opened:
            opened.mutate(f'query q() {{ insert Placed {{ from: "ana", to: "7", quantity: {number} }} }}')

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(insert, range(6)))

    with og.open(uri) as graph:
        assert list(rows(graph)) == [PLACED_ID]
