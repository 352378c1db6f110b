"""Mutations through the API: what each statement does, in what order, and what is refused."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import (
    Conflict,
    ConstraintViolation,
    InvalidInput,
    NotFound,
    PreconditionFailed,
)
from tests.support.places import fresh_memory

SCHEMA = """
node Person { name: String @key  age: I32?  tags: [String]?  mail: String? @unique  @range(age, 0..150) }
node Firm { name: String @key  kind: enum(public, startup)? }
node Note { text: String  at: DateTime?  day: Date?  score: F64?  vec: Vector(2)?  file: Blob? }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Firm @card(0..1)
"""
OWNING = """
node Owner { name: String @key }
node Thing { name: String @key }
edge Has: Owner -> Thing @card(1..2)
"""
DATA = """
query data() {
  insert Person { name: "Ann", age: 30, tags: ["a", "b"] }
  insert Person { name: "Bob", age: 25 }
  insert Person { name: "Cy", tags: ["b"] }
  insert Person { name: "Di", age: 25, tags: [] }
  insert Firm { name: "Acme" }
  insert Firm { name: "Beta" }
  insert Knows { from: "Ann", to: "Bob", since: date("2020-01-01") }
  insert Knows { from: "Ann", to: "Bob", since: date("2021-01-01") }
  insert Knows { from: "Bob", to: "Cy" }
  insert Knows { from: "Cy", to: "Ann" }
  insert Knows { from: "Di", to: "Di" }
  insert WorksAt { from: "Ann", to: "Acme" }
  insert WorksAt { from: "Bob", to: "Acme" }
  insert WorksAt { from: "Cy", to: "Beta" }
}
"""


@pytest.fixture
def graph() -> og.Graph:
    """The people of the language specification."""
    found = og.init(fresh_memory(), schema=SCHEMA, actor="ana")
    found.mutate(DATA)
    return found


def run(graph: og.Graph, body: str, params: dict[str, Any] | None = None, declared: str = "") -> og.Receipt:
    """Run statements as one mutation."""
    return graph.mutate(f"query q({declared}) {{ {body} }}", params)


def people(graph: og.Graph, at: str | None = None) -> dict[str, int | None]:
    """Every person's age."""
    table = rows(graph, "node:Person", at)
    return {row["name"]: row["age"] for row in table}


def rows(graph: og.Graph, key: str, at: str | None = None) -> list[dict[str, Any]]:
    """Rows by logical column, by id."""
    snapshot = graph.snapshot(at=at)
    table = snapshot.table(key)
    found = snapshot.scan(key, [column.physical for column in table.columns])
    plain = found.rename_columns([column.name for column in table.columns]).to_pylist()
    return sorted(plain, key=lambda row: str(row["id"]))


def knows(graph: og.Graph) -> list[tuple[str, str]]:
    """The ends of every Knows edge."""
    return sorted((row["src"], row["dst"]) for row in rows(graph, "edge:Knows"))


def test_mutate_makes_one_commit_with_its_actor(graph: og.Graph) -> None:
    newest, oldest = graph.commits()
    assert (newest.operation, newest.actor, newest.parents) == ("mutate", "ana", (oldest.id,))
    assert people(graph) == {"Ann": 30, "Bob": 25, "Cy": None, "Di": 25}


def test_insert_of_existing_key_replaces_the_row_and_keeps_edges(graph: og.Graph) -> None:
    receipt = run(graph, 'insert Person { name: "Bob" }')
    assert receipt.affected == {"Person": {"inserted": 0, "updated": 1, "deleted": 0}}
    assert receipt.affected_nodes == 1
    assert people(graph)["Bob"] is None
    assert len(knows(graph)) == 5


def test_insert_of_node_and_edge_to_it_in_one_query(graph: og.Graph) -> None:
    receipt = run(graph, 'insert Knows { from: "Eve", to: "Ann" } insert Person { name: "Eve", age: 4 }')
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 1)
    assert ("Eve", "Ann") in knows(graph)


def test_insert_of_edge_without_endpoint_is_refused_and_writes_nothing(graph: og.Graph) -> None:
    head = graph.commits()[0]
    with pytest.raises(ConstraintViolation, match="dst 'Zed' not found in Person"):
        run(graph, 'insert Person { name: "Eve" } insert Knows { from: "Ann", to: "Zed" }')
    assert graph.commits()[0] == head
    assert "Eve" not in people(graph)


