"""Differences, changes, feeds and baselines from Python, on graphs that branch, merge and change their schemas."""

from __future__ import annotations

import asyncio
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import Conflict, InvalidInput, NotFound, PreconditionFailed
from tests.support.places import fresh_memory

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"


@pytest.fixture
def g() -> og.Graph:
    graph = og.init(fresh_memory(), schema=SCHEMA)
    graph.load({"Person": [{"name": name, "age": 30} for name in ("Ann", "Bob", "Cid")]})
    return graph


def add(name: str) -> str:
    return f'query add() {{ insert Person {{ name: "{name}" }} }}'


def age(name: str, years: int) -> str:
    return f'query age() {{ update Person set {{ age: {years} }} where name = "{name}" }}'


def done(receipt: Any) -> str:
    return str(receipt.commit.id)


def told(changes: Any) -> list[tuple[str, str]]:
    return [(change.op, change.id) for change in changes]


def test_change_feed_example_of_the_guide_gives_its_results(g: og.Graph) -> None:
    loaded, genesis = (commit.id for commit in g.commits())
    g.branches.create("dev")
    second = done(g.mutate(add("Eve"), branch="dev"))
    third = done(g.mutate(age("Ann", 31)))
    merged = g.branches.merge("dev")
    fourth = done(merged)
    assert merged.outcome == "merged"
    assert g.commit(fourth).parents == (third, second)
    assert g.branches.merge("dev").outcome == "already_up_to_date"
    back = g.branches.merge("main", into="dev")
    assert (back.outcome, g.commit(done(back)).parents) == ("fast_forward", (second, fourth))
    page = g.changes(fourth)
    assert told(page) == [("insert", "Eve")]
    assert page.to_json()["cause"]["merged_parent_commit_id"] == second
    feed = g.feed(start="beginning")
    assert [block.cause.graph_commit_id for block in feed] == [loaded, third, fourth]
    assert told(g.changes(done(back))) == [("update", "Ann")]
    with pytest.raises(Conflict) as caught:
        g.changes(genesis)
    assert caught.value.details["change_diff_refusal"]["reason"] == "parentless_commit"
    with pytest.raises(PreconditionFailed):
        g.mutate(add("Fay"), if_commit=third)


def test_feed_reports_a_revert_as_changes(g: og.Graph) -> None:
    commit = done(g.mutate(add("Eve")))
    assert told(g.changes(done(g.revert(commit)))) == [("delete", "Eve")]


class TestDiff:
    def test_diff_accepts_branch_commit_time_and_snapshot(self, g: og.Graph) -> None:
        start = g.snapshot()
        g.branches.create("dev")
        g.mutate(add("Eve"), branch="dev")
        for before in ("main", start, start.commit_id, " main "):
            assert told(g.diff(before, "dev")) == [("insert", "Eve")]
            assert told(g.diff("dev", before)) == [("delete", "Eve")]
        later = done(g.mutate(age("Ann", 40)))
        assert told(g.diff(start.commit_id, later)) == [("update", "Ann")]
        assert told(g.diff(g.commits()[1].created_at, "main")) == [("update", "Ann")]

    def test_branch_name_in_the_form_of_a_commit_id_is_refused(self, g: og.Graph) -> None:
        loaded = g.commits()[0].id
        g.mutate(add("Eve"))
        with pytest.raises(InvalidInput, match="has the form of a commit id"):
            g.branches.create(loaded)
        assert told(g.diff(loaded, "main")) == [("insert", "Eve")]

    def test_diff_of_unknown_name_raises_not_found(self, g: og.Graph) -> None:
        with pytest.raises(NotFound, match="'nowhere' is neither a branch, a tag nor a commit"):
            g.diff("main", "nowhere")

    def test_diff_can_be_iterated_twice_and_counted(self, g: og.Graph) -> None:
        g.branches.create("dev")
        g.load(
            [
                {"type": "Person", "data": {"name": "Ann", "age": 31}},
                {"type": "Person", "data": {"name": "Eve"}},
                {"edge": "Knows", "from": "Ann", "to": "Eve"},
            ],
            mode="merge",
            branch="dev",
        )
        g.mutate('query d() { delete Person where name = "Cid" }', branch="dev")
        diff = g.diff("main", "dev")
        assert list(diff) == list(diff)
        assert diff.stats() == {
            "Person": {"insert": 1, "update": 1, "delete": 1},
            "Knows": {"insert": 1, "update": 0, "delete": 0},
        }
        assert diff.commits == (g.snapshot().commit_id, g.snapshot("dev").commit_id)
        assert repr(diff) == f"Diff({diff.commits[0]} -> {diff.commits[1]})"
        assert g.diff("main", "dev", ops=["insert"], kinds=["node"]).stats() == {
            "Person": {"insert": 1, "update": 0, "delete": 0}
        }

    def test_diff_json_lists_edges_before_nodes_without_values(self, g: og.Graph) -> None:
        g.branches.create("dev")
        lines = [{"type": "Person", "data": {"name": "Eve"}}, {"edge": "Knows", "from": "Ann", "to": "Eve"}]
        g.load(lines, branch="dev")
        document = g.diff("main", "dev").to_json()
        edge, node = document["changes"]
        versions = {key: pin.number for key, pin in g.snapshot("dev").types.items()}
        assert node == {
            "kind": "node",
            "type_name": "Person",
            "id": "Eve",
            "op": "insert",
            "published_dataset_version": versions["node:Person"],
        }
        assert (edge["kind"], edge["endpoints"]) == ("edge", {"src": "Ann", "dst": "Eve"})
        assert {key: value for key, value in document.items() if key != "changes"} == {
            "from_graph_manifest_version": 2,
            "to_graph_manifest_version": 3,
            "graph_branch": "dev",
            "stats": {
                "Person": {"insert": 1, "update": 0, "delete": 0},
                "Knows": {"insert": 1, "update": 0, "delete": 0},
            },
        }
        assert "graph_branch" not in g.diff("dev", g.snapshot()).to_json()

    def test_diff_across_optimize_opens_no_table(self, g: og.Graph) -> None:
        g.mutate(add("Eve"))
        before = g.snapshot()
        assert g.optimize().commit is not None
        diff = og.open(g.uri).diff(before.commit_id, "main")
        assert list(diff) == []
        assert not diff.after.tables._open

    def test_diff_of_equal_states_of_two_branches_is_empty(self, g: og.Graph) -> None:
        g.branches.create("dev")
        for branch in ("main", "dev"):
            g.mutate(add("Eve"), branch=branch)
        assert list(g.diff("main", "dev")) == []


