"""Validation as writes call it: which stage speaks, what the error carries, agreement with a naive check."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.catalog import Catalog
from omnigraph.errors import ConstraintViolation
from omnigraph.rules.delta import TableDelta
from omnigraph.rules.row_rules import row_violations
from omnigraph.rules.set_rules import complete_tuples, duplicate_tuples, entity_of, record_identity
from omnigraph.rules.validate import (
    check_row_rules,
    check_set_rules,
    set_violations,
    validate,
)
from omnigraph.rules.violations import MAX_REPORTED, Violations
from tests.catalog.test_identity import catalog_of
from tests.rules import naive
from tests.rules.naive import CATALOG
from tests.rules.states import (
    WORKED,
    ArrowRows,
    Image,
    Row,
    committed,
    deltas,
    edge,
    image_of,
    person,
    rows_of,
)

GRAPH = image_of(
    {
        "node:Person": [person("Ann"), person("Bob")],
        "node:Company": [person("Acme")],
        "edge:Knows": [edge("k1", "Ann", "Bob")],
        "edge:WorksAt": [edge("w1", "Ann", "Acme")],
    }
)


def refusal(
    put: Mapping[str, list[Row]], delete: Mapping[str, list[str]] | None = None
) -> ConstraintViolation:
    with pytest.raises(ConstraintViolation) as caught:
        validate(WORKED, deltas(WORKED, GRAPH, put, delete or {}), committed(WORKED, GRAPH))
    return caught.value


# --- stages -------------------------------------------------------------------------------------------------

BAD_ROW = {"node:Person": [person("Cy", age=-1)]}
NOT_UNIQUE = {"edge:Knows": [edge("k2", "Ann", "Bob")]}
DANGLING = {"edge:Knows": [edge("k2", "Ann", "Nobody")]}
TOO_MANY = {"edge:WorksAt": [edge("w2", "Ann", "Acme")]}


def test_an_operation_that_keeps_every_rule_passes() -> None:
    put = {"node:Person": [person("Cy", age=3)], "edge:Knows": [edge("k2", "Cy", "Ann", since=7)]}
    validate(WORKED, deltas(WORKED, GRAPH, put, {}), committed(WORKED, GRAPH))


def test_no_change_passes() -> None:
    validate(WORKED, {}, committed(WORKED, GRAPH))


@pytest.mark.parametrize(
    ("put", "rule"),
    [
        (BAD_ROW | NOT_UNIQUE | TOO_MANY, "range"),
        (BAD_ROW | DANGLING | TOO_MANY, "range"),
        ({"edge:Knows": NOT_UNIQUE["edge:Knows"] + [edge("k3", "Ann", "Nobody")]} | TOO_MANY, "unique"),
        (DANGLING | TOO_MANY, "endpoint"),
        (TOO_MANY, "card"),
    ],
)
def test_the_first_stage_that_finds_something_is_the_one_that_speaks(
    put: Mapping[str, list[Row]], rule: str
) -> None:
    assert [item["rule"] for item in refusal(put).violations] == [rule]


def test_later_stages_read_nothing_once_an_earlier_one_has_spoken() -> None:
    state = committed(WORKED, GRAPH)
    with pytest.raises(ConstraintViolation):
        validate(WORKED, deltas(WORKED, GRAPH, BAD_ROW | TOO_MANY, {}), state)
    assert state.asked == []


def test_row_rules_and_set_rules_can_be_checked_apart() -> None:
    both = deltas(WORKED, GRAPH, BAD_ROW | TOO_MANY, {})
    with pytest.raises(ConstraintViolation, match="@range violation on Person"):
        check_row_rules(WORKED, both)
    with pytest.raises(ConstraintViolation, match="@card violation on edge WorksAt"):
        check_set_rules(WORKED, both, committed(WORKED, GRAPH))


def test_deleting_a_node_whose_edges_stay_is_refused() -> None:
    error = refusal({}, {"node:Company": ["Acme"]})
    assert error.message == "dst 'Acme' not found in Company"
    assert [item["rule"] for item in error.violations] == ["orphan"]


def test_a_stage_reports_all_its_violations_by_type_then_id_then_property() -> None:
    put = {
        "node:Person": [person("b", age=-1), person("a", age=151)],
        "node:Company": [{"id": "z", "name": None, "kind": "private"}],
    }
    error = refusal(put)
    assert error.message == "invalid enum value 'private' for Company.kind (expected: public, startup)"
    assert [(item["type"], item["id"], item["property"]) for item in error.violations] == [
        ("node:Company", "z", "kind"),
        ("node:Company", "z", "name"),
        ("node:Person", "a", "age"),
        ("node:Person", "b", "age"),
    ]
    assert error.details == {"violations": 4, "limit": MAX_REPORTED}


def test_the_error_counts_what_it_does_not_list() -> None:
    error = refusal({"node:Person": [person(f"p{number:04}", age=-1) for number in range(250)]})
    assert len(error.violations) == MAX_REPORTED
    assert error.violations[-1]["id"] == f"p{MAX_REPORTED - 1:04}"
    assert error.details["violations"] == 250


# --- one input ----------------------------------------------------------------------------------------------


def duplicates(catalog: Catalog, rows: list[Row], columns: tuple[str, ...], key: str = "node:T") -> list[str]:
    table = catalog.tables[key]
    found = duplicate_tuples(table, columns, complete_tuples(table, columns, rows_of(table, rows)))
    return [item.message for item in found]


def test_two_records_of_one_key_are_refused_although_they_are_one_row() -> None:
    rows = [person("Ann", age=1), person("Bob"), person("Ann", age=2)]
    assert record_identity(entity_of(WORKED, WORKED.tables["node:Person"])) == ("name",)
    assert duplicates(WORKED, rows, ("name",), "node:Person") == [
        "@unique violation on Person.name: value 'Ann' held by 'Ann' and 'Ann'"
    ]


def test_records_of_one_input_with_one_unique_value_are_refused_whatever_their_ids() -> None:
    rows: list[Row] = [
        {"id": "b", "v": "x"},
        {"id": "a", "v": "x"},
        {"id": "a", "v": "x"},
        {"id": "c", "v": None},
    ]
    assert duplicates(catalog_of("node T { v: String? @unique }"), rows, ("v",)) == [
        "@unique violation on T.v: value 'x' held by 'a' and 'a'",
        "@unique violation on T.v: value 'x' held by 'a' and 'b'",
    ]


def test_a_composite_key_is_repeated_only_as_a_whole() -> None:
    catalog = catalog_of("node T { tenant: String  slot: I32\n @key(tenant, slot) }")
    rows = [{"id": i, "tenant": t, "slot": s} for i, t, s in (("1", "a", 1), ("2", "a", 2), ("1", "a", 1))]
    columns = record_identity(entity_of(catalog, catalog.tables["node:T"]))
    assert duplicates(catalog, rows, columns) == [
        "@unique violation on T.(tenant, slot): value '(a, 1)' held by '1' and '1'"
    ]


def test_an_id_that_is_given_identifies_a_record_where_there_is_no_key() -> None:
    catalog = catalog_of("node T { v: String? }")
    assert record_identity(entity_of(catalog, catalog.tables["node:T"])) == ("id",)
    rows: list[Row] = [{"id": "a", "v": "x"}, {"id": "b", "v": "x"}, {"id": "a", "v": "y"}]
    assert duplicates(catalog, rows, ("id",)) == ["@unique violation on T.id: value 'a' held by 'a' and 'a'"]


def test_edges_of_one_input_may_not_repeat_a_unique_pair_of_ends() -> None:
    (found,) = duplicates(
        WORKED, [edge("k1", "Ann", "Bob"), edge("k2", "Ann", "Bob")], ("src", "dst"), "edge:Knows"
    )
    assert found.endswith("value '(Ann, Bob)' held by 'k1' and 'k2'")


# --- against a naive check of the whole image ---------------------------------------------------------------

IDS = {"node:P": ["p1", "p2", "p3", "p4"], "node:C": ["c1", "c2"]}
EDGE_IDS = [f"e{number}" for number in range(6)]
few = st.integers(0, 2) | st.none()
PERSON: dict[str, st.SearchStrategy[Any]] = {
    "age": few | st.sampled_from([-1, 9, 10]),
    "mail": st.sampled_from([None, "x", "y", "z", "x\n", "X"]),
    "role": st.sampled_from([None, "a", "c"]),
    "w": st.sampled_from([None, 0.0, -0.0, 1.5]),
}


def row_of(key: str) -> st.SearchStrategy[Row]:
    if key == "node:P":
        return st.fixed_dictionaries({"id": st.sampled_from(IDS[key]), **PERSON})
    if key == "node:C":
        named = st.sampled_from(IDS[key]).map(lambda name: {"id": name, "name": name})
        return named | st.just({"id": "c3", "name": None})
    # One id more than there are nodes, so that some edges end nowhere.
    source, target = ([*IDS[node], "nowhere"] for node in naive.ENDS[key])
    return st.fixed_dictionaries(
        {
            "id": st.sampled_from(EDGE_IDS),
            "src": st.sampled_from(source),
            "dst": st.sampled_from(target),
            "n": few,
        }
    )


KEYS = ["node:P", "node:C", "edge:K", "edge:J"]


@st.composite
def states(draw: st.DrawFn) -> Image:
    """A state that could have been committed: rows are kept as long as they break nothing."""
    image: Image = {key: {} for key in KEYS}
    for key in KEYS:
        for row in draw(st.lists(row_of(key), max_size=6)):
            tried = copy.deepcopy(image)
            tried[key][row["id"]] = row
            if naive.is_valid(tried):
                image = tried
    return image


@st.composite
def operations(draw: st.DrawFn) -> tuple[Image, Image, dict[str, TableDelta], dict[str, set[str]]]:
    """A committed image, the image after an operation, its deltas, and the sources whose edges it changed."""
    before = draw(states())
    after = copy.deepcopy(before)
    put: dict[str, list[Row]] = {}
    delete: dict[str, list[str]] = {}
    changed: dict[str, set[str]] = {}
    for key in draw(st.lists(st.sampled_from(KEYS), unique=True)):
        put[key] = list({row["id"]: row for row in draw(st.lists(row_of(key), max_size=4))}.values())
        gone = draw(st.sets(st.sampled_from(sorted(before[key]))) if before[key] else st.just(set[str]()))
        delete[key] = sorted(gone - {row["id"] for row in put[key]})
        touched = [*delete[key], *(row["id"] for row in put[key])]
        changed[key] = {
            before[key][id_]["src"] for id_ in touched if key in naive.ENDS and id_ in before[key]
        }
        for id_ in delete[key]:
            del after[key][id_]
        for row in put[key]:
            after[key][row["id"]] = row
            changed[key] |= {row["src"]} if key in naive.ENDS else set()
    deleted = set(before["node:P"]) - set(after["node:P"])
    sources = {key: found - deleted for key, found in changed.items() if key in naive.ENDS}
    return before, after, deltas(CATALOG, before, put, delete), sources


def refused(changes: dict[str, TableDelta], state: ArrowRows) -> tuple[dict[str, Any], ...]:
    try:
        validate(CATALOG, changes, state)
    except ConstraintViolation as error:
        return error.violations
    return ()


def broken(found: Violations) -> naive.Broken:
    assert found.total == len(found.reported)
    return {(item.table_key, str(item.id), item.message) for item in found}


def clashing(found: Violations) -> naive.Clashes:
    groups: dict[tuple[str, tuple[str, ...], str], set[str]] = {}
    for item in found:
        columns = tuple(item.details["columns"])
        group = groups.setdefault((item.table_key, columns, item.details["held_by"]), set())
        group |= {str(item.id), item.details["held_by"]}
        assert item.message.endswith(f"held by '{item.details['held_by']}' and '{item.id}'")
    return {(key, columns, frozenset(ids)) for (key, columns, _), ids in groups.items()}


@settings(max_examples=200, deadline=None)
@given(operations())
def test_the_changed_rows_tell_as_much_as_the_whole_image(
    operation: tuple[Image, Image, dict[str, TableDelta], dict[str, set[str]]],
) -> None:
    before, after, changes, sources = operation
    state = committed(CATALOG, before)
    rows = Violations.merge(
        row_violations(delta.table, entity_of(CATALOG, delta.table), delta.rows) for delta in changes.values()
    )
    unique, endpoints, card = set_violations(CATALOG, changes, state)
    expected = [
        naive.broken_rows(after),
        naive.clashes(after),
        naive.unresolved(after),
        naive.miscounted(after, sources),
    ]
    assert [broken(rows), clashing(unique), broken(endpoints), broken(card)] == expected
    speaks = next((found for found in (rows, unique, endpoints, card) if found), Violations())
    assert refused(changes, state) == tuple(item.to_json() for item in speaks)
