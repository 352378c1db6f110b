"""Schema changes through the API: each step with data before and after, on any branch, through time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, NotFound, PreconditionFailed
from tests.support.places import fresh_memory
from tests.support.schema_changes import ANN, CASES, START, count, edited, lines, make, person


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with make(tmp_path / "graph") as made:
        yield made


# A branch is checked for every step. The steps on main that write rows, and one that does not, are enough.
ON_MAIN = ("rename_type", "drop_type", "backfill_values", "hard_drop_property")


@pytest.mark.parametrize(
    ("name", "branch"),
    [
        *((name, "dev") for name in CASES),
        *(pytest.param(name, "main", marks=() if name in ON_MAIN else pytest.mark.long) for name in CASES),
    ],
)
def test_apply_any_step_changes_one_branch_and_keeps_it_usable(
    graph: og.Graph, name: str, branch: str
) -> None:
    case = CASES[name]
    if branch != "main":
        graph.branches.create(branch)
    before, head, source = lines(graph), graph.commits()[0], graph.schema.source()
    wanted = graph.schema.plan(
        case.text, branch=branch, backfill=case.backfill, allow_data_loss=case.allow_data_loss
    )
    assert lines(graph, branch=branch) == before

    done = case.apply(graph, branch=branch, message="why", actor="bo")

    assert done.applied
    assert done.plan == wanted
    assert sorted(step.to_json()["kind"] for step in done.plan.steps) == sorted(case.steps)
    assert done.commit is not None
    assert (done.commit.operation, done.commit.branch, done.commit.parents) == (
        "schema_apply",
        branch,
        (head.id,),
    )
    assert (done.commit.message, done.commit.actor) == ("why", "bo")
    assert done.commit.sequence == head.sequence + 1 == done.to_json()["graph_manifest_version"]
    assert graph.schema.source(branch) == case.text
    if branch != "main":
        assert graph.schema.source() == source
        assert graph.commits()[0] == head
        assert lines(graph) == before
    elif not case.allow_data_loss:
        assert lines(graph, at=head.id) == before
    assert graph.schema.source(at=head.id) == source
    assert graph.get(case.type, "ann", branch=branch) == case.ann

    graph.load({case.type: [case.row]}, branch=branch)
    graph.load({case.type: [case.another("eve")]}, "merge", branch=branch)
    graph.mutate(
        f'query q() {{ update {case.type} set {{ tags: ["z"] }} where name = "bob" }}', branch=branch
    )
    graph.mutate(f'query q() {{ delete {case.type} where name = "cyd" }}', branch=branch)
    ask = f"query q() {{ match {{ $p: {case.type} }} return {{ $p.name as n, $p.tags as t }} order {{ n }} }}"
    told = [(row["n"], row["t"]) for row in graph.query(ask, branch=branch)]
    assert told == [("ann", ["a", "ann"]), ("bob", ["z"]), ("dan", None), ("eve", None)]
    friends = (
        f"query q() {{ match {{ $p: {case.type} $p knows $q }} return {{ $p.name as n, $q.tags as t }} }}"
    )
    assert graph.query(friends, branch=branch).rows() == [{"n": "ann", "t": ["z"]}]
    after = lines(graph, branch=branch)

    assert graph.optimize(branch=branch).commit is not None
    assert lines(graph, branch=branch) == after
    assert graph.get(case.type, "ann", branch=branch) == case.ann
    with og.open(graph.uri, durability="os") as other:
        assert lines(other, branch=branch) == after
        assert other.schema.apply(case.text, branch=branch, backfill=case.backfill).applied is False


@pytest.mark.parametrize("name", ["drop_required", "backfill_values", "add_property", "hard_drop_property"])
def test_overwrite_after_schema_change_replaces_rows(graph: og.Graph, name: str) -> None:
    case = CASES[name]
    case.apply(graph)
    graph.load({"Person": [case.row], "Knows": [], "WorksAt": []}, "overwrite")
    found = graph.get("Person", "dan")
    assert found is not None
    assert {key: found[key] for key in case.row} == case.row
    assert count(graph, "Person") == 1


def test_export_after_schema_change_has_the_new_columns_in_every_format(
    graph: og.Graph, tmp_path: Path
) -> None:
    case = CASES["backfill_values"]
    case.apply(graph)
    graph.export(f"{tmp_path / 'lines'}/", format="ndjson")
    graph.export(f"{tmp_path / 'tables'}/", format="parquet")
    tables = {path.name: f"{path}/" for path in (tmp_path / "tables").glob("*/*") if path.is_dir()}
    for source in (str(tmp_path / "lines"), tables):
        copy = og.init(fresh_memory(), case.text)
        copy.load(source)
        assert lines(copy) == lines(graph)


def test_property_dropped_and_declared_again_has_no_old_values(graph: og.Graph) -> None:
    first = graph.commits()[0].id
    graph.schema.apply(edited(("  age: I32?\n", "")))
    graph.schema.apply(START)
    assert graph.get("Person", "ann") == {**ANN, "age": None}
    graph.mutate('query q() { update Person set { age: 5 } where name = "ann" }')
    assert graph.get("Person", "ann") == {**ANN, "age": 5}
    assert graph.get("Person", "ann", at=first) == ANN


def test_property_renamed_to_a_dropped_name_keeps_its_values() -> None:
    text = "node P { name: String @key  a: I32?  b: I32? }"
    g = og.init(fresh_memory(), text)
    g.load({"P": [{"name": "x", "a": 1, "b": 2}]})
    ask = "query q() { match { $p: P  $p.a > 0 } return { $p.a as a } }"
    assert g.query(ask).rows() == [{"a": 1}]
    g.schema.apply('node P { name: String @key  t: I32? @rename_from("a")  b: I32? }')
    g.schema.apply('node P { name: String @key  t: I32?  a: I32? @rename_from("b") }')
    assert g.query(ask).rows() == [{"a": 2}]
    assert g.get("P", "x") == {"id": "x", "name": "x", "t": 1, "a": 2}


def test_type_dropped_and_declared_again_is_empty(graph: og.Graph) -> None:
    first, before = graph.commits()[0].id, lines(graph)
    graph.schema.apply(CASES["drop_type"].text)
    assert not any("Firm" in line for line in lines(graph))
    with pytest.raises(InvalidInput):
        graph.query("query q() { match { $f: Firm } return { $f.slug } }")
    graph.schema.apply(START)
    assert count(graph, "Firm") == 0
    graph.load({"Firm": [{"slug": "y"}]})
    assert count(graph, "Firm") == 1
    assert lines(graph, at=first) == before


def test_hard_drop_makes_earlier_states_unreadable(graph: og.Graph) -> None:
    first = graph.commits()[0].id
    graph.schema.apply(CASES["drop_type"].text, allow_data_loss=True)
    with pytest.raises(NotFound, match="or by a schema change that allowed data loss"):
        lines(graph, at=first, types=["Firm"])
    with og.open(graph.uri, "r") as other, pytest.raises(NotFound, match="reclaimed"):
        lines(other, at=first, types=["WorksAt"])
    assert graph.get("Person", "ann", at=first) == ANN
    with pytest.raises(NotFound, match="reclaimed"):
        graph.branches.create("back", at=first)
    graph.cleanup(keep=1, confirm=True)
    assert graph.get("Person", "ann") == ANN


def test_hard_drop_removes_the_bytes_of_the_property(tmp_path: Path) -> None:
    root = tmp_path / "g"
    g = og.init(str(root), "node P { name: String @key  secret: String }", durability="os")
    g.load({"P": [{"name": f"n{n}", "secret": f"hush-{n}-{'x' * 40}"} for n in range(20)]})
    g.mutate('query q() { insert P { name: "late", secret: "hush-late" } }')

    def mentions() -> list[Path]:
        return [path for path in root.rglob("*") if path.is_file() and b"hush-" in path.read_bytes()]

    assert mentions()
    g.schema.apply("node P { name: String @key }", allow_data_loss=True)
    assert mentions() == []
    assert count(g, "P") == 21


def test_hard_drop_without_permission_on_protected_branch_keeps_its_history(tmp_path: Path) -> None:
    def rule(id_: str, actor: str, scope: str) -> dict[str, Any]:
        actions = ["branch_create", "branch_delete", "schema_apply"]
        return {
            "id": id_,
            "allow": {"actors": {"group": actor}, "actions": actions, "target_branch_scope": scope},
        }

    policy = {
        "version": 1,
        "groups": {"ann": ["ann"], "bob": ["bob"], "all": ["ann", "bob"]},
        "protected_branches": ["main"],
        "rules": [
            {"id": "r", "allow": {"actors": {"group": "all"}, "actions": ["read", "change"]}},
            rule("a", "ann", "protected"),
            rule("b", "bob", "unprotected"),
        ],
    }
    kept, old, gone = (f"node {name} {{ name: String @key }}\n" for name in ("Kept", "Old", "Gone"))
    ann = og.init(str(tmp_path / "g"), kept + old + gone, actor="ann", policy=policy)
    rows = [{"name": "x"}]
    ann.load({"Old": rows, "Gone": rows})
    early = ann.commits()[0].id
    ann.schema.apply(kept + gone)
    bob = ann.acting_as("bob")
    bob.branches.create("mine", at=early)
    assert bob.schema.apply(kept + gone, allow_data_loss=True, branch="mine").applied
    bob.branches.delete("mine")
    assert ann.get("Old", "x", at=early) == {"id": "x", "name": "x"}
    ann.schema.apply(kept, allow_data_loss=True)
    with pytest.raises(NotFound, match="reclaimed"):
        ann.get("Gone", "x", at=early)


def test_hard_drop_keeps_the_data_of_other_branches(graph: og.Graph) -> None:
    early = graph.commits()[0].id
    graph.mutate('query q() { insert Firm { slug: "y" } }')
    graph.branches.create("dev")
    before = lines(graph, branch="dev")
    text = CASES["drop_type"].text.replace("  code: String\n", "")
    graph.schema.apply(text, allow_data_loss=True)
    assert lines(graph, branch="dev") == before
    with pytest.raises(NotFound, match="reclaimed"):
        lines(graph, at=early, types=["Firm"])
    graph.mutate('query q() { insert Firm { slug: "z" } }', branch="dev")
    graph.load({"Person": [person("dan")]}, branch="dev")
    assert count(graph, "Firm", branch="dev") == 3
    assert count(graph, "Person", branch="dev") == 4
    graph.schema.apply(text, allow_data_loss=True, branch="dev")
    assert count(graph, "Person", branch="dev") == 4
    graph.cleanup(keep=1, confirm=True)
    assert count(graph, "Person", branch="dev") == 4


def test_soft_drop_keeps_earlier_states_readable(graph: og.Graph) -> None:
    first, before = graph.commits()[0].id, lines(graph)
    graph.schema.apply(CASES["drop_type"].text)
    assert lines(graph, at=first) == before


def test_apply_if_commit_with_other_head_is_refused(graph: og.Graph) -> None:
    first = graph.commits()[1].id
    text = CASES["add_type"].text
    with pytest.raises(PreconditionFailed):
        graph.schema.apply(text, if_commit=first)
    assert graph.schema.apply(text, if_commit=graph.commits()[0].id).applied


def test_apply_without_steps_makes_no_commit(graph: og.Graph) -> None:
    head = graph.commits()[0]
    done = graph.schema.apply("// the same\n" + START)
    assert (done.applied, done.commit, done.plan.steps) == (False, None, ())
    assert done.to_json() == {
        "supported": True,
        "applied": False,
        "step_count": 0,
        "graph_manifest_version": head.sequence,
        "steps": [],
    }
    assert graph.commits()[0] == head


def test_apply_on_missing_branch_raises_not_found(graph: og.Graph) -> None:
    with pytest.raises(NotFound, match="branch 'nope' not found"):
        graph.schema.apply(CASES["add_type"].text, branch="nope")


def test_branches_with_different_schemas_stay_usable(graph: og.Graph) -> None:
    graph.branches.create("dev")
    graph.schema.apply(edited(("  age: I32?\n", "  age: I32?\n  here: I32?\n")))
    graph.schema.apply(edited(("  age: I32?\n", "  age: I32?\n  there: I32?\n")), branch="dev")
    graph.load({"Person": [person("dan", here=1)]})
    graph.load({"Person": [person("dan", there=2)]}, branch="dev")
    here, there = graph.get("Person", "dan"), graph.get("Person", "dan", branch="dev")
    assert here is not None
    assert there is not None
    assert (here["here"], there["there"]) == (1, 2)
    assert "there" not in here


def test_async_apply_changes_the_schema(tmp_path: Path) -> None:
    async def work() -> tuple[bool, bool]:
        async with og.aio.init(str(tmp_path / "g"), "node P { name: String @key }", durability="os") as g:
            text = "node P { name: String @key  x: I32 }"
            plan = await g.schema.plan(text, backfill={"P.x": 1})
            done = await g.schema.apply(text, backfill={"P.x": 1})
            return plan.supported, done.applied

    assert asyncio.run(work()) == (True, True)