class TestSchemaChanges:
    WIDER = "node Person { name: String @key  age: I32?  town: String? }\nedge Knows: Person -> Person"
    RENAMED = (
        'node Human @rename_from("Person") { name: String @key  years: I32? @rename_from("age") }\n'
        "edge Knows: Human -> Human"
    )

    @pytest.mark.parametrize("backfill", [None, {"Person.town": "Bern"}])
    def test_changes_at_new_property_are_refused_and_diff_is_not(
        self, g: og.Graph, backfill: dict[str, Any] | None
    ) -> None:
        before = g.snapshot().commit_id
        applied = done(g.schema.apply(self.WIDER, backfill=backfill))
        with pytest.raises(Conflict) as caught:
            g.changes(applied)
        assert caught.value.details == {
            "change_diff_refusal": {
                "reason": "schema_boundary",
                "type_name": "Person",
                "graph_commit_id": applied,
            }
        }
        changes = list(g.diff(before, applied))
        assert told(changes) == (
            [] if backfill is None else [("update", name) for name in ("Ann", "Bob", "Cid")]
        )
        for change in changes:
            assert change.changed == ("town",)
            assert change.before == {"properties": {"age": 30, "name": change.id}}
            assert change.after == {"properties": {"age": 30, "name": change.id, "town": "Bern"}}
        after = done(g.mutate(age("Ann", 31)))
        (change,) = g.changes(after)
        assert change.after == {
            "properties": {"age": 31, "name": "Ann", "town": (backfill or {}).get("Person.town")}
        }
        (change,) = (change for change in g.diff(before, after) if change.id == "Ann")
        assert change.changed == (("age",) if backfill is None else ("age", "town"))

    def test_feed_at_dropped_property_reports_schema_boundary(self, g: og.Graph) -> None:
        applied = done(g.schema.apply("node Person { name: String @key }\nedge Knows: Person -> Person"))
        with pytest.raises(Conflict, match="Person"):
            g.changes(applied)
        (change,) = g.changes(done(g.mutate(add("Eve"))))
        assert change.after == {"properties": {"name": "Eve"}}

    def test_feed_at_rename_has_empty_block(self, g: og.Graph) -> None:
        page = g.changes(done(g.schema.apply(self.RENAMED)))
        assert len(page) == 0
        (change,) = g.changes(
            done(g.mutate('query u() { update Human set { years: 3 } where name = "Ann" }'))
        )
        assert (change.type_name, change.changed) == ("Human", ("years",))

    def test_feed_at_new_type_has_empty_block(self, g: og.Graph) -> None:
        assert len(g.changes(done(g.schema.apply(SCHEMA + "\nnode City { name: String @key }")))) == 0

    def test_feed_at_dropped_type_with_rows_reports_schema_boundary(self, g: og.Graph) -> None:
        wide = SCHEMA + "\nnode City { name: String @key }\nnode Firm { name: String @key }"
        g.schema.apply(wide)
        g.load({"City": [{"name": "Bern"}]})
        first = g.snapshot().commit_id
        without_firm = done(g.schema.apply(SCHEMA + "\nnode City { name: String @key }"))
        assert len(g.changes(without_firm)) == 0
        without_city = done(g.schema.apply(SCHEMA))
        with pytest.raises(Conflict, match="City"):
            g.changes(without_city)
        assert told(g.diff(first, "main")) == [("delete", "Bern")]

    def test_changes_of_type_declared_again_have_another_type_id(self, g: og.Graph) -> None:
        schema = SCHEMA + "\nnode City { name: String @key }"
        ids = []
        for _ in range(2):
            g.schema.apply(schema)
            (change,) = g.changes(done(g.load({"City": [{"name": "Bern"}]})))
            ids.append(change.type_id)
            g.schema.apply(SCHEMA)
        assert ids[0] != ids[1]