def test_update_sets_named_properties_of_every_match(graph: og.Graph) -> None:
    receipt = run(graph, "update Person set { age: 26 } where age = 25")
    assert receipt.affected == {"Person": {"inserted": 0, "updated": 2, "deleted": 0}}
    assert people(graph) == {"Ann": 30, "Bob": 26, "Cy": None, "Di": 26}
    assert rows(graph, "node:Person")[3]["tags"] == []


def test_where_inequality_does_not_match_null(graph: og.Graph) -> None:
    assert run(graph, "update Person set { age: 1 } where age != 25").affected_nodes == 1


def test_where_compound_predicate_selects_rows(graph: og.Graph) -> None:
    where = 'age is null or (age in [25, 26] and not name starts_with "D")'
    assert run(graph, f"delete Person where {where}").affected_nodes == 2
    assert sorted(people(graph)) == ["Ann", "Di"]


def test_where_list_contains_element_selects_rows(graph: og.Graph) -> None:
    assert run(graph, 'update Person set { age: 9 } where tags contains "b"').affected_nodes == 2


def test_delete_of_node_deletes_its_edges(graph: og.Graph) -> None:
    receipt = run(graph, 'delete Person where name = "Ann"')
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 4)
    assert receipt.affected["Knows"] == {"inserted": 0, "updated": 0, "deleted": 3}
    assert knows(graph) == [("Bob", "Cy"), ("Di", "Di")]


def test_delete_of_node_with_self_loop_counts_the_edge_once(graph: og.Graph) -> None:
    assert run(graph, 'delete Person where name = "Di"').affected_edges == 1


def test_delete_of_edge_by_endpoints(graph: og.Graph) -> None:
    receipt = run(graph, 'delete Knows where from = "Ann"')
    assert (receipt.affected_nodes, receipt.affected_edges) == (0, 2)


def test_mutate_without_match_makes_no_commit(graph: og.Graph) -> None:
    head = graph.commits()[0]
    assert run(graph, "delete Person where age > 90").commit is None
    assert graph.commits()[0] == head


def test_statements_apply_in_order_and_see_earlier_ones(graph: og.Graph) -> None:
    receipt = run(
        graph,
        'insert Person { name: "Q", age: 1 } update Person set { age: 2 } where age = 1'
        ' delete Person where name = "Ann" insert Person { name: "Ann", age: 99 }',
    )
    assert people(graph) == {"Ann": 99, "Bob": 25, "Cy": None, "Di": 25, "Q": 2}
    assert knows(graph) == [("Bob", "Cy"), ("Di", "Di")]
    assert receipt.affected["Person"] == {"inserted": 1, "updated": 1, "deleted": 0}


def test_insert_and_delete_in_one_query_leaves_no_row(graph: og.Graph) -> None:
    head = graph.commits()[0]
    receipt = run(graph, 'insert Person { name: "Q" } delete Person where name = "Q"')
    assert receipt.commit is None
    assert graph.commits()[0] == head


def test_upsert_and_delete_of_committed_row_counts_as_deleted(graph: og.Graph) -> None:
    receipt = run(graph, 'insert Person { name: "Bob", age: 1 } delete Person where age = 1')
    assert receipt.affected["Person"] == {"inserted": 0, "updated": 0, "deleted": 1}


