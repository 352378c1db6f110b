"""The repository compared with its model: two handles, crashes, recovery and stale writers."""

from __future__ import annotations

from dataclasses import dataclass

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

from omnigraph.errors import Conflict, InvalidInput, NotFound, PreconditionFailed
from omnigraph.graph.publish import PublishReceipt, StaleBase, publish
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared, WritePlan
from omnigraph.graph.write_request import WriteRequest
from omnigraph.maintain.collection_fence import CollectionFence
from omnigraph.store.manifest import manifest as manifest_module
from omnigraph.store.manifest import row_files
from omnigraph.store.tables import tables as tables_module
from tests.model.repository_model import Effect, Model, ModelCommit, Work
from tests.support.groups import GroupWrite, write_group
from tests.support.places import fresh_memory
from tests.support.repositories import (
    CITY,
    PERSON,
    Prepare,
    contents,
    handle,
    leave_intent,
    leftovers,
    make_graph,
    rewriting,
    stage,
    staging,
    write,
)

TABLES = (PERSON, CITY)
NAMES = st.sampled_from(["main", "main", "a", "a/b", "ü"])
IDS = st.sampled_from(["p", "q", "r", "it's", "é"])
HANDLES = st.integers(0, 1)
ROWS = st.dictionaries(IDS, st.none() | st.sampled_from(["1", "2", "3"]), max_size=3)
EFFECTS = st.builds(
    Effect,
    st.sampled_from(TABLES),
    ROWS,
    st.frozensets(IDS, max_size=2),
    st.sampled_from(["insert", "strict"]),
)


@dataclass(frozen=True)
class Member:
    """A write of a group. `expects_head` is a precondition on the head before the group."""

    effect: Effect
    key: str | None
    fails: bool
    expects_head: bool


MEMBERS = st.builds(Member, EFFECTS, st.sampled_from([None, None, "k1", "k2"]), st.booleans(), st.booleans())