class TestBaseline:
    def test_feed_from_baseline_cursor_starts_at_the_next_commit(self, g: og.Graph, tmp_path: Path) -> None:
        path = tmp_path / "people.ndjson"
        found = g.baseline(path)
        *records, last = [json.loads(line) for line in path.read_text().splitlines()]
        assert [record["data"]["name"] for record in records] == ["Ann", "Bob", "Cid"]
        assert last == {
            "baseline": {
                "snapshot_commit_id": g.snapshot().commit_id,
                "resume_cursor": found.resume_cursor,
            }
        }
        assert g.feed(cursor=found.resume_cursor).blocks == ()
        after = done(g.mutate(add("Eve")))
        assert [block.cause.graph_commit_id for block in g.feed(cursor=found.resume_cursor)] == [after]
        assert sorted(item.name for item in tmp_path.iterdir()) == ["people.ndjson"]

    def test_baseline_loads_back(self, g: og.Graph, tmp_path: Path) -> None:
        g.load([{"edge": "Knows", "from": "Ann", "to": "Bob"}])
        g.baseline(tmp_path / "all.ndjson")
        *lines, _ = (tmp_path / "all.ndjson").read_text().splitlines()
        again = og.init(fresh_memory(), schema=SCHEMA)
        again.load(json.loads(line) for line in lines)
        one, other = StringIO(), StringIO()
        g.export(one)
        again.export(other)
        assert one.getvalue() == other.getvalue()

    def test_baseline_filter_by_operation_applies_to_the_cursor_only(self, g: og.Graph) -> None:
        g.load([{"edge": "Knows", "from": "Ann", "to": "Bob"}])
        text = StringIO()
        found = g.baseline(text, kinds=["node"], ops=["delete"])
        assert len(text.getvalue().splitlines()) == 3 + 1
        text = StringIO()
        g.baseline(text, types=["Knows"])
        assert len(text.getvalue().splitlines()) == 1 + 1
        g.mutate('query d() { delete Person where name = "Bob" }')
        page = g.feed(cursor=found.resume_cursor, kinds=["node"], ops=["delete"])
        assert [told(block.changes) for block in page] == [[("delete", "Bob")]]
        with pytest.raises(InvalidInput, match=r"^change cursor rejected: "):
            g.feed(cursor=found.resume_cursor)
        with pytest.raises(InvalidInput, match="unknown type"):
            g.baseline(StringIO(), types=["Nobody"])

    def test_baseline_concurrent_writers_of_one_file_raise_conflict(
        self, g: og.Graph, tmp_path: Path
    ) -> None:
        from omnigraph.api.files.baseline_files import _locked

        path = tmp_path / "b.ndjson"
        with _locked(path), pytest.raises(Conflict, match="another process is writing"):
            g.baseline(path)
        assert list(tmp_path.iterdir()) == []
        # A file that a process left when it died holds nobody up.
        (tmp_path / "b.ndjson.lock").touch()
        g.baseline(path)
        assert list(tmp_path.iterdir()) == [path]

    def test_baseline_that_fails_keeps_the_previous_file(self, g: og.Graph, tmp_path: Path) -> None:
        path = tmp_path / "b.ndjson"
        path.write_text("old")
        with pytest.raises(InvalidInput):
            g.baseline(path, types=["Nobody"])
        with pytest.raises(NotFound):
            g.baseline(path, branch="nowhere")
        assert path.read_text() == "old"


def test_async_changes_match_the_synchronous_ones(tmp_path: Path) -> None:
    async def work() -> None:
        async with og.aio.init(fresh_memory(), schema=SCHEMA) as g:
            start = (await g.baseline(tmp_path / "b.ndjson")).resume_cursor
            commit = done(await g.load({"Person": [{"name": "Ann"}]}))
            assert told(await g.changes(commit)) == [("insert", "Ann")]
            page = await g.feed(cursor=start)
            assert [told(block.changes) for block in page] == [[("insert", "Ann")]]
            first = (await g.commits())[-1].id
            assert told(await g.diff(first, "main")) == [("insert", "Ann")]

    asyncio.run(work())