def test_many_inserts_move_each_row_a_bounded_number_of_times(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = []
    concat_tables = pa.concat_tables

    def counted(tables: Iterable[pa.Table], **options: Any) -> pa.Table:
        found = concat_tables(tables, **options)
        moved.append(found.num_rows)
        return found

    monkeypatch.setattr(pa, "concat_tables", counted)
    people_in = [f'insert Person {{ name: "n{number}", age: {number % 100} }}' for number in range(300)]
    edges_in = ['insert Knows { from: "Ann", to: "Bob" }'] * 300
    receipt = run(graph, " ".join([*people_in, 'insert Person { name: "n7", age: 8 }', *edges_in]))
    assert (receipt.affected_nodes, receipt.affected_edges) == (301, 300)
    assert sum(moved) <= 5 * 600
    assert people(graph)["n7"] == 8
    assert len(people(graph)) == 304


def test_unique_value_freed_by_earlier_statement_is_reusable(graph: og.Graph) -> None:
    run(graph, 'update Person set { mail: "x@y" } where name = "Ann"')
    run(
        graph,
        'update Person set { mail: null } where name = "Ann"'
        ' update Person set { mail: "x@y" } where name = "Bob"',
    )
    with pytest.raises(ConstraintViolation, match=r"@unique violation on Person\.mail: value 'x@y'"):
        run(graph, 'update Person set { mail: "x@y" } where name = "Cy"')


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('insert Person { name: "N", age: 151 }', "@range violation on Person.age: value 151 > max 150"),
        ('insert WorksAt { from: "Ann", to: "Beta" }', "source 'Ann' has 2 edges \\(max 1\\)"),
        ('insert Firm { name: "F", kind: $k }', "invalid enum value 'private'"),
    ],
)
def test_constraints_are_checked_after_the_last_statement(graph: og.Graph, body: str, message: str) -> None:
    with pytest.raises((ConstraintViolation, InvalidInput), match=message):
        run(graph, body, {"k": "private"}, "$k: String?")
    assert len(graph.commits()) == 2


def test_move_of_edge_within_cardinality_is_accepted(graph: og.Graph) -> None:
    run(graph, 'delete WorksAt where from = "Ann" insert WorksAt { from: "Ann", to: "Beta" }')
    assert len(rows(graph, "edge:WorksAt")) == 3


@pytest.mark.parametrize(
    "body",
    [
        'insert Has { from: "ghost", to: "q" } delete Has where from = "ghost"',
        'insert Has { from: "bare", to: "q" } delete Has where from = "bare"',
        'insert Owner { name: "new" } insert Has { from: "new", to: "q" } delete Has where from = "new"',
        'insert Has { from: "bare", to: "q" } delete Thing where name = "q" insert Thing { name: "q" }',
    ],
)
def test_edge_inserted_and_deleted_in_one_query_does_not_count_for_cardinality(body: str) -> None:
    graph = og.init(fresh_memory(), schema=OWNING)
    run(graph, 'insert Owner { name: "bare" } insert Thing { name: "q" }')
    run(graph, body)
    assert rows(graph, "edge:Has") == []


def test_delete_of_committed_edge_below_minimum_cardinality_is_refused() -> None:
    graph = og.init(fresh_memory(), schema=OWNING)
    run(graph, 'insert Owner { name: "a" } insert Thing { name: "q" } insert Has { from: "a", to: "q" }')
    with pytest.raises(ConstraintViolation, match=r"source 'a' has 0 edges \(min 1\)"):
        run(graph, 'insert Has { from: "a", to: "q" } delete Has where from = "a"')


def test_insert_stores_values_exactly(graph: og.Graph) -> None:
    declared = "$t: String, $at: DateTime, $d: Date, $v: Vector(2), $s: F64, $f: Blob"
    values = {
        "t": "ünï\ncode 'quoted'",
        "at": "2024-02-29T23:59:59.123Z",
        "d": "1969-12-31",
        "v": [0.5, -1.25],
        "s": 1,
        "f": "base64:AAEC",
    }
    body = "insert Note { text: $t, at: $at, day: $d, vec: $v, score: $s, file: $f }"
    run(graph, body, values, declared)
    (row,) = rows(graph, "node:Note")
    assert row["text"] == values["t"]
    assert row["at"].isoformat() == "2024-02-29T23:59:59.123000"
    assert row["day"] == dt.date(1969, 12, 31)
    assert (row["vec"], row["score"]) == ([0.5, -1.25], 1.0)
    assert row["file"] == {"data": b"\x00\x01\x02", "uri": None}
    assert len(row["id"]) == 26


def test_update_of_key_is_refused(graph: og.Graph) -> None:
    with pytest.raises(InvalidInput, match="cannot update @key property 'name'"):
        run(graph, 'update Person set { name: "X" } where name = "Ann"')


