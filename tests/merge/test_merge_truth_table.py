"""Everything that two branches can do to one node or one edge, against each other, compacted or not.

The first table is that of the specification, with its letters written out by hand. The others are complete over
longer lists of actions, and the model says what each cell must give.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, TypeAlias
from zlib import crc32

import pytest

import omnigraph as og
from omnigraph.errors import MergeConflicts
from tests.model.history_steps import SCHEMA, Age, Compact, Delete, Fork, Load, Mutate, Step
from tests.model.merge_oracle import Row, Side, Value
from tests.support.merging import Replay, rows_of
from tests.support.places import fresh_memory

EVERY_CELL: Final = os.environ.get("OMNIGRAPH_CUTS") == "all"
# Which sides are compacted before the merge: ours, theirs.
COMPACTED: Final = {
    "none": (False, False),
    "ours": (True, False),
    "theirs": (False, True),
    "both": (True, True),
}


# --- the table of the specification -------------------------------------------------------------------------

PEOPLE: Final = {"Alice": 30, "Bob": 25, "Carol": 40, "Dan": 50}
EDGE: Final = ("Bob", "Carol")
OPERATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "noop": (),
    "addNode": ('insert Person { name: "Eve", age: 20 }',),
    "removeNode": ('delete Person where name = "Alice"',),
    "addEdge": ('insert Knows { from: "Alice", to: "Carol" }',),
    "removeEdge": ('delete Knows where from = "Bob"',),
    "setProp": ('update Person set { age: 31 } where name = "Alice"',),
    "netZero": ('insert Knows { from: "Dan", to: "Carol" }', 'delete Knows where from = "Dan"'),
    "addNode otherwise": ('insert Person { name: "Eve", age: 21 }',),
    "setProp otherwise": ('update Person set { age: 32 } where name = "Alice"',),
}
# Rows are what theirs did, columns what ours did; the last two rows differ from ours in the value.
LETTERS: Final = """
                  noop addNode removeNode addEdge removeEdge setProp netZero
