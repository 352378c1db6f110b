"""Reading and changing the rows of one type without a query text."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from tests.support.places import fresh_memory

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
  born: Date?
  seen: DateTime?
  picture: Blob?
}
edge Knows: Person -> Person { since: Date? }
"""
PEOPLE: list[dict[str, Any]] = [
    {"name": "Ana", "age": 30, "born": "1990-05-01", "seen": "2024-01-01T00:00:00Z"},
    {"name": "Bo", "age": 20},
    {"name": "Cy"},
]


@pytest.fixture
def graph() -> og.Graph:
    graph = og.init(fresh_memory(), schema=SCHEMA, actor="ana")
    graph.insert("Person", PEOPLE)
    graph.insert("Knows", [{"from": "Ana", "to": "Bo", "since": "2020-01-01"}, {"from": "Bo", "to": "Cy"}])
    return graph


@pytest.mark.parametrize(
    ("where", "params", "expected"),
    [
        (None, None, ["Ana", "Bo", "Cy"]),
        ("age > 20", None, ["Ana"]),
        ("age is null or (not age = $old and name != $n)", {"old": 30, "n": "x"}, ["Bo", "Cy"]),
        ("name in $names", {"names": ("Cy", "Bo")}, ["Bo", "Cy"]),
        ("born = $day", {"day": date(1990, 5, 1)}, ["Ana"]),
        ("seen <= $at", {"at": datetime(2024, 1, 1, tzinfo=UTC)}, ["Ana"]),
        ({"name": 'Ana"; drop'}, None, []),
        ({"age": 20, "name": ["Ana", "Bo"]}, None, ["Bo"]),
        ({"age": None}, None, ["Cy"]),
        ({}, None, ["Ana", "Bo", "Cy"]),
    ],
)
def test_nodes_with_condition_returns_the_matching_nodes(
    graph: og.Graph, where: Any, params: Any, expected: list[str]
) -> None:
    assert graph.nodes("Person", where, params, order_by="name")["name"] == expected


def test_nodes_returns_id_and_all_properties_except_blobs(graph: og.Graph) -> None:
    result = graph.nodes("Person", {"name": "Bo"})
    assert result.rows() == [{"id": "Bo", "age": 20, "born": None, "name": "Bo", "seen": None}]
    assert result.table.schema.field("born").type == pa.date32()


def test_nodes_with_columns_order_and_limit(graph: og.Graph) -> None:
    result = graph.nodes("Person", columns=["age", "id"], order_by=["age desc", "name"], limit=2)
    assert result.rows() == [{"age": 30, "id": "Ana"}, {"age": 20, "id": "Bo"}]


def test_edges_returns_endpoints_and_properties(graph: og.Graph) -> None:
    first, second = graph.edges("Knows", order_by="since desc").rows()
    assert graph.get("Knows", first["id"]) == first
    assert (first["from"], first["to"], first["since"]) == ("Ana", "Bo", "2020-01-01")
    assert second["since"] is None
    assert graph.edges("Knows", "since is null", columns=["to", "id"]).rows() == [
        {"to": "Cy", "id": second["id"]}
    ]
    assert graph.edges("Knows", columns=["to", "from"], order_by="since").columns == ["to", "from"]


def test_nodes_on_branch_and_at_commit_reads_that_state(graph: og.Graph) -> None:
    before = graph.snapshot().commit_id
    graph.branches.create("trial")
    graph.insert("Person", {"name": "Di"}, branch="trial")
    assert len(graph.nodes("Person", branch="trial")) == 4
    assert len(graph.nodes("Person")) == len(graph.nodes("Person", branch="trial", at=before)) == 3