def test_mutate_with_read_query_is_refused(graph: og.Graph) -> None:
    with pytest.raises(InvalidInput, match="is a read"):
        graph.mutate("query q() { match { $p: Person } return { $p } }")


def test_mutate_if_commit_with_other_head_is_refused(graph: og.Graph) -> None:
    head = graph.commits()[0]
    insert = 'query q() { insert Person { name: "N" } }'
    with pytest.raises(PreconditionFailed):
        graph.mutate(insert, if_commit=head.parents[0])
    assert graph.mutate(insert, if_commit=head.id).commit is not None


def test_mutate_with_repeated_idempotency_key_commits_once(graph: og.Graph) -> None:
    insert = 'query q() { insert Note { text: "once" } }'
    first = graph.mutate(insert, idempotency_key="k")
    again = graph.mutate(insert, idempotency_key="k")
    assert again.replayed
    assert again.commit == first.commit
    assert len(rows(graph, "node:Note")) == 1
    with pytest.raises(Conflict, match="different request"):
        graph.mutate('query q() { insert Note { text: "other" } }', idempotency_key="k")


def test_mutate_with_a_key_compares_parameters_by_value() -> None:
    graph = og.init(
        fresh_memory(), "node T { s: String  n: F64?  tags: [String]?  v: Vector(300)?  d: Date? }"
    )
    insert = (
        "query q($s: String, $n: F64?, $tags: [String]?, $v: Vector(300)?, $d: Date?)"
        " { insert T { s: $s, n: $n, tags: $tags, v: $v, d: $d } }"
    )
    vector = np.arange(300, dtype=np.float32)
    first = {"s": "a", "n": 1.0, "tags": ["x", "y"], "v": vector, "d": None}
    commit = graph.mutate(insert, first, idempotency_key="k").commit
    same: list[dict[str, Any]] = [
        dict(reversed(first.items())),
        {**first, "n": 1},
        {**first, "v": vector.tolist()},
        {name: value for name, value in first.items() if name != "d"},
    ]
    for params in same:
        again = graph.mutate(insert, params, idempotency_key="k")
        assert (again.replayed, again.commit) == (True, commit)
    changed = vector.copy()
    changed[150] = 7
    others: list[dict[str, Any]] = [
        {**first, "s": "b"},
        {**first, "n": 1.5},
        {**first, "n": None},
        {**first, "tags": ["y", "x"]},
        {**first, "v": changed},
        {**first, "d": dt.date(2026, 5, 4)},
    ]
    for params in others:
        with pytest.raises(Conflict, match="different request"):
            graph.mutate(insert, params, idempotency_key="k")


def test_mutate_on_branch_changes_neither_main_nor_earlier_states(graph: og.Graph) -> None:
    before = graph.commits()[0]
    graph.branches.create("review/x")
    graph.mutate('query q() { delete Person where name = "Ann" }', branch="review/x")
    assert "Ann" in people(graph)
    assert "Ann" not in people(graph, graph.commits("review/x")[0].id)
    graph.branches.delete("review/x")
    with pytest.raises(NotFound):
        graph.mutate('query q() { insert Person { name: "N" } }', branch="review/x")
    assert people(graph, before.id) == people(graph)


