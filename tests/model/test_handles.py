"""Two long-lived handles and several branches, compared with a simple model.

The caches of a handle must not change what it reads or which rows it replaces. All cache and compaction thresholds
are set to small values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import omnigraph as og
from omnigraph.engine import committed_rows, layered_adjacency
from omnigraph.engine.memory import cached_table, column_chunks, id_index, row_lookups, row_numbers
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import ConstraintViolation
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.lang import ir
from omnigraph.mutate.mutate import MutationResult, prepare_mutation
from omnigraph.read import endpoints, topology
from omnigraph.store.tables import tables
from tests.model import people_model as model
from tests.model.people_model import SCHEMA, Edge, Load, Refused, State, Statement, Verb
from tests.support.api_writes import loading_in_bulk
from tests.support.places import fresh_memory
from tests.support.rows import compact

# These sort differently by bytes, by code points and by UTF-16.
NAMES = ["a", "aa", "it's", "é", "ｚ", "𝄞", *(f"n{number}" for number in range(12))]
EDGE_IDS = [f"e{number}" for number in range(5)]
HANDLES = st.integers(0, 1)
OTHERS = st.sampled_from(["b", "c"])
# The index of a branch.
BRANCHES = st.integers(0, 5)
PERSON = st.tuples(st.sampled_from(NAMES), st.integers(0, 9))
PEOPLE = st.lists(PERSON, max_size=8)
# Without repeated keys, so that a load of them is not refused.
DISTINCT = st.lists(PERSON, max_size=8, unique_by=lambda person: person[0])
SOME = st.sampled_from(NAMES[:7])

ALL_PEOPLE = "query all() { match { $p: Person } return { $p.name as name, $p.age as age } }"
ALL_EDGES = "query all() { match { $p: Person  $p knows $q } return { $p.name as a, $q.name as b } }"
ONE = "query one($n: String) { match { $p: Person { name: $n } } return { $p.age as age } }"


@st.composite
def statements(draw: st.DrawFn, inserts: bool = False) -> list[Statement]:
    verbs: list[Verb] = ["put", "put", "put", "Knows"]
    verbs += [] if inserts else ["delete", "delete", "update", "cut", "Leads"]
    found = []
    verb: Verb
    for verb in draw(st.lists(st.sampled_from(verbs), min_size=1, max_size=4)):
        value = draw(st.integers(0, 9))
        found.append(Statement(verb, draw(SOME), value, draw(SOME) if verb in model.EDGES else ""))
    return found


EDGES = st.lists(st.tuples(st.sampled_from(EDGE_IDS), st.tuples(SOME, SOME, st.integers(0, 9))), max_size=3)
LOADS = st.builds(
    Load,
    st.sampled_from(["append", "merge", "merge", "overwrite"]),
    st.none() | DISTINCT | PEOPLE,
    st.none() | EDGES,
).filter(lambda item: item.people is not None or item.knows is not None)


class HandlesMachine(RuleBasedStateMachine):
    """Two handles that commit alternately."""

    def __init__(self) -> None:
        super().__init__()
        self.uri = fresh_memory()
        self.handles: list[og.LocalGraph] = []
        self.states: dict[str, State] = {}
        self.heads: dict[str, str] = {}
        self.looked = 0
        self.numbered = 0

    @initialize(budgets=st.tuples(*[st.sampled_from([0, 1_500, 6_000, 1 << 20])] * 2), start=DISTINCT)
    def open(self, budgets: tuple[int, int], start: list[tuple[str, int]]) -> None:
        og.init(self.uri, SCHEMA, durability="os").close()
        self.handles = [og.open(self.uri, durability="os", cache_bytes=size) for size in budgets]
        done = self.handles[0].load({"Person": [{"name": name, "age": age} for name, age in start]}, "merge")
        assert done.commit is not None
        self.heads["main"] = done.commit.id
        self.states[done.commit.id] = model.load(State(), Load("merge", start))

    # --- writing -----------------------------------------------------------------------------------------

    @rule(works=st.lists(st.tuples(HANDLES, BRANCHES, statements()), min_size=1, max_size=4))
    def mutate(self, works: list[tuple[int, int, list[Statement]]]) -> None:
        for at, number, work in works:
            self._mutate(at, self._branch(number), self._numbered(work))

    def _mutate(self, at: int, branch: str, work: list[Statement]) -> None:
        graph, before = self.handles[at], self._state(branch)
        try:
            after = model.mutate(before, work)
        except Refused:
            with pytest.raises(ConstraintViolation):
                graph.mutate(model.mutation(work), branch=branch)
            return
        self._wrote(branch, graph.mutate(model.mutation(work), branch=branch), before, after)

    @rule(at=HANDLES, number=BRANCHES, work=LOADS, bulk=st.sampled_from([False, False, False, True]))
    def load(self, at: int, number: int, work: Load, bulk: bool) -> None:
        branch = self._branch(number)
        graph, before = self.handles[at], self._state(branch)
        with loading_in_bulk() if bulk else nullcontext():
            try:
                after = model.load(before, work)
            except Refused:
                with pytest.raises(ConstraintViolation):
                    graph.load(work.source(), work.mode, branch=branch)
                return
            done = graph.load(work.source(), work.mode, branch=branch)
        # A merge of rows that are all stored already makes no commit; a load without rows makes one.
        stored = work.mode == "merge" and bool(work.people or work.knows) and before == after
        assert (done.commit is None) == stored
        self._wrote(branch, done, before, after)

    @rule(at=HANDLES, number=BRANCHES, work=statements(inserts=True), rival=statements(inserts=True))
    def be_overtaken(self, at: int, number: int, work: list[Statement], rival: list[Statement]) -> None:
        """Prepare a mutation, move the branch with the other handle, and prepare it again."""
        branch = self._branch(number)
        before = self._state(branch)
        work, rival = self._numbered(work), self._numbered(rival)
        try:
            between = model.mutate(before, rival)
            model.mutate(before, work)
            after = model.mutate(between, work)
        except Refused:
            return
        graph, other = self.handles[at], self.handles[1 - at]
        preparations = 0

        def prepare(transaction: Transaction) -> Prepared[MutationResult]:
            nonlocal preparations
            preparations += 1
            found = prepare_on(graph, work)(transaction)
            if preparations == 1:
                self._wrote(branch, other.mutate(model.mutation(rival), branch=branch), before, between)
            return found

        done, _ = graph._repository.write(branch, WriteRequest("mutate"), prepare)
        if done is None:
            # The mutation changed nothing in the state that it was prepared on last.
            last = before if preparations == 1 else between
            assert model.mutate(last, work) == last
            return
        self.heads[branch] = done.commit.id
        self.states[done.commit.id] = after

    @rule(at=HANDLES, number=BRANCHES, work=statements())
    def give_up_after_staging(self, at: int, number: int, work: list[Statement]) -> None:
        """Rows of a failed write must not affect the caches."""
        graph, branch, work = self.handles[at], self._branch(number), self._numbered(work)
        try:
            model.mutate(self._state(branch), work)
        except Refused:
            return
        prepare_on(graph, work)(graph._repository.begin(branch))

    @rule(at=HANDLES, number=BRANCHES, key=st.sampled_from(["node:Person", "edge:Knows"]))
    def rewrite(self, at: int, number: int, key: str) -> None:
        branch = self._branch(number)

        def prepare(transaction: Transaction) -> Prepared[None]:
            transaction.write(key, compact(transaction.base.tables, transaction.pin(key)))
            return Prepared("maintenance", None)

        done, _ = self.handles[at]._repository.write(branch, WriteRequest("optimize"), prepare)
        assert done is not None
        self.states[done.commit.id] = self._state(branch)
        self.heads[branch] = done.commit.id

    # --- branches ----------------------------------------------------------------------------------------

    @rule(at=HANDLES, name=OTHERS, number=BRANCHES, back=st.integers(0, 99))
    def make_or_delete_a_branch(self, at: int, name: str, number: int, back: int) -> None:
        if name in self.heads:
            self.handles[at].branches.delete(name)
            del self.heads[name]
            return
        source, commits = self._branch(number), list(self.states)
        # Half of the branches start at an old commit of any branch.
        start = self.heads[source] if back % 2 else commits[back % len(commits)]
        made = self.handles[at].branches.create(name, source, at=None if back % 2 else start)
        assert made.commit_id == start
        self.heads[name] = start

    # --- reading -----------------------------------------------------------------------------------------

    @rule(at=HANDLES, back=st.integers(0, 99))
    def read_an_old_commit(self, at: int, back: int) -> None:
        id_ = list(self.states)[back % len(self.states)]
        check(self.handles[at], self.states[id_], NAMES[back % 3 :: 3], at=id_)

    @invariant()
    def a_branch_is_as_the_model_says(self) -> None:
        self.looked += 1
        # Read only after every second step, so that the caches become stale.
        if self.heads and self.looked % 2:
            branch = self._branch(self.looked // 4)
            names = [NAMES[(self.looked + step) % len(NAMES)] for step in range(0, len(NAMES), 9)]
            check(self.handles[self.looked // 2 % 2], self._state(branch), names, branch=branch)

    def teardown(self) -> None:
        for graph in self.handles:
            for branch in self.heads:
                check(graph, self._state(branch), NAMES, branch=branch)
        for id_, state in self.states.items():
            check_stored(self.handles[0], id_, state)
        for graph in self.handles:
            graph.close()

    # --- parts -------------------------------------------------------------------------------------------

    def _numbered(self, work: list[Statement]) -> list[Statement]:
        """Return the statements with a unique number for each edge."""
        self.numbered += len(work)
        first = 1_000 + self.numbered - len(work)
        return [
            replace(item, value=first + place) if item.verb in model.EDGES else item
            for place, item in enumerate(work)
        ]

    def _branch(self, number: int) -> str:
        return sorted(self.heads)[number % len(self.heads)]

    def _state(self, branch: str) -> State:
        return self.states[self.heads[branch]]

    def _wrote(self, branch: str, done: og.Receipt | og.LoadReceipt, before: State, after: State) -> None:
        if done.commit is None:
            assert before == after, "nothing was committed where something changed"
            return
        assert done.commit.parents == (self.heads[branch],)
        predicted, told = model.affected(before, after), nonzero(done.affected)
        for name in {*predicted, *told}:
            expected, found = predicted.get(name, {}), told.get(name, {})
            assert found.get("inserted", 0) == expected.get("inserted", 0), name
            assert found.get("deleted", 0) == expected.get("deleted", 0), name
            # A row that is replaced by an equal one counts as updated.
            assert found.get("updated", 0) >= expected.get("updated", 0), name
        self.heads[branch] = done.commit.id
        self.states[done.commit.id] = after


def nonzero(affected: Any) -> dict[str, dict[str, int]]:
    """Return the counts of types that are not zero."""
    return {name: dict(counts) for name, counts in affected.items() if any(counts.values())}


def prepare_on(
    graph: og.LocalGraph, work: list[Statement]
) -> Callable[[Transaction], Prepared[MutationResult]]:
    """Return the preparation of a mutation with the caches of a handle, as `Graph.mutate` runs it."""

    def prepare(transaction: Transaction) -> Prepared[MutationResult]:
        query = graph._queries.get(model.mutation(work), None, transaction.base.catalog)
        assert isinstance(query, ir.MutationQuery)
        return prepare_mutation(transaction, query, Bindings(), graph._reader.ids)

    return prepare


def check(graph: og.LocalGraph, state: State, names: Sequence[str], **where: Any) -> None:
    """Check that a handle reads the expected state in every way; single rows only for some names."""
    people = sorted((row["name"], row["age"]) for row in graph.query(ALL_PEOPLE, None, **where).rows())
    assert people == sorted(state.people.items())
    known = sorted((row["a"], row["b"]) for row in graph.query(ALL_EDGES, None, **where).rows())
    assert known == sorted({edge[:2] for edge in state.edges["Knows"].values()})
    for name in names:
        found = graph.get("Person", name, **where)
        assert (None if found is None else found["age"]) == state.people.get(name), name
    for id_ in EDGE_IDS[: len(names)]:
        found = graph.get("Knows", id_, **where)
        edge = None if found is None else (found["from"], found["to"], found["since"])
        assert edge == state.edges["Knows"].get(id_), id_
    expected = [{"age": state.people[names[0]]}] if names[0] in state.people else []
    assert graph.query(ONE, {"n": names[0]}, **where).rows() == expected


def check_stored(graph: og.LocalGraph, id_: str, state: State) -> None:
    """Check that storage has the rows of a state, each once, and the row counts of the commit."""
    snapshot = graph.snapshot(at=id_)
    people = snapshot.scan("node:Person").to_pylist()
    assert sorted(row["id"] for row in people) == sorted(state.people)
    assert snapshot.pin("node:Person").rows == len(people)
    for name in model.EDGES:
        rows = snapshot.scan(f"edge:{name}").to_pylist()
        found: list[Edge] = sorted((row["src"], row["dst"], since_of(row)) for row in rows)
        assert found == sorted(state.edges[name].values())
        assert snapshot.pin(f"edge:{name}").rows == len(rows)


def since_of(row: dict[str, Any]) -> int:
    """Return the number of an edge, whose physical column name is not in the schema."""
    return next(int(value) for name, value in row.items() if name not in ("id", "src", "dst"))


@pytest.mark.timeout(1_800)
def test_what_handles_keep_in_memory_never_changes_what_they_find_or_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (id_index, row_lookups):
        monkeypatch.setattr(module, "MAX_UNSORTED_IDS", 5)
    monkeypatch.setattr(column_chunks, "_SHORT", 1)
    monkeypatch.setattr(layered_adjacency, "MAX_DELTA", 4)
    monkeypatch.setattr(row_numbers, "_MIN_UNUSED", 6)
    monkeypatch.setattr(endpoints, "_MAX_MOVES", 3)
    monkeypatch.setattr(topology, "_FOLD_SHARE", 0)
    monkeypatch.setattr(cached_table, "SMALL_ROWS", 6)
    monkeypatch.setattr(cached_table, "_FEW_IDS", 2)
    monkeypatch.setattr(id_index, "_MIN_STRIDE", 2)
    monkeypatch.setattr(id_index, "_MAX_FENCES", 3)
    monkeypatch.setattr(tables, "COMPACT_AT", 3)
    monkeypatch.setattr(tables, "COMPACTION_TIERS", (2, 4, 8))
    monkeypatch.setattr(committed_rows, "_MAX_CACHE_LOOKUPS", 3)
    run_state_machine_as_test(
        HandlesMachine,
        settings=settings(
            max_examples=int(os.environ.get("OMNIGRAPH_EXAMPLES", "10")),
            stateful_step_count=25,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
