"""The rules between rows: what is unique, what edges end at, how many edges a source has."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.rules.set_rules import cardinality_violations, endpoint_violations, unique_violations
from omnigraph.rules.violations import MAX_REPORTED
from tests.catalog.test_identity import catalog_of
from tests.rules.states import WORKED, Row, committed, delta, deltas, edge, image_of, person, rows_of

PEOPLE = [person("Ann"), person("Bob"), person("Cy")]
GRAPH = image_of(
    {
        "node:Person": PEOPLE,
        "node:Company": [person("Acme"), person("Beta")],
        "edge:Knows": [edge("k1", "Ann", "Bob"), edge("k2", "Bob", "Cy")],
        "edge:WorksAt": [edge("w1", "Ann", "Acme")],
    }
)


def unique_messages(
    declared: str, before: list[Row], put: list[Row], delete: tuple[str, ...] = ()
) -> list[str]:
    catalog = catalog_of(f"node T {{ {declared} }}")
    image = image_of({"node:T": before})
    change = {"node:T": delta(catalog, image, "node:T", put=put, delete=delete)}
    return [item.message for item in unique_violations(catalog, change, committed(catalog, image))]


def held(value: str, other: str, this: str, name: str = "v") -> str:
    return f"@unique violation on T.{name}: value '{value}' held by '{other}' and '{this}'"


# --- @unique ------------------------------------------------------------------------------------------------


def test_unique_value_of_committed_row_is_refused() -> None:
    before = [{"id": "z", "v": "x"}]
    assert unique_messages("v: String? @unique", before, [{"id": "a", "v": "x"}]) == [held("x", "z", "a")]


def test_unique_value_of_two_changed_rows_is_one_violation() -> None:
    put = [{"id": "b", "v": "x"}, {"id": "a", "v": "x"}]
    assert unique_messages("v: String? @unique", [], put) == [held("x", "a", "b")]


def test_unique_value_of_several_changed_rows_is_reported_for_each() -> None:
    put = [{"id": id_, "v": "x"} for id_ in "cab"]
    assert unique_messages("v: String? @unique", [{"id": "z", "v": "x"}], put) == [
        held("x", "z", "a"),
        held("x", "z", "b"),
        held("x", "z", "c"),
    ]


def test_unique_violation_among_committed_rows_is_not_reported() -> None:
    before = [{"id": "z", "a": "x", "b": 1}, {"id": "y", "a": "x", "b": 1}]
    declared = "a: String  b: I32\n @unique(a, b)"
    assert unique_messages(declared, before, [{"id": "c", "a": "x", "b": 2}]) == []
    assert unique_messages(declared, before, [{"id": "c", "a": "x", "b": 1}]) == [
        held("(x, 1)", "y", "c", "(a, b)")
    ]


def test_unique_value_freed_by_the_operation_is_accepted() -> None:
    before = [{"id": "z", "v": "x"}, {"id": "y", "v": "w"}]
    moved = [{"id": "z", "v": "free"}, {"id": "a", "v": "x"}]
    assert unique_messages("v: String? @unique", before, moved) == []
    assert unique_messages("v: String? @unique", before, [{"id": "a", "v": "x"}], ("z",)) == []
    swapped = [{"id": "z", "v": "w"}, {"id": "y", "v": "x"}]
    assert unique_messages("v: String? @unique", before, swapped) == []


def test_unique_value_kept_by_its_row_is_accepted() -> None:
    row = {"id": "z", "v": "x"}
    assert unique_messages("v: String? @unique", [row], [row]) == []


def test_unique_null_is_accepted() -> None:
    rows = [{"id": "a", "v": None}, {"id": "b", "v": None}]
    assert unique_messages("v: String? @unique", rows, [{"id": "c", "v": None}]) == []


def test_unique_tuple_is_compared_as_a_whole_and_ignored_with_a_null() -> None:
    declared = "a: String?  b: I32?\n @unique(a, b)"
    before: list[Row] = [{"id": "z", "a": "x", "b": 1}, {"id": "y", "a": "x", "b": None}]
    fine: list[Row] = [
        {"id": "1", "a": "x", "b": 2},
        {"id": "2", "a": None, "b": 1},
        {"id": "3", "a": "x", "b": None},
    ]
    assert unique_messages(declared, before, fine) == []
    clash = [{"id": "1", "a": "x", "b": 1}]
    assert unique_messages(declared, before, clash) == [held("(x, 1)", "z", "1", "(a, b)")]


def test_unique_tuples_with_equal_concatenation_are_distinct() -> None:
    rows = [{"id": "1", "a": "x, y", "b": "z"}, {"id": "2", "a": "x", "b": "y, z"}]
    assert unique_messages("a: String  b: String\n @unique(a, b)", rows[:1], rows[1:]) == []
    assert unique_messages("a: String  b: String\n @unique(a, b)", [], rows) == []


@pytest.mark.parametrize(
    ("scalar", "value", "text"),
    [
        ("Date", date(2020, 1, 31), "2020-01-31"),
        ("DateTime", 1500, "1970-01-01T00:00:01.500Z"),
        ("Bool", True, "true"),
        ("U64", 2**64 - 1, "18446744073709551615"),
        ("F64", 2.0, "2.0"),
        ("F32", 0.1, "0.1"),
        ("F64", math.nan, "NaN"),
        ("enum(a, b)", "a", "a"),
        ("String", "it's é", "it's é"),
    ],
)
def test_unique_values_of_every_type_are_compared_and_shown(scalar: str, value: Any, text: str) -> None:
    declared = f"v: {scalar} @unique"
    if isinstance(value, date):
        value = (value - date(1970, 1, 1)).days
    before, put = [{"id": "z", "v": value}], [{"id": "a", "v": value}]
    assert unique_messages(declared, before, put) == [held(text, "z", "a")]


def test_unique_positive_and_negative_zero_are_equal() -> None:
    put = [{"id": "a", "v": 0.0, "w": 1}]
    for zero in (0.0, -0.0):
        before = [{"id": "z", "v": zero, "w": 1}]
        assert unique_messages("v: F64 @unique  w: I32", before, put) == [held("0.0", "z", "a")]
        assert unique_messages("v: F64  w: I32\n @unique(v, w)", before, put) == [
            held("(0.0, 1)", "z", "a", "(v, w)")
        ]


def test_unique_endpoints_refuse_parallel_edges() -> None:
    change = deltas(WORKED, GRAPH, {"edge:Knows": [edge("k3", "Ann", "Bob"), edge("k4", "Bob", "Ann")]}, {})
    (found,) = unique_violations(WORKED, change, committed(WORKED, GRAPH))
    assert found.to_json() == {
        "rule": "unique",
        "type": "edge:Knows",
        "message": "@unique violation on Knows.(src, dst): value '(Ann, Bob)' held by 'k1' and 'k3'",
        "id": "k3",
        "property": "(src, dst)",
        "value": ["Ann", "Bob"],
        "columns": ["src", "dst"],
        "held_by": "k1",
    }


def test_unique_key_reads_no_committed_rows() -> None:
    state = committed(WORKED, GRAPH)
    change = deltas(WORKED, GRAPH, {"node:Person": [person("Ann", age=3)]}, {})
    assert not unique_violations(WORKED, change, state)
    assert state.asked == []


# --- endpoints ----------------------------------------------------------------------------------------------


def endpoints(put: dict[str, list[Row]], delete: dict[str, list[str]]) -> list[str]:
    change = deltas(WORKED, GRAPH, put, delete)
    found = endpoint_violations(WORKED, change, committed(WORKED, GRAPH))
    return [f"{item.rule} {item.id}: {item.message}" for item in found]


def test_edge_with_missing_endpoint_is_refused() -> None:
    put = {"edge:WorksAt": [edge("w2", "Acme", "Ann"), edge("w3", "Bob", "Beta")]}
    assert endpoints(put, {}) == [
        "endpoint w2: dst 'Ann' not found in Company",
        "endpoint w2: src 'Acme' not found in Person",
    ]


def test_edge_to_node_of_the_same_operation_is_accepted() -> None:
    put = {"edge:Knows": [edge("k3", "Di", "Ann")], "node:Person": [person("Di")]}
    assert endpoints(put, {}) == []
    assert endpoints({"edge:Knows": put["edge:Knows"]}, {}) == ["endpoint k3: src 'Di' not found in Person"]


def test_edge_to_deleted_node_is_refused() -> None:
    put = {"edge:Knows": [edge("k3", "Ann", "Cy")]}
    delete = {"node:Person": ["Cy"], "edge:Knows": ["k2"]}
    assert endpoints(put, delete) == ["endpoint k3: dst 'Cy' not found in Person"]


def test_edge_to_node_deleted_and_inserted_again_is_accepted() -> None:
    put = {"edge:Knows": [edge("k3", "Ann", "Cy")], "node:Person": [person("Cy")]}
    assert endpoints(put, {"node:Person": ["Cy"]}) == []


def test_delete_of_node_with_edges_is_refused() -> None:
    assert endpoints({}, {"node:Person": ["Bob"]}) == [
        "orphan k1: dst 'Bob' not found in Person",
        "orphan k2: src 'Bob' not found in Person",
    ]
    assert endpoints({}, {"node:Person": ["Bob"], "edge:Knows": ["k1", "k2"]}) == []


def test_edge_moved_away_from_deleted_node_is_accepted() -> None:
    put = {"edge:WorksAt": [edge("w1", "Ann", "Beta")]}
    assert endpoints(put, {"node:Company": ["Acme"]}) == []


def test_replacement_of_all_nodes_reports_each_orphan_edge() -> None:
    put = {"node:Person": [person("Ann"), person("Zoe")]}
    assert endpoints(put, {"node:Person": ["Ann", "Bob", "Cy"]}) == [
        "orphan k1: dst 'Bob' not found in Person",
        "orphan k2: dst 'Cy' not found in Person",
        "orphan k2: src 'Bob' not found in Person",
    ]


def test_endpoint_check_looks_up_each_node_table_at_most_once() -> None:
    state = committed(WORKED, GRAPH)
    put = {
        "edge:Knows": [edge("k3", "Ann", "Cy"), edge("k4", "Cy", "Di")],
        "edge:WorksAt": [edge("w2", "Bob", "New")],
        "node:Person": [person("Di")],
        "node:Company": [person("New")],
    }
    assert not endpoint_violations(WORKED, deltas(WORKED, GRAPH, put, {}), state)
    assert state.asked == [("node:Person", "id")]


# --- @card --------------------------------------------------------------------------------------------------

CARDED = catalog_of("""
node N { v: I32? }
edge E: N -> N @card(1..2)
""")
NODES = [{"id": name} for name in ("a", "b", "c")]
EDGES = image_of(
    {"node:N": NODES, "edge:E": [edge("e1", "a", "b"), edge("e2", "a", "c"), edge("e3", "b", "c")]}
)


def card(put: list[Row], delete: list[str], nodes: tuple[str, ...] = ()) -> list[str]:
    change = deltas(CARDED, EDGES, {"edge:E": put}, {"edge:E": delete, "node:N": nodes})
    return [item.message for item in cardinality_violations(CARDED, change, committed(CARDED, EDGES))]


def test_cardinality_above_maximum_is_refused() -> None:
    change = deltas(WORKED, GRAPH, {"edge:WorksAt": [edge("w2", "Ann", "Beta")]}, {})
    (found,) = cardinality_violations(WORKED, change, committed(WORKED, GRAPH))
    assert found.message == "@card violation on edge WorksAt: source 'Ann' has 2 edges (max 1)"
    assert (found.rule, found.table_key, found.id, found.value) == ("card", "edge:WorksAt", "Ann", 2)
    assert found.details == {"max": 1}


def test_cardinality_at_maximum_is_accepted() -> None:
    assert card([edge("e4", "c", "a"), edge("e5", "c", "b")], []) == []
    assert card([edge("e4", "a", "a")], []) == ["@card violation on edge E: source 'a' has 3 edges (max 2)"]


def test_cardinality_below_minimum_after_delete_is_refused() -> None:
    assert card([], ["e3"]) == ["@card violation on edge E: source 'b' has 0 edges (min 1)"]
    assert card([], ["e1"]) == []


def test_cardinality_of_the_former_source_of_a_moved_edge_is_checked() -> None:
    assert card([edge("e3", "c", "a")], []) == ["@card violation on edge E: source 'b' has 0 edges (min 1)"]
    assert card([edge("e1", "b", "a")], []) == []
    assert card([edge("e3", "a", "c"), edge("e1", "b", "b")], []) == []


def test_cardinality_counts_a_rewritten_edge_once() -> None:
    assert card([edge("e1", "a", "b")], []) == []


def test_cardinality_of_unchanged_source_is_not_checked() -> None:
    state = committed(CARDED, EDGES)
    change = deltas(CARDED, EDGES, {"node:N": [{"id": "new"}, {"id": "c", "v": 1}]}, {})
    assert not cardinality_violations(CARDED, change, state)
    assert state.asked == []
    assert card([edge("e4", "b", "a")], []) == []


def test_cardinality_of_deleted_source_is_not_checked() -> None:
    assert card([], ["e3", "e1"], ("b",)) == []
    assert card([], ["e1", "e2"], ("b",)) == ["@card violation on edge E: source 'a' has 0 edges (min 1)"]


def test_cardinality_without_bounds_reads_nothing() -> None:
    state = committed(WORKED, GRAPH)
    change = deltas(WORKED, GRAPH, {"edge:Knows": [edge("k3", "Ann", "Cy")]}, {"edge:Knows": ["k1"]})
    assert not cardinality_violations(WORKED, change, state)
    assert state.asked == []


# --- size ---------------------------------------------------------------------------------------------------


def test_many_violations_are_counted_and_the_first_by_id_listed() -> None:
    count = 3 * MAX_REPORTED
    catalog = catalog_of("node N { v: I32 @unique }\nedge E: N -> N @card(0..1)")
    nodes = rows_of(catalog.tables["node:N"], [{"id": f"n{i:04}", "v": 7} for i in range(count)])
    edges = [edge(f"e{i:04}{end}", f"x{i:04}", "n0000") for i in range(count) for end in "ab"]
    change = deltas(catalog, {}, {"node:N": nodes.to_pylist(), "edge:E": edges[::-1]}, {})
    state = committed(catalog, {})
    for rule, total, first in (
        (unique_violations, count - 1, ["n0001", "n0002"]),
        (endpoint_violations, 2 * count, ["e0000a", "e0000b"]),
        (cardinality_violations, count, ["x0000", "x0001"]),
    ):
        found = rule(catalog, change, state)
        assert (found.total, len(found.reported)) == (total, MAX_REPORTED)
        assert [item.id for item in found][:2] == first


def test_ids_of_any_string_type_are_compared_as_text() -> None:
    put = [edge("k3", "Ann", "Nobody"), edge("k4", "Ann", "Bob")]
    plain = delta(WORKED, GRAPH, "edge:Knows", put=put)
    large = pa.concat_tables(plain.rows.slice(at, 1) for at in range(2))
    for name in ("id", "src", "dst"):
        large = large.set_column(large.column_names.index(name), name, large[name].cast(pa.large_string()))
    change = {"edge:Knows": type(plain)(plain.table, large, plain.shadowed, plain.deleted, plain.vacated)}
    state = committed(WORKED, GRAPH)
    assert [item.id for item in endpoint_violations(WORKED, change, state)] == ["k3"]
    assert [item.id for item in unique_violations(WORKED, change, state)] == ["k4"]
