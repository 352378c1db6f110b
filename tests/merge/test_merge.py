"""Merges of states: which side's tables are kept never shows, and what one side alone changed is not read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import NotFound
from omnigraph.graph.repository import Repository
from omnigraph.maintain.cleanup import cleanup
from tests.merge.merges import (
    SCHEMA,
    Record,
    change,
    column,
    edge,
    head,
    kinds,
    make,
    node,
    only,
    person,
    put,
    refused,
    state,
)

LoadMode: TypeAlias = Literal["append", "merge"]

OTHER = {"main": "theirs", "theirs": "main"}


def people(graph: og.Graph, branch: str, ids: range, age: int, mode: LoadMode = "merge") -> None:
    """Many people at once."""
    names = [f"p{number:07}" for number in ids]
    rows = pa.table({"name": names, "age": pa.array(np.full(len(names), age, np.int32))})
    graph.load({"Person": rows}, mode, branch=branch)


def pins(graph: og.Graph, branch: str = "main") -> dict[str, tuple[str, int]]:
    """The version of every table that a branch stands on."""
    snapshot = graph.snapshot(branch)
    found = {key: snapshot.pin(key) for key in snapshot.catalog.tables}
    return {key: (pin.path, pin.version) for key, pin in found.items()}


# --- which side is kept -----------------------------------------------------------------------------------------


def base_rows() -> list[Record]:
    return [
        *(person(f"base{number}", age=1) for number in range(8)),
        node("City", "Rom"),
        *(edge("Knows", f"k{number}", f"base{number}", "base7", since=1) for number in range(4)),
    ]


def diverge(graph: og.Graph) -> None:
    """Inserts, updates, moves and deletes on both sides, some of the same entities."""
    put(graph, person("base0", age=2), person("base1", age=1, team="x"), person("ours"))
    put(graph, edge("Knows", "k0", "base0", "base6", since=1), edge("Knows", "mine", "ours", "base1"))
    change(graph, 'delete Person where name = "base3"')
    put(graph, person("base1", age=3), person("base2", age=3), person("new"), branch="theirs")
    put(graph, edge("Knows", "k0", "base0", "base7", since=2), branch="theirs")
    put(graph, edge("Knows", "your", "new", "base2"), branch="theirs")
    change(graph, 'delete Person where name = "base3"\n delete Person where name = "base4"', "theirs")


MERGED_AGES = {
    "base0": 2,
    "base1": 3,
    "base2": 3,
    "base5": 1,
    "base6": 1,
    "base7": 1,
    "ours": None,
    "new": None,
}
MERGED_EDGES = {
    "k0": ("base0", "base6", 2),
    "k1": ("base1", "base7", 1),
    "k2": ("base2", "base7", 1),
    "mine": ("ours", "base1", None),
    "your": ("new", "base2", None),
}


def check_merged(graph: og.Graph) -> None:
    found = state(graph)
    assert {id_: row["age"] for id_, row in found["Person"].items() if id_[:4] != "fill"} == MERGED_AGES
    assert found["Person"]["base1"]["team"] == "x"
    assert {
        id_: (row["src"], row["dst"], row["since"])
        for id_, row in found["Knows"].items()
        if id_[:4] != "fill"
    } == MERGED_EDGES


def fill(graph: og.Graph, branch: str) -> None:
    """Make one side the larger in both types."""
    names = [f"fill{number:02}" for number in range(40)]
    put(graph, *map(person, names), *(edge("Knows", name, name, "base7") for name in names), branch=branch)


def compact(graph: og.Graph, branch: str) -> None:
    assert graph.optimize(branch=branch).commit is not None


def rewrite_equal(graph: og.Graph, branch: str) -> None:
    """Store every row again with the values that it has."""
    rows = state(graph, branch)
    records = [
        person(**{key: value for key, value in row.items() if key != "id"}) for row in rows["Person"].values()
    ]
    for row in rows["Knows"].values():
        rest = {key: row[key] for key in ("since", "code")}
        records.append(edge("Knows", row["id"], row["src"], row["dst"], **rest))
    # With a row that is new, because a load that changes nothing stores nothing.
    put(graph, *records, person("Temporary"), branch=branch)
    change(graph, 'delete Person where name = "Temporary"', branch)


@pytest.mark.parametrize("larger", [None, "main", "theirs"])
@pytest.mark.parametrize(
    ("disturb", "disturbed"),
    [(None, ""), (compact, "main"), (compact, "theirs"), (rewrite_equal, "main"), (rewrite_equal, "theirs")],
)
def test_merge_result_is_independent_of_sizes_and_fragments(
    larger: str | None, disturb: Callable[[og.Graph, str], None] | None, disturbed: str
) -> None:
    graph = make(records=base_rows())
    graph.branches.create("theirs")
    diverge(graph)
    if larger is not None:
        fill(graph, larger)
    if disturb is not None:
        disturb(graph, disturbed)
    assert graph.branches.merge("theirs").outcome == "merged"
    check_merged(graph)
    filled = sum(id_.startswith("fill") for id_ in state(graph)["Person"])
    assert filled == (0 if larger is None else 40)
    # The indexes of the version that was kept, or their lack, do not show either.
    assert graph.get("Person", "base2") is not None
    assert graph.get("Person", "base4") is None


@pytest.mark.parametrize("larger", ["main", "theirs"])
def test_merge_counts_changes_of_ours_and_adopts_the_version_of_theirs(larger: str) -> None:
    graph = make(records=[person(name, age=1) for name in "abcdef"])
    graph.branches.create("theirs")
    put(graph, *(person(f"fill{number}") for number in range(40)), branch=larger)
    smaller = OTHER[larger]
    put(graph, person("a", age=2), person("new1"), person("new2"), branch=smaller)
    change(graph, 'delete Person where name = "b"', smaller)
    done = graph.branches.merge("theirs")
    if larger == "main":
        assert done.affected == {"Person": {"inserted": 2, "updated": 1, "deleted": 1}}
        assert done.taken == ()
    else:
        assert (done.affected, done.taken) == ({}, ("Person",))
    assert column(graph, "age") == {
        "a": 2,
        **dict.fromkeys("cdef", 1),
        **{f"fill{number}": None for number in range(40)},
        "new1": None,
        "new2": None,
    }


@pytest.mark.parametrize(("larger", "count"), [("main", 5_000), ("theirs", 5_000), ("theirs", 210_000)])
def test_merge_of_many_rows_with_few_rows(larger: str, count: int) -> None:
    graph = make()
    people(graph, "main", range(count), 1, "append")
    graph.branches.create("theirs")
    people(graph, larger, range(count), 2)
    put(graph, person("p0000001", age=1, team="x"), person("few"), branch=OTHER[larger])
    change(graph, 'delete Person where name = "p0000002"', OTHER[larger])
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("delete_vs_update", "Person", "p0000002", None)]
    resolve = "ours" if larger == "theirs" else "theirs"
    graph.branches.merge("theirs", resolve=resolve)
    snapshot = graph.snapshot()
    table = snapshot.table("node:Person")
    rows = snapshot.scan("node:Person")
    assert rows.num_rows == snapshot.pin("node:Person").rows == count
    ages = rows[table.physical("age")].to_numpy(zero_copy_only=False)
    assert (ages == 2).sum() == count - 1
    assert graph.get("Person", "p0000001") == {
        "id": "p0000001", "name": "p0000001", "age": 2, "mail": None, "team": "x",
    }  # fmt: skip
    assert graph.get("Person", "p0000002") is None


def clean(graph: og.Graph) -> None:
    """Remove all that no head needs, and no pair of branches to be merged."""
    cleanup(Repository.open(graph.uri), keep=1, confirm=True, grace=timedelta(0))


@pytest.mark.parametrize("larger", ["main", "theirs"])
def test_merge_after_cleanup_succeeds(tmp_path: Path, larger: str) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    graph.load(base_rows())
    graph.branches.create("theirs")
    diverge(graph)
    fill(graph, larger)
    compact(graph, larger)
    clean(graph)
    og.open(graph.uri).branches.merge("theirs")
    check_merged(graph)


def test_merge_with_reclaimed_base_names_the_state(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    first = put(graph, person("a", age=1))
    put(graph, person("a", age=2))
    compact(graph, "main")
    clean(graph)
    with pytest.raises(NotFound) as caught:
        og.open(graph.uri).revert(first.id)
    assert caught.value.details["reason"] == "reclaimed"


# --- what is not read -------------------------------------------------------------------------------------------


def test_merge_adopts_versions_of_types_changed_on_one_side() -> None:
    graph = make(records=base_rows())
    graph.branches.create("theirs")
    put(graph, node("City", "Ulm"), branch="theirs")
    put(graph, person("Ann"))
    ours, theirs = pins(graph), pins(graph, "theirs")
    done = graph.branches.merge("theirs")
    assert (done.outcome, done.affected, done.taken) == ("merged", {}, ("City",))
    assert pins(graph) == {**ours, "node:City": theirs["node:City"]}


def test_merge_does_not_read_adopted_versions(tmp_path: Path) -> None:
    root = tmp_path / "graph"
    graph = og.init(str(root), schema=SCHEMA)
    graph.load(base_rows())
    graph.branches.create("theirs")
    put(graph, node("City", "Ulm"), branch="theirs")
    put(graph, person("Ann"))
    expected = state(graph, "theirs")["City"]
    hidden = [(path, path.read_bytes()) for path in (root / "nodes").rglob("*.lance")]
    for path, _ in hidden:
        path.unlink()
    fresh = og.open(str(root))
    assert fresh.branches.merge("theirs").taken == ("City",)
    for path, content in hidden:
        path.write_bytes(content)
    assert state(og.open(str(root)))["City"] == expected


def test_merge_fast_forward_reads_nothing_and_adopts_all_changes() -> None:
    graph = make(records=base_rows())
    graph.branches.create("theirs")
    put(graph, person("Ann"), branch="theirs")
    put(graph, edge("Knows", "k", "Ann", "base1"), branch="theirs")
    done = graph.branches.merge("theirs")
    assert (done.outcome, done.affected, done.taken) == ("fast_forward", {}, ("Person", "Knows"))
    assert pins(graph) == pins(graph, "theirs")


def test_merge_of_edges_and_new_nodes_adopts_both_versions() -> None:
    graph = make(records=base_rows())
    graph.branches.create("theirs")
    put(graph, edge("Knows", "k", "base5", "base6"), branch="theirs")
    put(graph, person("Ann"))
    done = graph.branches.merge("theirs")
    assert (done.affected, done.taken) == ({}, ("Knows",))


@pytest.mark.parametrize("deletes", ["main", "theirs"])
def test_merge_of_edge_to_rewritten_node_has_no_orphan(deletes: str) -> None:
    graph = make(records=base_rows())
    graph.branches.create("theirs")
    put(graph, person("base5", age=9), branch=deletes)
    put(graph, edge("Knows", "k", "base5", "base6"), branch=OTHER[deletes])
    graph.branches.merge("theirs")
    assert column(graph, "age")["base5"] == 9
    assert "k" in state(graph)["Knows"]


@pytest.mark.parametrize("deletes", ["main", "theirs"])
@pytest.mark.parametrize("compacted", ["main", "theirs"])
def test_merge_of_edge_to_deleted_node_is_an_orphan_conflict(deletes: str, compacted: str) -> None:
    graph = make(records=base_rows())
    graph.branches.create("theirs")
    change(graph, 'delete Person where name = "base5"', deletes)
    put(graph, edge("Knows", "k", "base5", "base6"), branch=OTHER[deletes])
    graph.optimize(branch=compacted)
    assert kinds(refused(graph, "theirs")) == [("orphan_edge", "Knows", "k", "from")]


# --- histories --------------------------------------------------------------------------------------------------


def test_merge_repeated_brings_only_new_changes() -> None:
    graph = make(records=[person("a", age=0)])
    graph.branches.create("theirs")
    for turn in range(1, 5):
        change(graph, f'update Person set {{ age: {turn} }} where name = "a"', "theirs")
        change(graph, f'update Person set {{ team: "{turn}" }} where name = "a"')
        assert graph.branches.merge("theirs").outcome == "merged"
        assert state(graph)["Person"]["a"] == {
            "id": "a", "name": "a", "age": turn, "mail": None, "team": str(turn),
        }  # fmt: skip
        graph.branches.merge("main", "theirs")


def test_merge_over_a_chain_of_branches() -> None:
    graph = make(records=[person("a", age=0)])
    graph.branches.create("one")
    graph.branches.create("two", "one")
    put(graph, person("two"), branch="two")
    put(graph, person("one"), branch="one")
    put(graph, person("main"))
    assert graph.branches.merge("two", "one").outcome == "merged"
    assert graph.branches.merge("one").outcome == "merged"
    assert column(graph, "age").keys() == {"a", "one", "two", "main"}
    assert graph.branches.merge("two").outcome == "already_up_to_date"
    assert graph.branches.merge("main", "two").outcome == "fast_forward"
    assert state(graph, "two") == state(graph)


def test_merge_of_nested_branch_into_main() -> None:
    graph = make(records=[person("a", age=0)])
    graph.branches.create("one")
    put(graph, person("one"), branch="one")
    graph.branches.create("two", "one")
    put(graph, person("two"), branch="two")
    graph.branches.delete("one")
    put(graph, person("main"))
    assert graph.branches.merge("two").outcome == "merged"
    assert column(graph, "age").keys() == {"a", "one", "two", "main"}


def test_merge_of_branch_created_at_old_commit_uses_it_as_base() -> None:
    graph = make(records=[person("a", age=0)])
    old = head(graph)
    put(graph, person("a", age=1))
    put(graph, person("b"))
    graph.branches.create("theirs", at=old)
    put(graph, person("a", age=0, team="x"), person("c"), branch="theirs")
    graph.branches.merge("theirs")
    assert state(graph)["Person"]["a"]["age"] == 1
    assert state(graph)["Person"]["a"]["team"] == "x"
    assert state(graph)["Person"].keys() == {"a", "b", "c"}


def test_merge_of_deleted_source_raises_not_found() -> None:
    graph = make(records=[person("a")])
    graph.branches.create("theirs")
    put(graph, person("b"), branch="theirs")
    graph.branches.delete("theirs")
    with pytest.raises(NotFound, match="branch 'theirs' not found"):
        graph.branches.merge("theirs")
    graph.branches.create("theirs")
    assert graph.branches.merge("theirs").outcome == "already_up_to_date"