def test_concurrent_strict_writers_have_one_winner_and_conflicts(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "g"), schema=SCHEMA, durability="os")
    run(graph, 'insert Person { name: "Ann", age: 0 }')
    outcomes: list[str] = []
    start = threading.Barrier(6)

    def bump(number: int) -> None:
        start.wait()
        try:
            run(og.open(graph.uri), f'update Person set {{ age: {number} }} where name = "Ann"')
        except Conflict as error:
            outcomes.append(error.details["table_key"])
        else:
            outcomes.append("done")

    threads = [threading.Thread(target=bump, args=(number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(graph.commits()) == 2 + outcomes.count("done")
    assert outcomes.count("done") >= 1
    assert set(outcomes) <= {"done", "node:Person"}, "a conflict names its table"


def test_concurrent_writers_cannot_jointly_violate_a_constraint(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "g"), schema=SCHEMA, durability="os")
    graph.mutate(DATA)
    start = threading.Barrier(2)
    errors: list[Exception] = []

    def attempt(body: str) -> None:
        start.wait()
        try:
            run(og.open(graph.uri), body)
        except (Conflict, ConstraintViolation) as error:
            errors.append(error)

    bodies = ('delete Person where name = "Di"', 'insert Knows { from: "Bob", to: "Di" }')
    threads = [threading.Thread(target=attempt, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ends = {end for edge in knows(graph) for end in edge}
    assert ends <= set(people(graph)), "an edge is left without its node"


def test_pickle_of_a_handle_reopens_the_graph(tmp_path: Path) -> None:
    import pickle

    graph = og.init(str(tmp_path / "g"), schema=SCHEMA, actor="ana", durability="os")
    twin = pickle.loads(pickle.dumps(graph))
    run(twin, 'insert Person { name: "N" }')
    assert graph.commits()[0].actor == "ana"
    assert people(graph) == {"N": None}


VALUES: dict[str, Any] = {
    "text": "x",
    "n": 1.5,
    "tags": ["a", "b"],
    "vec": [1.0, 2.0],
    "day": "2026-05-04",
    "at": "2026-05-04T12:00:00Z",
    "file": "base64:aGk=",
    "none": None,
}
ALL_TYPES = """
node T {
  name: String @key  text: String?  n: F64?  tags: [String]?  vec: Vector(2)?
  day: Date?  at: DateTime?  file: Blob?  none: I32?
}
"""
UPSERT = """
query q($name: String, $text: String?, $n: F64?, $tags: [String]?, $vec: Vector(2)?, $day: Date?,
        $at: DateTime?, $file: Blob?, $none: I32?)
{ insert T { name: $name, text: $text, n: $n, tags: $tags, vec: $vec, day: $day, at: $at, file: $file,
             none: $none } }
"""


def test_upsert_of_equal_values_makes_no_commit() -> None:
    graph = og.init(fresh_memory(), ALL_TYPES)
    given = {"name": "a", **VALUES}
    assert graph.mutate(UPSERT, given).commit is not None
    # Twice, because the second mutation knows the address of the row.
    for handle in (graph, graph, og.open(graph.uri)):
        again = handle.mutate(UPSERT, given)
        assert (again.commit, again.affected, again.affected_nodes) == (None, {}, 0)
    assert len(graph.commits()) == 2
    changes: dict[str, Any] = {
        "text": "",
        "n": None,
        "tags": ["b", "a"],
        "vec": [1.0, 2.5],
        "day": "2026-05-05",
        "at": "2026-05-04T12:00:00.001Z",
        "file": "base64:aGg=",
        "none": 0,
    }
    for name, value in changes.items():
        done = graph.mutate(UPSERT, {**given, name: value})
        assert done.affected == {"T": {"inserted": 0, "updated": 1, "deleted": 0}}, name
        assert graph.mutate(UPSERT, given).commit is not None, name


def test_update_to_equal_values_makes_no_commit(graph: og.Graph) -> None:
    graph.mutate('query q() { insert Person { name: "Uma", age: 7, tags: ["a"] } }')
    head = graph.commits()[0]
    for assigned in ("age: 7", 'tags: ["a"]', "mail: null"):
        statement = f'query q() {{ update Person set {{ {assigned} }} where name = "Uma" }}'
        assert graph.mutate(statement).commit is None
    assert graph.commits()[0] == head
    # One row that changes is enough.
    both = 'query q() { insert Person { name: "Uma", age: 7, tags: ["a"] }  insert Person { name: "Ulf" } }'
    assert graph.mutate(both).commit is not None


def test_delete_and_insert_of_an_equal_row_checks_constraints_first(graph: og.Graph) -> None:
    with pytest.raises(ConstraintViolation):
        graph.mutate('query q() { insert Person { name: "Uma", age: 999 } }')
    edge = 'query q() { insert Person { name: "Uma" }  insert Knows { from: "Uma", to: "Uma" } }'
    assert graph.mutate(edge).commit is not None
    assert graph.mutate(edge).affected["Knows"]["inserted"] == 1


@pytest.mark.parametrize(
    "body",
    [
        'update Person set { age: 31 } where name = "Ann"  update Person set { age: 30 } where name = "Ann"',
        'insert Person { name: "Bob", age: 1 }  update Person set { age: 25 } where name = "Bob"',
        'delete Firm where name = "Free"  insert Firm { name: "Free", kind: "startup" }',
        """insert Firm { name: "New" }  delete Firm where name = "New"
           update Firm set { kind: "startup" } where name = "Free" """,
        """update Person set { age: 9 } where age = 25  update Person set { age: 25 } where age = 9
           insert Person { name: "Eve" }  delete Person where name = "Eve" """,
    ],
)
@pytest.mark.parametrize("warm", [True, False])
def test_mutation_without_net_change_makes_no_commit(graph: og.Graph, body: str, warm: bool) -> None:
    run(graph, 'insert Firm { name: "Free", kind: "startup" }')
    before = (graph.commits(), rows(graph, "node:Person"), rows(graph, "node:Firm"))
    done = run(graph if warm else og.open(graph.uri), body)
    assert (done.commit, done.affected) == (None, {})
    assert (graph.commits(), rows(graph, "node:Person"), rows(graph, "node:Firm")) == before


@pytest.mark.parametrize(
    "body",
    [
        """update Person set { age: 31 } where name = "Ann"
           update Person set { age: 30, tags: ["a"] } where name = "Ann" """,
        'update Person set { age: 9 } where age = 25  update Person set { age: 25 } where name = "Bob"',
        'insert Firm { name: "Free" }  delete Firm where name = "Free"',
        'delete Firm where name = "Free"  insert Firm { name: "Free" }',
    ],
)
def test_mutation_that_restores_only_a_part_makes_a_commit(graph: og.Graph, body: str) -> None:
    run(graph, 'insert Firm { name: "Free", kind: "startup" }')
    graph.branches.create("cold")
    query = f"query q() {{ {body} }}"
    assert og.open(graph.uri).mutate(query, branch="cold").commit is not None
    assert graph.mutate(query).commit is not None


@pytest.mark.parametrize("warm", [True, False])
def test_update_by_key_and_other_terms_changes_the_row_only_if_all_hold(graph: og.Graph, warm: bool) -> None:
    handle = graph if warm else og.open(graph.uri)
    if warm:
        # The handle knows the ids after its first lookup by key.
        run(handle, 'update Person set { age: 31 } where name = "Ann"')
    for where, count in [
        ('name = "Bob" and age = 25', 1),
        ('name = "Bob" and age = 99', 0),
        ('name = "Nobody"', 0),
        ('name = "Bob" and name = "Cy"', 0),
        ('name = "Bob" or name = "Cy"', 2),
        ('not name = "Bob"', 3),
        ("name = $who", 1),
    ]:
        statement = (
            f'query q($who: String) {{ update Person set {{ tags: ["{len(where)}"] }} where {where} }}'
        )
        assert handle.mutate(statement, {"who": "Di"}).affected_nodes == count, where


def test_update_by_composite_and_integer_keys_finds_the_row_of_equal_values() -> None:
    graph = og.init(
        fresh_memory(),
        """node Pair { a: I32  b: String  v: I32?  @key(b, a) }
        node Day { day: Date @key  v: I32? }""",
    )
    run(
        graph,
        'insert Pair { a: 1, b: "x" }  insert Pair { a: 2, b: "x" }  insert Day { day: date("2026-01-02") }',
    )
    for number, (statement, count) in enumerate(
        [
            ('Pair set {{ v: {} }} where a = 1 and b = "x"', 1),
            ('Pair set {{ v: {} }} where a = 1.0 and b = "x"', 1),
            ('Pair set {{ v: {} }} where a = 1.5 and b = "x"', 0),
            ("Pair set {{ v: {} }} where a = 1", 1),
            ('Day set {{ v: {} }} where day = date("2026-01-02")', 1),
        ],
        start=1,
    ):
        assert run(graph, f"update {statement.format(number)}").affected_nodes == count, statement


def test_delete_node_deletes_edges_at_both_ends(graph: og.Graph) -> None:
    run(graph, 'insert Knows { from: "Bob", to: "Ann" }')
    done = run(graph, 'delete Person where name = "Ann"')
    # Two to Bob, one from Cy, one from Bob.
    assert done.affected["Knows"]["deleted"] == 4
    assert knows(graph) == [("Bob", "Cy"), ("Di", "Di")]