noop              U    U       U          U       U          U       U
addNode           F    M       M          M       M          M       M
removeNode        F    M       M          OE      M          DU      M
addEdge           F    M       OE         M       M          M       M
removeEdge        F    M       M          M       M          M       M
setProp           F    M       DU         M       M          M       M
netZero           F    M       M          M       M          M       M
addNode_otherwise F    DI      M          M       M          M       M
setProp_otherwise F    M       DU         M       M          DV      M
"""
OUTCOMES: Final = {"U": "already_up_to_date", "F": "fast_forward", "M": "merged"}
CONFLICTS: Final = {
    "DI": ("divergent_insert", "node", "Person", "Eve", "age"),
    "DV": ("divergent_update", "node", "Person", "Alice", "age"),
    "DU": ("delete_vs_update", "node", "Person", "Alice", None),
    "OE": ("orphan_edge", "edge", "Knows"),
}
People: TypeAlias = dict[str, Value]
Ends: TypeAlias = list[tuple[str, str]]


def cells() -> Iterator[tuple[str, str, str]]:
    """Theirs, ours and the letter."""
    head, *lines = LETTERS.split("\n")[1:-1]
    for line in lines:
        name, *letters = line.split()
        for column, letter in zip(head.split(), letters, strict=True):
            yield name.replace("_", " "), column, letter


def effect(operation: str, people: People, ends: Ends) -> None:
    """What an operation does to people and the ends of edges."""
    match operation.split():
        case ["addNode", *other]:
            people["Eve"] = 21 if other else 20
        case ["removeNode"]:
            people.pop("Alice", None)
        case ["addEdge"]:
            ends.append(("Alice", "Carol"))
        case ["removeEdge"]:
            ends[:] = [item for item in ends if item != EDGE]
        case ["setProp", *other]:
            people["Alice"] = 32 if other else 31


@pytest.fixture(scope="module")
def specified() -> og.Graph:
    """The fixture of the specification, with a branch for each operation and one that is compacted as well."""
    schema = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
    graph = og.init(fresh_memory(), schema=schema)
    people = [{"type": "Person", "data": {"name": name, "age": age}} for name, age in PEOPLE.items()]
    graph.load([*people, {"edge": "Knows", "from": EDGE[0], "to": EDGE[1], "data": {}}])
    # A second piece, so that there is something to compact.
    graph.mutate('query again() { update Person set { age: 50 } where name = "Dan" }')
    for name, statements in OPERATIONS.items():
        for branch, compact in branches_of(name):
            graph.branches.create(branch)
            for statement in statements:
                graph.mutate(f"query change() {{ {statement} }}", branch=branch)
            if compact:
                assert graph.optimize(branch=branch).commit is not None
    return graph


def branch_of(side: Side, name: str, compact: bool) -> str:
    """The branch on which one side did something."""
    return f"{side}/{'compacted' if compact else 'plain'}/{name.replace(' ', '-')}"


def branches_of(name: str) -> Iterator[tuple[str, bool]]:
    """All branches of an action, and whether they are compacted."""
    sides: tuple[Side, Side] = ("ours", "theirs")
    for side in sides:
        for compact in (False, True):
            yield branch_of(side, name, compact), compact


def sampled(theirs: str, ours: str, *more: str, one_in: int) -> Iterator[Any]:
    """A cell in one way of compacting, or in none: four of every `one_in` cells have a way.

    With `OMNIGRAPH_CUTS=all`, as `make faults` sets it, the other ways are there too, and long.
    """
    sample = crc32(f"{theirs}/{ours}".encode()) % one_in
    for number, (way, compacted) in enumerate(COMPACTED.items()):
        if number == sample or EVERY_CELL:
            marks = [] if number == sample else [pytest.mark.long]
            name = f"{theirs}-{ours}-{way} compacted"
            yield pytest.param(theirs, ours, *more, compacted, marks=marks, id=name)


def specified_cells() -> Iterator[Any]:
    """Every cell in one way of compacting."""
    for theirs, ours, letter in cells():
        yield from sampled(theirs, ours, letter, one_in=len(COMPACTED))


@pytest.mark.parametrize(("theirs", "ours", "letter", "compacted"), list(specified_cells()))
def test_merge_truth_table_of_the_specification(
    specified: og.Graph, theirs: str, ours: str, letter: str, compacted: tuple[bool, bool]
) -> None:
    source, at = branch_of("theirs", theirs, compacted[1]), branch_of("ours", ours, compacted[0])
    specified.branches.create("cell", at)
    try:
        if letter in CONFLICTS:
            with pytest.raises(MergeConflicts) as refused:
                specified.branches.merge(source, into="cell")
            (conflict,) = refused.value.conflicts
            expected = CONFLICTS[letter]
            names = ("kind", "entity_kind", "type_name", "entity_id", "property")[: len(expected)]
            assert tuple(conflict[name] for name in names) == expected
            assert specified.snapshot("cell").commit_id == specified.snapshot(at).commit_id
            return
        done = specified.branches.merge(source, into="cell")
        assert done.outcome == outcome_of(letter, theirs, ours, compacted)
        people: People = {**PEOPLE}
        ends = [EDGE]
        for operation in (ours, theirs) if theirs != ours or ours == "addEdge" else (ours,):
            effect(operation, people, ends)
        assert contents(specified, "cell") == (people, sorted(ends))
    finally:
        specified.branches.delete("cell")


def outcome_of(letter: str, theirs: str, ours: str, compacted: tuple[bool, bool]) -> str:
    """What is said of a merge: as the letter says, but a side that was compacted has a commit all the same."""
    if theirs == "noop" and compacted[1]:
        letter = "F" if ours == "noop" and not compacted[0] else "M"
    elif letter == "F" and compacted[0]:
        letter = "M"
    return OUTCOMES[letter]


def contents(graph: og.Graph, branch: str) -> tuple[People, list[tuple[str, str]]]:
    """The people, and the ends of the edges in order."""
    snapshot = graph.snapshot(branch)
    people = {id_: row["age"] for id_, row in rows_of(snapshot, "node:Person").items()}
    edges = [(str(row["from"]), str(row["to"])) for row in rows_of(snapshot, "edge:Knows").values()]
    return people, sorted(edges)


# --- every pair of actions on one node, and on one edge ------------------------------------------------------

Action: TypeAlias = Callable[[str], Sequence[Step]]
At: TypeAlias = tuple[str, str]


def person(name: str, age: int | None = 1, email: str | None = None, tags: Value = ("a",)) -> dict[At, Row]:
    """A person to load."""
    return {("Person", name): {"name": name, "age": age, "email": email, "tags": tags}}


def knows(id_: str, source: str = "x", target: str = "y", weight: float | None = 1.0) -> dict[At, Row]:
    """An edge to load."""
    return {("Knows", id_): {"from": source, "to": target, "weight": weight}}


def put(*rows: dict[At, Row]) -> Action:
    """Load rows, one commit after the other."""
    return lambda branch: [Load(branch, "merge", row) for row in rows]


def cut(name: str, where: str, equals: Value, *rows: dict[At, Row]) -> Action:
    """Delete rows; then load others."""
    return lambda branch: [Mutate(branch, (Delete(name, where, equals),)), *put(*rows)(branch)]


BASE: Final = {
    **person("lone"),
    **person("x"),
    **person("y"),
    **person("z", tags=()),
    **knows("k"),
    **knows("loop", "x", "x"),
}
NODE_ACTIONS: Final[Mapping[str, Action]] = {
    "none": put(),
    "insert": put(person("new")),
    "insert with another age": put(person("new", 2)),
    "insert with nothing": put(person("new", None, None, None)),
    "age 2": put(person("lone", 2)),
    "age 3": lambda branch: [Mutate(branch, (Age(3, "name", "lone"),))],
    "no age": put(person("lone", None)),
    "tags": put(person("lone", tags=("b",))),
    "no tags in the list": put(person("lone", tags=())),
    "age 2 and tags": put(person("lone", 2, tags=("b",))),
    "email": put(person("lone", email="e@")),
    "the email for another": put(person("z", email="e@")),
    "delete": cut("Person", "name", "lone"),
    "delete and insert again": cut("Person", "name", "lone", person("lone")),
    "delete and insert otherwise": cut("Person", "name", "lone", person("lone", 4)),
    "rewrite": put(person("lone")),
    "there and back": put(person("lone", 5), person("lone")),
    "edge from it": put(knows("from", "lone", "y")),
    "edge to it": put(knows("to", "y", "lone")),
}
EDGE_ACTIONS: Final[Mapping[str, Action]] = {
    "none": put(),
    "insert": put(knows("new")),
    "insert with another weight": put(knows("new", weight=2.0)),
    "insert elsewhere": put(knows("new", "y", "z")),
    "weight 2": put(knows("k", weight=2.0)),
    "weight 3": put(knows("k", weight=3.0)),
    "no weight": put(knows("k", weight=None)),
    "move the target": put(knows("k", "x", "z")),
    "move the target back to the source": put(knows("k", "x", "x")),
    "move the source": put(knows("k", "z", "y")),
    "turn round": put(knows("k", "y", "x")),
    "move and weigh": put(knows("k", "x", "z", 2.0)),
    "delete": cut("Knows", "from", "x"),
    "delete and insert again": cut("Knows", "from", "x", knows("k")),
    "delete and insert otherwise": cut("Knows", "from", "x", knows("k", weight=4.0)),
    "rewrite": put(knows("k")),
    "there and back": put(knows("k", "z", "x", 5.0), knows("k")),
    "delete the source": cut("Person", "name", "x"),
    "delete the target": cut("Person", "name", "y"),
    "delete the target and insert all again": cut("Person", "name", "y", {**person("y"), **knows("k")}),
    "delete where it may move": cut("Person", "name", "z"),
    "add another": put(knows("other")),
    "lead": put({("Team", "t"): {"title": "t"}, ("Leads", "l1"): {"from": "x", "to": "t"}}),
    "lead as well": put({("Team", "t"): {"title": "t"}, ("Leads", "l2"): {"from": "x", "to": "t"}}),
}


@dataclass
class Table:
    """One graph with a branch for each action, plain and compacted, and the model of it."""

    replay: Replay

    def merge(self, theirs: str, ours: str, compacted: tuple[bool, bool]) -> None:
        """One cell on a branch of its own: merge, look, and settle what conflicts in every way there is."""
        source = branch_of("theirs", theirs, compacted[1])
        # How rows are stored has no part in how conflicts are settled, so that is tried only once.
        ways: tuple[Side | None, ...] = (None,) if any(compacted) else (None, "ours", "theirs")
        for resolve in ways:
            replay = self.replay.aside()
            replay.apply(Fork("cell", branch_of("ours", ours, compacted[0])))
            try:
                outcome = replay.merge(source, "cell", resolve)
                replay.check_branch("cell")
                if outcome == "merged" and not any(compacted):
                    assert replay.merge(source, "cell") == "already_up_to_date"
            finally:
                replay.drop("cell")
            if outcome in OUTCOMES.values():
                break


def table_of(actions: Mapping[str, Action]) -> Table:
    """The graph of some actions."""
    graph = og.init(fresh_memory(), schema=SCHEMA)
    replay = Replay(graph, "", graph.commits()[0].id)
    # In two pieces, so that there is something to compact.
    halves = (dict(list(BASE.items())[:2]), dict(list(BASE.items())[2:]))
    replay.run([Fork("base", "main"), *(Load("base", "append", half) for half in halves)])
    for name, action in actions.items():
        for branch, compact in branches_of(name):
            for step in (Fork(branch, "base"), *action(branch), *([Compact(branch)] if compact else [])):
                replay.apply(step)
            replay.check_branch(branch)
    return Table(replay)


@pytest.fixture(scope="module")
def nodes() -> Table:
    """The table of actions on a node."""
    return table_of(NODE_ACTIONS)


@pytest.fixture(scope="module")
def edges() -> Table:
    """The table of actions on an edge."""
    return table_of(EDGE_ACTIONS)


def pairs(actions: Mapping[str, Action]) -> Iterator[Any]:
    """A sixth of the pairs of actions, each in one way of compacting."""
    for theirs, ours in product(actions, actions):
        yield from sampled(theirs, ours, one_in=6 * len(COMPACTED))


@pytest.mark.parametrize(("theirs", "ours", "compacted"), list(pairs(NODE_ACTIONS)))
def test_merge_of_two_actions_on_one_node_equals_the_model(
    nodes: Table, theirs: str, ours: str, compacted: tuple[bool, bool]
) -> None:
    nodes.merge(theirs, ours, compacted)


@pytest.mark.parametrize(("theirs", "ours", "compacted"), list(pairs(EDGE_ACTIONS)))
def test_merge_of_two_actions_on_one_edge_equals_the_model(
    edges: Table, theirs: str, ours: str, compacted: tuple[bool, bool]
) -> None:
    edges.merge(theirs, ours, compacted)
