"""Background upkeep compared with a model: two handles write, merge and read old states beside garbage collection.

The policy protects no young files, so that a pass collects at once. A state that the policy retains must read as it
was written. Other states may be reclaimed. Merges need the states of merge bases, whatever the policy is. A write
that was prepared before a pass has collected is prepared again.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import omnigraph as og
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import NotFound
from omnigraph.graph.publish import StaleBase, publish
from omnigraph.graph.write_plan import WritePlan
from omnigraph.lang import ir
from omnigraph.maintain.upkeep import Upkeep
from omnigraph.maintain.upkeep_state import KEY, UpkeepState
from omnigraph.mutate.mutate import prepare_mutation
from omnigraph.store.tables import tables
from tests.support.upkeep import without_minimum
from tests.support.waiting import HANG

SCHEMA = "node Item { name: String @key  value: I64 }"
PUT = "query put($n: String, $v: I64) { insert Item { name: $n, value: $v } }"
DELETE = "query delete($n: String) { delete Item where name = $n }"
ALL = "query all() { match { $i: Item } return { $i.name as name, $i.value as value } }"
HANDLES = st.integers(0, 1)
PLACES = st.integers(0, 11)
NAMES = st.sampled_from(["a", "b", "c"])
Verb = Literal["insert", "update", "delete"]
VERBS = st.sampled_from(["insert", "insert", "update", "delete"])
# A handle, the place of a branch, and what to do.
Work = tuple[int, int, Verb]
WORKS = st.lists(st.tuples(HANDLES, PLACES, VERBS), min_size=1, max_size=6)

# The last change of each key: its number, and its value or None if it was deleted. Only the branch that inserted a
# key changes it. Of two states of a key the one with the larger number is therefore the newer one.
State = Mapping[str, tuple[int, int | None]]


@dataclass(frozen=True)
class Commit:
    """A commit of the model."""

    parents: tuple[str, ...]
    state: State

    @property
    def rows(self) -> dict[str, int]:
        return {name: value for name, (_, value) in self.state.items() if value is not None}


@dataclass(frozen=True)
class Branch:
    """A branch of the model. `owner` is the beginning of the keys that it inserts."""

    head: str
    owner: str


@dataclass(frozen=True)
class Held:
    """A write that is prepared and not published, with the fence of garbage collection at the time."""

    branch: str
    base: Branch
    state: State
    fence: int
    plan: WritePlan


class UpkeepMachine(RuleBasedStateMachine):
    """Two handles of a graph on disk, each with upkeep that is performed on request."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(without_minimum())
        self.folder = Path(tempfile.mkdtemp(prefix="omnigraph-upkeep-model-"))
        self.uri = str(self.folder / "g")
        og.init(self.uri, SCHEMA, durability="os", upkeep="off").close()
        self.handles = [self._open(), self._open()]
        self.passes = [Upkeep(graph._repository, every=1) for graph in self.handles]
        self.keep = 2
        self.handles[0].set_settings(retention=self._policy())
        head = self.handles[0]._repository.head("main").commit.id
        self.commits = {head: Commit((), {})}
        self.branches = {"main": Branch(head, "main")}
        self.held: list[Held] = []
        # Commits that the policy did not retain when a pass was performed.
        self.unretained: set[str] = set()
        self.changes = 0
        self.looked = 0
        # Two branches that part from a state with rows.
        self._write(0, 0, "insert")
        self.create_or_delete_a_branch(0, "a", 0)

    # --- writes and branches -----------------------------------------------------------------------------

    @rule(works=WORKS)
    def write(self, works: list[Work]) -> None:
        for at, place, verb in works:
            self._write(at, place, verb)

    def _write(self, at: int, place: int, verb: Verb) -> None:
        branch = self._branch(place)
        query, parameters, state = self._change(branch, verb, place)
        done = self.handles[at].mutate(query, parameters, branch=branch)
        assert done.commit is not None
        assert done.commit.parents == (self.branches[branch].head,)
        self._moved(branch, done.commit.id, Commit(done.commit.parents, state))

    @rule(at=HANDLES, name=NAMES, place=PLACES)
    def create_or_delete_a_branch(self, at: int, name: str, place: int) -> None:
        if name in self.branches:
            self.handles[at].branches.delete(name)
            del self.branches[name]
            return
        source = self._branch(place)
        made = self.handles[at].branches.create(name, source)
        assert made.commit_id == self.branches[source].head
        self._created(name, made.commit_id)

    @rule(at=HANDLES, name=NAMES, place=st.integers(0, 99))
    def create_a_branch_at_an_old_commit(self, at: int, name: str, place: int) -> None:
        if name in self.branches:
            return
        id_ = list(self.commits)[place % len(self.commits)]
        try:
            self.handles[at].branches.create(name, at=id_)
        except NotFound as error:
            self._expect_reclaimed(id_, error)
            return
        # From now on it is the head of a branch.
        self.unretained.discard(id_)
        self._created(name, id_)

    @rule(at=HANDLES, source=PLACES, into=PLACES)
    def merge(self, at: int, source: int, into: int) -> None:
        ours, theirs = self._branch(into), self._branch(source)
        if ours == theirs:
            return
        head, other = self.branches[ours].head, self.branches[theirs].head
        before, after = self.commits[head].state, dict(self.commits[head].state)
        for name, change in self.commits[other].state.items():
            after[name] = max(change, after.get(name, change), key=lambda item: item[0])
        done = self.handles[at].branches.merge(theirs, into=ours)
        if done.commit is None or done.commit.id == head:
            assert self._ancestors([head]) >= {other}
            assert after == before
        elif done.commit.id == other:
            assert self._ancestors([other]) >= {head}
            self.branches[ours] = replace(self.branches[ours], head=other)
        else:
            self._moved(ours, done.commit.id, Commit(done.commit.parents, after))

    @rule(at=HANDLES, place=PLACES, verb=VERBS)
    def hold_a_prepared_write(self, at: int, place: int, verb: Verb) -> None:
        branch, graph = self._branch(place), self.handles[at]
        query, parameters, state = self._change(branch, verb, place)
        transaction = graph._repository.begin(branch)
        parsed = graph._queries.get(query, None, transaction.base.catalog)
        assert isinstance(parsed, ir.MutationQuery)
        prepared = prepare_mutation(transaction, parsed, Bindings(parameters), graph._reader.ids)
        assert prepared.operation_class is not None
        plan = transaction.plan("mutate", prepared.operation_class)
        self.held.append(Held(branch, self.branches[branch], state, self._fence(), plan))

    @precondition(lambda self: self.held)
    @rule(at=HANDLES, place=PLACES)
    def publish_a_held_write(self, at: int, place: int) -> None:
        held = self.held.pop(place % len(self.held))
        manifest = self.handles[at]._repository.manifest
        manifest.refresh()
        if self.branches.get(held.branch) == held.base and held.fence == self._fence():
            commit = publish(manifest, held.plan).commit
            self._moved(held.branch, commit.id, Commit((held.base.head,), held.state))
            self._check(self.handles[at], commit.id)
            return
        with pytest.raises((StaleBase, NotFound)):
            publish(manifest, held.plan)

    # --- upkeep ------------------------------------------------------------------------------------------

    @rule(at=HANDLES, keep=st.integers(1, 4))
    def change_retention(self, at: int, keep: int) -> None:
        self.keep = keep
        self.handles[at].set_settings(retention=self._policy())

    @rule(at=HANDLES)
    def perform_upkeep(self, at: int) -> None:
        self._make_due(at)
        report = self.passes[at].run_pass()
        assert report is not None
        assert report.errors == ()
        self.unretained |= self.commits.keys() - self._retained()

    @rule(at=HANDLES, works=WORKS)
    def write_beside_upkeep(self, at: int, works: list[Work]) -> None:
        self._make_due(at)
        retained, failures = self._retained(), list[BaseException]()

        def work() -> None:
            try:
                self.passes[at].run_pass()
            except BaseException as error:  # noqa: BLE001 - reported by the test
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        for handle, place, verb in works:
            self._write(handle, place, verb)
            retained |= self._retained()
        thread.join(HANG)
        assert not thread.is_alive()
        assert failures == []
        self.unretained |= self.commits.keys() - retained

    @rule(at=HANDLES)
    def reopen(self, at: int) -> None:
        self.passes[at].close()
        self.handles[at].close()
        self.handles[at] = self._open()
        self.passes[at] = Upkeep(self.handles[at]._repository, every=1)

    # --- what must hold ----------------------------------------------------------------------------------

    @invariant()
    def heads_and_an_old_commit_read_as_they_were_written(self) -> None:
        self.looked += 1
        graph = self.handles[self.looked % 2]
        heads = {name: graph._repository.head(name).commit.id for name in graph.branches.list()}
        assert heads == {name: branch.head for name, branch in self.branches.items()}
        ids = list(self.commits)
        for id_ in (self.branches[self._branch(self.looked)].head, ids[self.looked % len(ids)]):
            self._check(graph, id_)

    def teardown(self) -> None:
        try:
            fresh = self._open()
            for id_ in self.commits:
                self._check(fresh, id_)
            assert fresh.verify().ok
            for graph in (*self.handles, fresh):
                assert graph._repository.warnings == []
                graph.close()
        finally:
            self.stack.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # --- parts -------------------------------------------------------------------------------------------

    def _open(self) -> og.LocalGraph:
        return og.open(self.uri, durability="os", upkeep="off")

    def _policy(self) -> str:
        return f"keep={self.keep},older_than=0s,thinned=0s"

    def _branch(self, place: int) -> str:
        return sorted(self.branches)[place % len(self.branches)]

    def _change(self, branch: str, verb: Verb, place: int) -> tuple[str, dict[str, str | int], State]:
        """Return a mutation of a branch and the state after it. Without own keys it inserts one."""
        self.changes += 1
        before, owner = self.commits[self.branches[branch].head], self.branches[branch].owner
        own = sorted(name for name in before.rows if name.startswith(f"{owner}/"))
        name = own[place % len(own)] if own and verb != "insert" else f"{owner}/{self.changes}"
        if own and verb == "delete":
            return DELETE, {"n": name}, {**before.state, name: (self.changes, None)}
        changed = {**before.state, name: (self.changes, self.changes)}
        return PUT, {"n": name, "v": self.changes}, changed

    def _created(self, name: str, head: str) -> None:
        self.changes += 1
        self.branches[name] = Branch(head, f"{name}{self.changes}")

    def _moved(self, branch: str, id_: str, commit: Commit) -> None:
        self.commits[id_] = commit
        self.branches[branch] = replace(self.branches[branch], head=id_)

    def _fence(self) -> int:
        manifest = self.handles[0]._repository.manifest
        return manifest.registry(manifest.refresh()).fence

    def _make_due(self, at: int) -> None:
        objects = self.handles[at]._repository.objects
        for stored in objects.list(KEY.rpartition("/")[0]):
            state = UpkeepState.from_bytes(objects.get(stored.key).data)
            objects.put(KEY, replace(state, next_version=0).to_bytes())
        # The handle may have seen fewer commits than the other one.
        self.handles[at]._repository.manifest.refresh()

    def _ancestors(self, heads: list[str]) -> set[str]:
        found, rest = set[str](), list(heads)
        while rest:
            id_ = rest.pop()
            if id_ not in found:
                found.add(id_)
                rest += self.commits[id_].parents
        return found

    def _retained(self) -> set[str]:
        """Return the commits less than `keep` steps below a head."""
        level = {branch.head for branch in self.branches.values()}
        found = set(level)
        for _ in range(self.keep - 1):
            level = {parent for id_ in level for parent in self.commits[id_].parents}
            found |= level
        return found

    def _check(self, graph: og.LocalGraph, id_: str) -> None:
        try:
            rows = graph.query(ALL, at=id_).rows()
        except NotFound as error:
            self._expect_reclaimed(id_, error)
            return
        assert {row["name"]: row["value"] for row in rows} == self.commits[id_].rows

    def _expect_reclaimed(self, id_: str, error: NotFound) -> None:
        assert error.details["reason"] == "reclaimed"
        assert id_ in self.unretained, error.message


def test_upkeep_beside_writes_and_merges_keeps_every_retained_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "COMPACT_AT", 3)
    monkeypatch.setattr(tables, "COMPACTION_TIERS", (2, 4, 8))
    run_state_machine_as_test(
        UpkeepMachine,
        settings=settings(
            max_examples=8,
            stateful_step_count=20,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
