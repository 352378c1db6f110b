"""Merges, reverts and schema changes on a graph whose branches were made for them.

Every write leaves the same rows each time. Rows of both tables go in pairs, as everywhere in `workload`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from omnigraph.graph.repository import Repository
from omnigraph.merge import state_merge
from tests.support.api_writes import as_graph

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph

SCHEMA: Final = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: I32? }
node City { name: String @key  size: I32? }
node Tag { name: String @key  rank: I32? }
"""
FOUNDER: Final = "founder"


@dataclass(frozen=True, slots=True)
class MergeWrite:
    """A write on a branch. `source` is the branch that it merges there, `doomed` one that it deletes afterwards."""

    act: Callable[[Repository], str]
    branch: str
    source: str | None = None
    doomed: str | None = None


# --- the graph ------------------------------------------------------------------------------------------------


def make_branches(repository: Repository) -> None:
    """Add rows, and branches that have moved apart in all the ways that the writes here start from."""
    graph = as_graph(repository)
    _pairs(graph, "main", {"pair-0": 0, "pair-1": 1, "pair-2": 2, "pair-3": 3, "pair-4": 4})
    _load(graph, "main", {"City": [{"name": "bern", "size": 1}], "Tag": [{"name": "red", "rank": 1}]})
    for name in ("behind", "left", "right", "cities", "undone", "widened"):
        graph.branches.create(name)
    _load(graph, "cities", {"City": [{"name": "rome", "size": 2}]})
    _change(graph, "left", delete=["pair-1"], put={"pair-2": 22, "pair-20": 20, "pair-21": 21})
    _change(graph, "right", delete=["pair-4"], put={"pair-3": 33, "pair-30": 30})
    _change(graph, "undone", delete=["pair-0"], put={"pair-1": 111, "pair-40": 40})
    _change(graph, "undone", put={"pair-2": 222, "pair-41": 41})
    graph.schema.apply(_with("node City {", "node City { mayor: String? "), branch="widened", actor=FOUNDER)
    _change(graph, "widened", put={"pair-2": 23})
    # Earlier versions of a type that is dropped: with a hard drop they go as well.
    _load(graph, "main", {"Tag": [{"name": "red", "rank": 2}, {"name": "blue", "rank": 3}]})
    _load(graph, "main", {"Tag": [{"name": "green", "rank": 4}]})


def _pairs(graph: Graph, branch: str, rows: dict[str, int]) -> None:
    people = [{"name": name, "age": value} for name, value in rows.items()]
    knows = [{"id": name, "from": name, "to": name, "since": value} for name, value in rows.items()]
    _load(graph, branch, {"Person": people, "Knows": knows})


def _load(graph: Graph, branch: str, rows: dict[str, list[dict[str, Any]]]) -> None:
    graph.load(rows, "merge", branch=branch, actor=FOUNDER)


def _change(graph: Graph, branch: str, *, delete: Iterable[str] = (), put: dict[str, int]) -> None:
    # An edge goes with its ends.
    statements = [f'delete Person where name = "{name}"' for name in delete]
    if statements:
        graph.mutate("query change() { " + "\n".join(statements) + " }", branch=branch, actor=FOUNDER)
    _pairs(graph, branch, put)


# --- the writes -----------------------------------------------------------------------------------------------


def _merge(source: str, into: str, *, delete: bool = False) -> Callable[[Repository], str]:
    def act(repository: Repository) -> str:
        merged = as_graph(repository).branches.merge(source, into, delete_source=delete)
        return "" if merged.commit is None else merged.commit.id

    return act


def _revert(branch: str) -> Callable[[Repository], str]:
    """Undo the commit before the branch's newest of the founder, if that has not happened."""

    def act(repository: Repository) -> str:
        graph = as_graph(repository)
        newest = next(item for item in graph.commits(branch) if item.actor == FOUNDER)
        undone = newest.parents[0]
        commit = graph.revert(undone, branch=branch).commit
        return "" if commit is None else commit.id

    return act


def _apply(
    text: str, *, hard: bool = False, backfill: dict[str, Any] | None = None
) -> Callable[[Repository], str]:
    def act(repository: Repository) -> str:
        done = as_graph(repository).schema.apply(text, allow_data_loss=hard, backfill=backfill)
        return "" if done.commit is None else done.commit.id

    return act


def _with(old: str, new: str) -> str:
    assert old in SCHEMA
    return SCHEMA.replace(old, new)


def _with_intent(act: Callable[[Repository], str]) -> Callable[[Repository], str]:
    """Return a merge that writes an intent for any number of rows."""

    def merge(repository: Repository) -> str:
        limit, state_merge.ROWS_WITHOUT_INTENT = state_merge.ROWS_WITHOUT_INTENT, -1
        try:
            return act(repository)
        finally:
            state_merge.ROWS_WITHOUT_INTENT = limit

    return merge


_SCORED: Final = _with("age: I32?", "age: I32?  score: I32")
_WITHOUT_TAGS: Final = _with("node Tag { name: String @key  rank: I32? }\n", "")

MERGE_WRITES: Final[dict[str, MergeWrite]] = {
    "merge-fast-forward": MergeWrite(_merge("left", "behind"), "behind", "left"),
    "merge-other-types": MergeWrite(_merge("cities", "right"), "right", "cities"),
    "merge-rows": MergeWrite(_merge("left", "right"), "right", "left"),
    "merge-many-rows": MergeWrite(_with_intent(_merge("left", "right")), "right", "left"),
    "merge-schemas": MergeWrite(_merge("widened", "right"), "right", "widened"),
    "merge-and-delete": MergeWrite(_merge("left", "right", delete=True), "right", "left", doomed="left"),
    "revert": MergeWrite(_revert("undone"), "undone"),
    "add-property": MergeWrite(_apply(_with("size: I32?", "size: I32?  mayor: String?")), "main"),
    "add-type": MergeWrite(_apply(SCHEMA + "node Street { name: String @key }\n"), "main"),
    "add-required-property": MergeWrite(_apply(_SCORED, backfill={"Person.score": 7}), "main"),
    "drop-type": MergeWrite(_apply(_WITHOUT_TAGS), "main"),
    "drop-type-for-good": MergeWrite(_apply(_WITHOUT_TAGS, hard=True), "main"),
}