def test_frame_has_the_rows_of_each_library(graph: og.Graph) -> None:
    options: dict[str, Any] = {"where": "age > 0", "columns": ["name", "age"], "order_by": "age"}
    expected = [{"name": "Bo", "age": 20}, {"name": "Ana", "age": 30}]
    assert graph.frame("Person", **options).to_dict("records") == expected
    assert graph.frame("Person", **options, library="polars").to_dicts() == expected
    assert graph.frame("node:Person", **options, library="arrow").to_pylist() == expected
    assert list(graph.frame("Knows").columns) == ["id", "from", "to", "since"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.nodes("Persn"), "unknown node type `Persn`"),
        (lambda g: g.nodes("Person", "agee > 3"), "no property `agee`"),
        (lambda g: g.nodes("Person", "age > "), "where:1:"),
        (lambda g: g.nodes("Person", "age > 3 delete Person where age > 3"), "expected one condition"),
        (lambda g: g.nodes("Person", "age > $x"), "parameter 'x' not provided"),
        (lambda g: g.nodes("Person", {"age": float("nan")}), "got nan"),
        (lambda g: g.nodes("Person", {"age > 3 or age": 1}), "expected a property name"),
        (lambda g: g.nodes("Person", {"seen": datetime(2024, 1, 1)}), "has no time zone"),  # noqa: DTZ001
        (lambda g: g.nodes("Person", columns=[]), "at least one column"),
        (lambda g: g.nodes("Person", columns=["agee"]), "no property `agee`"),
        (lambda g: g.nodes("Person", order_by="age downwards"), "order_by"),
        (lambda g: g.nodes("Person", limit=-1), "limit"),
        (lambda g: g.frame("Persn"), "unknown type 'Persn'"),
        (lambda g: g.frame("Person", library="excel"), "expected 'pandas', 'polars' or 'arrow'"),
        (lambda g: g.insert("Person", {"name": "Di", "agee": 3}), "agee"),
        (lambda g: g.delete("Person", 3.5), "expected"),
    ],
)
def test_invalid_argument_of_a_typed_call_raises_invalid_input(
    graph: og.Graph, call: Any, message: str
) -> None:
    head = graph.snapshot().commit_id
    with pytest.raises((og.errors.InvalidInput, og.errors.NotFound)) as raised:
        call(graph)
    assert message in str(raised.value)
    assert graph.snapshot().commit_id == head


def test_insert_of_existing_key_raises_and_changes_nothing(graph: og.Graph) -> None:
    with pytest.raises(og.errors.ConstraintViolation):
        graph.insert("Person", [{"name": "Di"}, {"name": "Ana", "age": 1}])
    assert graph.get("Person", "Di") is None


def test_upsert_keeps_properties_that_are_not_given(graph: og.Graph) -> None:
    receipt = graph.upsert("Person", [{"name": "Ana", "age": 31}, {"name": "Di"}], message="news", actor="bo")
    assert receipt.affected == {"Person": {"inserted": 1, "updated": 1, "deleted": 0}}
    assert receipt.commit is not None
    assert (receipt.commit.message, receipt.commit.actor) == ("news", "bo")
    ana = graph.get("Person", "Ana")
    assert ana is not None
    assert (ana["age"], ana["born"]) == (31, "1990-05-01")


def test_delete_removes_nodes_with_their_edges_and_ignores_unknown_ids(graph: og.Graph) -> None:
    receipt = graph.delete("Person", ["Bo", "Zoe"])
    assert receipt.affected["Person"]["deleted"] == 1
    assert len(graph.edges("Knows")) == 0
    assert graph.delete("Person", "Zoe").commit is None


def test_typed_write_with_other_head_or_repeated_key(graph: og.Graph) -> None:
    head = graph.snapshot().commit_id
    first = graph.upsert("Person", {"name": "Di"}, idempotency_key="k", if_commit=head)
    again = graph.upsert("Person", {"name": "Di"}, idempotency_key="k")
    assert again.replayed
    assert again.commit == first.commit
    with pytest.raises(og.errors.PreconditionFailed):
        graph.delete("Person", "Di", if_commit=head)