class RepositoryMachine(RuleBasedStateMachine):
    """Two handles that are reopened at times, and one model."""

    def __init__(self) -> None:
        super().__init__()
        first = make_graph(fresh_memory())
        self.handles = [first, handle(first)]
        head = first.head()
        genesis = ModelCommit(
            id=head.commit.id,
            parent=None,
            sequence=1,
            rows={table: {} for table in TABLES},
            content=dict.fromkeys(TABLES, head.commit.id),
            version={table: first.snapshot().pin(table).version for table in TABLES},
        )
        self.model = Model({genesis.id: genesis}, {"main": (head.incarnation, genesis.id)})
        self.held: list[tuple[Work, WritePlan]] = []
        self.keys: dict[tuple[str, str], str] = {}
        self.looked = 0

    # --- writing -----------------------------------------------------------------------------------------

    @rule(at=HANDLES, branch=NAMES, effect=EFFECTS, bulk=st.booleans())
    def write(self, at: int, branch: str, effect: Effect, bulk: bool) -> None:
        graph = self.handles[at]
        if branch not in self.model.branches:
            with pytest.raises(NotFound, match="not found"):
                write(graph, _prepare(effect), branch, bulk=bulk)
            self._expect_healed(graph)
            return
        receipt = write(graph, _prepare(effect), branch, bulk=bulk)
        assert not receipt.replayed
        self._expect_healed(graph)
        self._published(graph, branch, effect, receipt)

    @rule(at=HANDLES, branch=NAMES, effect=EFFECTS, key=st.sampled_from(["k1", "k2"]))
    def write_with_a_key(self, at: int, branch: str, effect: Effect, key: str) -> None:
        if branch not in self.model.branches:
            return
        graph = self.handles[at]
        slot = (self.model.branches[branch][0], key)
        receipt = write(graph, _prepare(effect), branch, key=key)
        self._expect_healed(graph)
        assert receipt.replayed == (slot in self.keys)
        if receipt.replayed:
            assert receipt.commit.id == self.keys[slot]
        else:
            self.keys[slot] = receipt.commit.id
            self._published(graph, branch, effect, receipt)

    @rule(at=HANDLES, branch=NAMES, members=st.lists(MEMBERS, min_size=2, max_size=4))
    def write_a_group(self, at: int, branch: str, members: list[Member]) -> None:
        if branch not in self.model.branches:
            return
        graph = self.handles[at]
        incarnation, head = self.model.branches[branch]
        writes = [_group_write(member, head) for member in members]
        outcomes = write_group(graph, writes, branch, behind_another=True)
        self._expect_healed(graph)
        for member, outcome in zip(members, outcomes, strict=True):
            slot = (incarnation, member.key or "")
            before = self.model.branches[branch][1]
            if slot in self.keys:
                assert isinstance(outcome, PublishReceipt)
                assert (outcome.replayed, outcome.commit.id) == (True, self.keys[slot])
            elif member.expects_head and before != head:
                assert isinstance(outcome, PreconditionFailed)
                assert outcome.details == {"expected": head, "actual": before}
            elif member.fails:
                assert isinstance(outcome, InvalidInput)
            else:
                assert isinstance(outcome, PublishReceipt)
                assert (outcome.replayed, outcome.commit.parent) == (False, before)
                self._published(graph, branch, member.effect, outcome)
                if member.key is not None:
                    self.keys[slot] = outcome.commit.id

    @rule(at=HANDLES, branch=NAMES, table=st.sampled_from(TABLES))
    def rewrite(self, at: int, branch: str, table: str) -> None:
        if branch not in self.model.branches:
            return
        graph = self.handles[at]
        receipt = write(graph, rewriting(table), branch)
        self._expect_healed(graph)
        self._published(graph, branch, Effect(table, operation_class="maintenance"), receipt)

    @rule(at=HANDLES, branch=NAMES, effect=EFFECTS)
    def hold_a_prepared_write(self, at: int, branch: str, effect: Effect) -> None:
        if branch not in self.model.branches:
            return
        graph = self.handles[at]
        transaction = graph.begin(branch)
        self._expect_healed(graph)
        stage(transaction, effect.insert, effect.delete | effect.insert.keys(), effect.table)
        plan = transaction.plan("held", effect.operation_class)
        incarnation, head = self.model.branches[branch]
        self.held.append((Work(branch, incarnation, head, effect, fence=self.model.fence), plan))

    @precondition(lambda self: self.held)
    @rule(at=HANDLES, which=st.integers(0, 9))
    def publish_a_held_write(self, at: int, which: int) -> None:
        graph = self.handles[at]
        work, plan = self.held.pop(which % len(self.held))
        verdict = self.model.verdict(work)
        graph.manifest.refresh()
        if verdict == "published":
            assert work.effect is not None
            self._published(graph, work.branch, work.effect, publish(graph.manifest, plan))
            return
        refusal = {"again": StaleBase, "conflict": Conflict, "gone": NotFound}[verdict]
        with pytest.raises(refusal):
            publish(graph.manifest, plan)

    @rule(at=HANDLES, branch=NAMES, effect=EFFECTS, bulk=st.booleans())
    def fail_while_preparing(self, at: int, branch: str, effect: Effect, bulk: bool) -> None:
        if branch not in self.model.branches:
            return
        graph = self.handles[at]

        def breaks(transaction: Transaction) -> Prepared[None]:
            _prepare(effect)(transaction)
            raise InvalidInput("no")

        with pytest.raises(InvalidInput):
            write(graph, breaks, branch, bulk=bulk)
        self._expect_healed(graph)

    # --- branches ----------------------------------------------------------------------------------------

    @rule(at=HANDLES, name=NAMES, source=NAMES)
    def create_branch(self, at: int, name: str, source: str) -> None:
        graph = self.handles[at]
        if name == "main":
            with pytest.raises(InvalidInput):
                graph.create_branch(name, source)
        elif name in self.model.branches:
            with pytest.raises(Conflict):
                graph.create_branch(name, source)
        elif source not in self.model.branches:
            with pytest.raises(NotFound):
                graph.create_branch(name, source)
        else:
            head = graph.create_branch(name, source)
            self.model.branches[name] = (head.incarnation, self.model.branches[source][1])

    @rule(at=HANDLES, name=NAMES, which=st.integers(0, 99))
    def create_branch_at_an_old_commit(self, at: int, name: str, which: int) -> None:
        if name in self.model.branches:
            return
        commit = list(self.model.commits)[which % len(self.model.commits)]
        head = self.handles[at].create_branch(name, at=commit)
        self.model.branches[name] = (head.incarnation, commit)

    @rule(at=HANDLES, name=NAMES)
    def delete_branch(self, at: int, name: str) -> None:
        graph = self.handles[at]
        if name == "main":
            with pytest.raises(InvalidInput):
                graph.delete_branch(name)
        elif name not in self.model.branches:
            with pytest.raises(NotFound):
                graph.delete_branch(name)
        else:
            graph.delete_branch(name)
            del self.model.branches[name]

    # --- crashes, healing, maintenance -------------------------------------------------------------------

    @rule(at=HANDLES, branch=NAMES, effect=st.none() | EFFECTS)
    def a_bulk_writer_dies(self, at: int, branch: str, effect: Effect | None) -> None:
        if branch not in self.model.branches:
            return
        graph = self.handles[at]
        intent = leave_intent(graph, None if effect is None else _prepare(effect), branch)
        self._expect_healed(graph)
        incarnation, head = self.model.branches[branch]
        commit_id = "" if intent.plan is None else intent.plan.commit_id
        self.model.left[intent.id] = Work(branch, incarnation, head, effect, commit_id)

    @rule(at=HANDLES)
    def recover(self, at: int) -> None:
        self.handles[at].recover()
        self._expect_healed(self.handles[at])

    @rule(at=HANDLES)
    def reopen(self, at: int) -> None:
        reader = handle(self.handles[at], "r")
        self.handles[at] = handle(reader)
        self._expect_healed(self.handles[at])

    @rule(at=HANDLES)
    def advance_the_fence(self, at: int) -> None:
        CollectionFence(self.handles[at].manifest).advance()
        self.model.fence += 1

    @rule(at=HANDLES)
    def compact_log(self, at: int) -> None:
        manifest = self.handles[at].manifest
        manifest.refresh()
        full = manifest.needs_log_compaction
        assert manifest.compact_log() == full

    # --- what must hold ----------------------------------------------------------------------------------

    @invariant()
    def every_branch_is_as_the_model_says(self) -> None:
        graph = self._next_handle()
        assert list(graph.branches()) == sorted(self.model.branches)
        for branch, (incarnation, head) in self.model.branches.items():
            found = graph.head(branch)
            assert (found.incarnation, found.commit.id) == (incarnation, head)
            self._check(graph, head)

    @invariant()
    def an_old_commit_reads_as_it_did(self) -> None:
        ids = list(self.model.commits)
        self._check(self._next_handle(), ids[self.looked % len(ids)])

    @invariant()
    def nothing_is_left_that_nobody_knows_of(self) -> None:
        names = {key.removeprefix("__recovery/").split(".")[0] for key in leftovers(self._next_handle())}
        assert names == set(self.model.left)

    def teardown(self) -> None:
        self.handles.append(handle(self.handles[0]))
        self._expect_healed(self.handles[-1])
        for graph in self.handles:
            for id_ in self.model.commits:
                self._check(graph, id_)
            for branch in self.model.branches:
                assert [commit.id for commit in graph.commits(branch)] == self.model.history(branch)
            assert {row.id: row.outcome for row in graph.recoveries()} == self.model.outcomes
            assert graph.warnings == []
            graph.close()

    # --- parts -------------------------------------------------------------------------------------------

    def _next_handle(self) -> Repository:
        self.looked += 1
        return self.handles[self.looked % len(self.handles)]

    def _check(self, graph: Repository, id_: str) -> None:
        snapshot = graph.snapshot(at=id_)
        expected = self.model.commits[id_]
        assert {table: contents(snapshot, table) for table in TABLES} == expected.rows
        assert (snapshot.commit.parent, snapshot.commit.sequence) == (expected.parent, expected.sequence)

    def _published(self, graph: Repository, branch: str, effect: Effect, receipt: PublishReceipt) -> None:
        commit = receipt.commit
        assert commit.branch == branch
        self.model.publish(branch, effect, commit, commit.tables[self._id_of(graph, effect.table)].version)

    def _id_of(self, graph: Repository, table: str) -> str:
        return str(graph.snapshot().table(table).id)

    def _expect_healed(self, graph: Repository) -> None:
        """Predict the recovery of interrupted writes, which every write begins with."""
        for id_, work in sorted(self.model.left.items()):
            verdict = self.model.verdict(work)
            if verdict == "gone":
                self.model.outcomes[id_] = "orphaned"
            elif verdict == "published" and work.effect is not None:
                self.model.outcomes[id_] = "rolled_forward"
                commit = graph.commit(work.commit_id)
                assert commit.recovered
                self._published(graph, work.branch, work.effect, PublishReceipt(commit))
            else:
                self.model.outcomes[id_] = "discarded"
        self.model.left.clear()


def _group_write(member: Member, head: str) -> GroupWrite:
    def prepare(transaction: Transaction) -> Prepared[None]:
        prepared = _prepare(member.effect)(transaction)
        if member.fails:
            raise InvalidInput("no")
        return prepared

    request = WriteRequest(
        "load", expected_head=head if member.expects_head else None, idempotency_key=member.key
    )
    return GroupWrite(prepare, request)


def _prepare(effect: Effect) -> Prepare:
    doomed = effect.delete | effect.insert.keys()
    return staging(effect.insert, doomed, key=effect.table, as_class=effect.operation_class)


def test_the_repository_behaves_as_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    # Small thresholds, so that logs and tables are compacted after a few steps.
    monkeypatch.setattr(manifest_module, "LOG_COMPACT_AT", 4)
    monkeypatch.setattr(row_files, "_MAX_ROWS_TO_CACHE_FILE", 6)
    monkeypatch.setattr(tables_module, "COMPACT_AT", 3)
    monkeypatch.setattr(tables_module, "COMPACTION_TIERS", (2, 4, 8))
    run_state_machine_as_test(
        RepositoryMachine,
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
