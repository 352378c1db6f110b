"""Changes between two states: what is told, in which order, and what is no change at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.changes.change_pages import PageBudget
from omnigraph.changes.change_records import EVERYTHING, ChangeFilter, EntityChange
from omnigraph.changes.commit_diff import schema_boundary
from omnigraph.changes.diff import compare_states, stream_changes
from omnigraph.errors import Conflict, InvalidInput, NotFound, ResourceLimit
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang.temporal import EPOCH_TIME
from tests.support.places import fresh_memory
from tests.support.repositories import (
    apply_schema,
    contents,
    make_graph,
    put,
    rewriting,
    staging,
    write,
)

SCHEMA = """
node Person { name: String @key  age: I32?  tags: [String]?  born: Date? }
node City { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge LivesIn: Person -> City
"""


@pytest.fixture
def g() -> og.Graph:
    return og.init(fresh_memory(), schema=SCHEMA, actor="ana")


def people(*names: str, **values: Any) -> dict[str, list[dict[str, Any]]]:
    return {"Person": [{"name": name, **values} for name in names]}


def commit_of(receipt: Any) -> str:
    assert receipt.commit is not None
    return str(receipt.commit.id)


def told(changes: Sequence[EntityChange] | Any) -> list[tuple[str, str, str]]:
    return [(change.op, change.type_name, change.id) for change in changes]


def every_page(g: og.Graph, commit: str, limit: int, **filters: Any) -> list[EntityChange]:
    found: list[EntityChange] = []
    token = None
    while True:
        page = g.changes(commit, limit=limit, page_token=token, **filters)
        assert 0 < len(page) <= limit or (not found and page.next_page_token is None)
        found += page
        token = page.next_page_token
        if token is None:
            return found


class TestACommit:
    def test_changes_of_insert_have_only_after(self, g: og.Graph) -> None:
        done = g.load(people("Ann", age=30, born="1990-01-02"))
        document = g.changes(commit_of(done)).to_json()
        assert document["changes"] == [
            {
                "kind": "node",
                "type": {"id": document["changes"][0]["type"]["id"], "name": "Person"},
                "id": "Ann",
                "op": "insert",
                "after": {"properties": {"age": 30, "born": "1990-01-02", "name": "Ann", "tags": None}},
            }
        ]

    def test_changes_cause_names_the_commit_and_omits_absent_members(self, g: og.Graph) -> None:
        done = g.load(people("Ann"), actor="bo")
        record = g.commit(commit_of(done))
        cause = g.changes(record.id).to_json()["cause"]
        assert cause.pop("authored_at") == (record.created_at - EPOCH_TIME) // timedelta(microseconds=1)
        assert cause == {
            "graph_commit_id": record.id,
            "parent_commit_id": record.parents[0],
            "authored_branch": "main",
            "actor_id": "bo",
        }
        anonymous = og.init(fresh_memory(), schema=SCHEMA)
        assert (
            "actor_id" not in anonymous.changes(commit_of(anonymous.load(people("Ann")))).to_json()["cause"]
        )

    def test_changes_of_update_have_before_after_and_changed_properties(self, g: og.Graph) -> None:
        g.load(people("Ann", age=30))
        done = g.load(people("Ann", age=31, tags=["a"]), mode="merge")
        (change,) = g.changes(commit_of(done))
        assert change.changed == ("age", "tags")
        assert change.before is not None
        assert change.after is not None
        assert (change.before["properties"]["age"], change.after["properties"]["age"]) == (30, 31)
        assert "changed" not in change.to_json()

    def test_changes_distinguish_empty_values_from_null(self, g: og.Graph) -> None:
        g.load(people("Ann"))
        (change,) = g.changes(commit_of(g.load(people("Ann", tags=[]), mode="merge")))
        assert change.changed == ("tags",)

    def test_changes_of_deleted_node_include_its_edges_with_endpoints(self, g: og.Graph) -> None:
        g.load(people("Ann", "Bob"))
        edge = {"edge": "Knows", "from": "Ann", "to": "Bob", "data": {"since": 3}}
        (change,) = g.changes(commit_of(g.load([edge])))
        assert change.after == {"properties": {"since": 3}, "endpoints": {"from": "Ann", "to": "Bob"}}
        gone = g.changes(commit_of(g.mutate('query d() { delete Person where name = "Bob" }')))
        assert told(gone) == [("delete", "Person", "Bob"), ("delete", "Knows", change.id)]
        assert gone.changes[1].before == change.after

    def test_changes_are_ordered_by_kind_type_and_id(self, g: og.Graph) -> None:
        g.load(people("Zoe", "Bob"))
        lines = [
            {"edge": "LivesIn", "from": "Zoe", "to": "Bern"},
            {"edge": "Knows", "from": "Zoe", "to": "Bob"},
            {"type": "Person", "data": {"name": "Ann"}},
            {"type": "Person", "data": {"name": "Zoe", "age": 1}},
            {"type": "City", "data": {"name": "Bern"}},
        ]
        done = g.load(lines, mode="merge")
        found = list(g.changes(commit_of(done)))
        keys = [(change.kind == "edge", change.type_id, change.id) for change in found]
        assert keys == sorted(keys)
        assert len(found) == 5
        assert told(found)[:3] == [
            ("insert", "City", "Bern"),
            ("insert", "Person", "Ann"),
            ("update", "Person", "Zoe"),
        ]

    def test_changes_values_equal_those_of_get(self, g: og.Graph) -> None:
        done = g.load(people("Ann", age=30, born="1990-01-02", tags=["x", "y"]))
        (change,) = g.changes(commit_of(done))
        shown = g.get("Person", "Ann")
        assert shown is not None
        assert change.after is not None
        assert shown == {"id": "Ann", **change.after["properties"]}

    def test_changes_of_equal_rows_are_empty(self, g: og.Graph) -> None:
        g.load(people("Ann", "Bob", age=30))
        done = g.load({"Person": [{"name": "Ann", "age": 30}, {"name": "Bob", "age": 31}]}, mode="merge")
        assert told(g.changes(commit_of(done))) == [("update", "Person", "Bob")]

    def test_changes_of_optimize_are_empty(self, g: og.Graph) -> None:
        for name in ("Ann", "Bob", "Cid"):
            g.load(people(name))
        done = g.optimize()
        assert len(g.changes(commit_of(done))) == 0
        # Another step is needed to see that rearranged rows are not taken for new ones.
        assert told(g.changes(commit_of(g.load(people("Dan"))))) == [("insert", "Person", "Dan")]

    def test_changes_of_first_commit_are_refused(self, g: og.Graph) -> None:
        first = g.commits()[-1].id
        with pytest.raises(Conflict) as caught:
            g.changes(first)
        assert caught.value.details == {
            "change_diff_refusal": {"reason": "parentless_commit", "graph_commit_id": first}
        }

    def test_changes_of_unknown_commit_raise_not_found(self, g: og.Graph) -> None:
        with pytest.raises(NotFound, match="commit 'x' not found"):
            g.changes("x")


class TestFilters:
    @pytest.fixture
    def commit(self, g: og.Graph) -> str:
        g.load(people("Ann", "Bob"))
        lines = [
            {"edge": "Knows", "from": "Ann", "to": "Bob"},
            {"type": "Person", "data": {"name": "Ann", "age": 1}},
            {"type": "City", "data": {"name": "Bern"}},
        ]
        return commit_of(g.load(lines, mode="merge"))

    @pytest.mark.parametrize(
        ("filters", "types"),
        [
            ({"kinds": ["node"]}, ["Person", "City"]),
            ({"kinds": ["edge"]}, ["Knows"]),
            ({"types": ["City", "Knows"]}, ["City", "Knows"]),
            ({"ops": ["update"]}, ["Person"]),
            ({"ops": ["insert"], "kinds": ["node"]}, ["City"]),
            ({"ops": ["delete"]}, []),
        ],
    )
    def test_changes_filter_by_kind_type_and_operation(
        self, g: og.Graph, commit: str, filters: dict[str, Any], types: list[str]
    ) -> None:
        assert sorted(change.type_name for change in g.changes(commit, **filters)) == sorted(types)

    @pytest.mark.parametrize(
        "filters",
        [{"kinds": ["nodes"]}, {"ops": ["upsert"]}, {"types": ["Persn"]}, {"types": "Person"}, {"ops": []}],
    )
    def test_changes_filter_with_unknown_name_is_refused(
        self, g: og.Graph, commit: str, filters: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidInput):
            g.changes(commit, **filters)

    def test_changes_filter_ignores_the_order_of_names(self) -> None:
        one, other = (
            ChangeFilter.of(["node", "edge"], ["B", "A"]),
            ChangeFilter.of(["edge", "node"], ["A", "B"]),
        )
        assert one.fingerprint == other.fingerprint
        assert one.fingerprint != EVERYTHING.fingerprint
        assert ChangeFilter.of(types=["insert"]).fingerprint != ChangeFilter.of(ops=["insert"]).fingerprint


class TestPages:
    @pytest.fixture
    def commit(self, g: og.Graph) -> str:
        g.load(people("A", "B", "C"))
        lines: list[dict[str, Any]] = [{"edge": "Knows", "from": "A", "to": "B"} for _ in range(4)]
        lines += [{"type": "Person", "data": {"name": name, "age": 1}} for name in "ABDEF"]
        lines += [{"type": "City", "data": {"name": name}} for name in "XYZ"]
        return commit_of(g.load(lines, mode="merge"))

    @pytest.mark.parametrize("limit", range(1, 15))
    def test_changes_in_small_pages_equal_one_page(self, g: og.Graph, commit: str, limit: int) -> None:
        whole = list(g.changes(commit))
        assert len(whole) == 12
        assert every_page(g, commit, limit) == whole
        wanted: Any = {"ops": ["insert"], "kinds": ["node"]}
        assert every_page(g, commit, limit, **wanted) == list(g.changes(commit, **wanted))

    def test_changes_page_does_not_open_earlier_types(self, g: og.Graph, commit: str) -> None:
        before, after = g.snapshot(at=g.commit(commit).parents[0]), g.snapshot(at=commit)
        whole = list(stream_changes(compare_states(before, after, EVERYTHING), EVERYTHING))
        diffs = compare_states(before, after, EVERYTHING)
        assert list(stream_changes(diffs, EVERYTHING, whole[-2].key)) == whole[-1:]
        assert ["_stored" in diff.rows.__dict__ for diff in diffs] == [False, False, True]

    def test_changes_limit_out_of_range_is_refused(self, g: og.Graph, commit: str) -> None:
        with pytest.raises(InvalidInput, match="change page limit must be greater than zero"):
            g.changes(commit, limit=0)
        with pytest.raises(ResourceLimit) as caught:
            g.changes(commit, limit=8193)
        assert caught.value.details["resource"] == "commit_changes_page_changes"
        assert len(g.changes(commit, limit=8192)) == 12

    def test_changes_page_ends_before_the_size_limit(self, g: og.Graph) -> None:
        done = g.load({"Person": [{"name": f"p{number}", "tags": ["x" * 1_500_000]} for number in range(5)]})
        sizes = []
        token = None
        for _ in range(10):
            page = g.changes(commit_of(done), page_token=token)
            sizes.append(len(page))
            token = page.next_page_token
            if token is None:
                break
        assert sizes == [2, 2, 1]

    def test_changes_page_has_at_least_one_change(self) -> None:
        change = EntityChange("node", "P", "1", "a", "insert", None, {"properties": {"x": "y" * 100}})
        room = PageBudget(10, 50)
        assert room.take(iter([change, change])) == ((change,), True)
        assert room.take(iter([replace(change, after=None)])) == ((), True)

    def test_changes_token_of_other_commit_or_filter_is_refused(self, g: og.Graph, commit: str) -> None:
        token = g.changes(commit, limit=1).next_page_token
        other = commit_of(g.load(people("Zoe")))
        with pytest.raises(InvalidInput, match=r"^change cursor rejected: "):
            g.changes(other, page_token=token)
        with pytest.raises(InvalidInput, match=r"^change cursor rejected: "):
            g.changes(commit, page_token=token, kinds=["node"])
        with pytest.raises(InvalidInput, match=r"^change cursor rejected: "):
            g.changes(commit, page_token=g.feed().cursor)
        again = og.init(fresh_memory(), schema=SCHEMA)
        with pytest.raises(InvalidInput, match=r"^change cursor rejected: "):
            again.changes(commit_of(again.load(people("Ann"))), page_token=token)


ROWS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "é", "z", "aa", "B"]),
    st.none() | st.sampled_from(["", "x", "y"]),
    max_size=7,
)


@settings(max_examples=25, deadline=None)
@given(first=ROWS, second=ROWS, rearranged=st.booleans())
def test_diff_applied_to_the_first_state_gives_the_second(
    first: dict[str, str | None], second: dict[str, str | None], rearranged: bool
) -> None:
    graph = make_graph(fresh_memory())
    put(graph, {"seed": None})
    before = write(graph, _overwrite(graph.snapshot(), first)).commit
    write(graph, _overwrite(graph.snapshot(), second))
    if rearranged:
        write(graph, rewriting())
    states = graph.snapshot_of(before), graph.snapshot()
    found = list(stream_changes(compare_states(*states, EVERYTHING), EVERYTHING))
    assert [change.id for change in found] == sorted(change.id for change in found)
    state = dict(first)
    for change in found:
        assert (change.before is None) == (change.op == "insert")
        assert (change.after is None) == (change.op == "delete")
        if change.before is not None:
            assert state.pop(change.id) == change.before["properties"]["name"]
        if change.after is not None:
            state[change.id] = change.after["properties"]["name"]
    assert state == second
    unchanged = {key for key in first.keys() & second.keys() if first[key] == second[key]}
    assert not unchanged & {change.id for change in found}
    for diff in compare_states(*states, EVERYTHING):
        counts = diff.count()
        assert counts == {op: sum(item.op == op for item in found) for op in ("insert", "update", "delete")}


def _overwrite(base: Snapshot, rows: dict[str, str | None]) -> Any:
    return staging(rows, list(contents(base)), as_class="strict")


class TestSchemas:
    def test_diff_across_rename_is_empty(self) -> None:
        graph = make_graph(fresh_memory())
        put(graph, {"a": "x"})
        before = graph.snapshot()
        text = """
        node Human @rename_from("Person") { label: String? @rename_from("name") }
        node City { name: String? }
        edge Knows: Human -> Human
        """
        apply_schema(graph, text)
        assert schema_boundary(before, graph.snapshot()) is None
        assert compare_states(before, graph.snapshot(), EVERYTHING) == []
        put(graph, {"a": "y"}, key="node:Human")
        (change,) = stream_changes(compare_states(before, graph.snapshot(), EVERYTHING), EVERYTHING)
        assert (change.type_name, change.changed) == ("Human", ("label",))
        assert (change.before, change.after) == (
            {"properties": {"label": "x"}},
            {"properties": {"label": "y"}},
        )
        assert change.type_id == str(before.table("node:Person").type_id)
        for name in ("Person", "Human"):
            assert len(compare_states(before, graph.snapshot(), ChangeFilter.of(types=[name]))) == 1

    def test_diff_of_added_or_dropped_type_has_inserts_or_deletes(self) -> None:
        graph = make_graph(fresh_memory())
        put(graph, {"a": "x"})
        state = graph.snapshot()
        schema = state.catalog.schema
        bare = replace(state.catalog, schema=replace(schema, nodes=schema.nodes[:1], edges=()))
        assert [node.name for node in bare.schema.nodes] == ["City"]
        without = replace(state, catalog=bare, commit=replace(state.commit, schema="other"))
        assert told(stream_changes(compare_states(without, state, EVERYTHING), EVERYTHING)) == [
            ("insert", "Person", "a")
        ]
        assert told(stream_changes(compare_states(state, without, EVERYTHING), EVERYTHING)) == [
            ("delete", "Person", "a")
        ]
        assert schema_boundary(without, state) is None
        assert schema_boundary(state, without) == "Person"

    def test_changes_of_schema_change_with_new_property_report_boundary(self) -> None:
        graph = make_graph(fresh_memory())
        put(graph, {"a": "x"})
        before = graph.snapshot()
        text = """
        node Person { name: String? }
        node City { name: String?  mayor: String? }
        edge Knows: Person -> Person
        """
        apply_schema(graph, text)
        assert schema_boundary(before, graph.snapshot()) == "City"
        assert schema_boundary(graph.snapshot(), before) == "City"
