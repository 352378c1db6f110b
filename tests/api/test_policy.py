"""The policy of a graph: every call asks for what it does, and what is denied leaves no trace."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest

import omnigraph as og
from omnigraph.api.graph import Graph
from omnigraph.api.interface.branches import Branches
from omnigraph.api.interface.embeddings import Embeddings
from omnigraph.api.interface.schemas import SchemaView
from omnigraph.api.interface.tags import Tags
from omnigraph.errors import InvalidInput, NotFound, PermissionDenied
from omnigraph.policy.bundle import BRANCH_ACTIONS, TARGET_ACTIONS, PolicyBundle, Rule, read_bundle
from omnigraph.policy.gate import Access
from tests.policy.test_gate import DOCUMENT
from tests.support.places import fresh_memory, together

SCHEMA = "node Person { name: String @key  age: I32? }"
WIDER = "node Person { name: String @key  age: I32?  city: String? }"
ADD = "query add($n: String) { insert Person { name: $n } }"
COUNT = "query people() { match { $p: Person } return { count($p) as n } }"
BO: Final = {"Person": [{"name": "Bo"}]}
ALL_BRANCHES = ("main", "dev", "fresh")


def make(uri: str) -> og.LocalGraph:
    """A graph with a person on main, one more on dev, and a tag."""
    graph = og.init(uri, schema=SCHEMA, actor="founder", durability="os")
    graph.mutate(ADD, {"n": "Ana"})
    graph.branches.create("dev")
    graph.mutate(ADD, {"n": "Dan"}, branch="dev")
    graph.tags.create("v0")
    return graph


def may(*actions: str, on: tuple[str, ...] = ALL_BRANCHES) -> PolicyBundle:
    """A bundle that lets ann do this on these branches, and nobody anything else; bob is known."""
    rules = [
        Rule(
            f"on-{action}",
            "g",
            (action,),
            *(("protected",) if action in BRANCH_ACTIONS else (None, "protected")),
        )
        for action in actions
    ]
    return PolicyBundle({"g": ("ann",), "others": ("bob",)}, frozenset(on), tuple(rules))


def opened(uri: str, bundle: PolicyBundle | None = None, actor: str | None = "ann") -> Graph:
    return og.open(uri, actor=actor, policy=may() if bundle is None else bundle, durability="os")


def heads(graph: Graph) -> dict[str, str]:
    return {name: graph.snapshot(name).commit_id for name in graph.branches.list()}


def asked(call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[str, str | None, str | None]:
    """What a call was denied."""
    with pytest.raises(PermissionDenied) as denied:
        call(*args, **kwargs)
    found = denied.value.details
    return found["action"], found["branch"], found["target_branch"]


@dataclass(frozen=True)
class Ask:
    """A call, and what it must ask for first of all."""

    call: Callable[[Graph], Any]
    action: str
    branch: str | None = None
    target: str | None = None
    # Whether it must look a commit up to know the branch.
    looks_up: bool = False
    # The branch that it must be allowed to read too.
    reads: str | None = None

    @property
    def access(self) -> tuple[str, str | None, str | None]:
        return self.action, self.branch, self.target

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(name for name in (self.branch, self.target) if name is not None)


def newest(graph: Graph) -> str:
    """The commit on dev, as somebody sees it who may read everything."""
    return og.open(graph.uri).snapshot("dev").commit_id


def no_frame(graph: Graph) -> None:
    # Refused by what comes after the gate, which saves the start of Spark.
    with pytest.raises(InvalidInput, match="contains mutations"):
        graph.dataframe(ADD, {"n": "Bo"}, branch="dev")


def no_blob(graph: Graph) -> None:
    # The schema has no Blob property, which is checked after authorization.
    with pytest.raises(InvalidInput, match="no Blob property"):
        graph.blob("Person", "Ana", "age", branch="dev")


def no_edges(graph: Graph) -> None:
    # The schema has no edge type, which is checked after authorization.
    with pytest.raises(InvalidInput, match="edge"):
        graph.edges("Knows", branch="dev")


def no_backup(graph: Graph) -> None:
    # A target in memory is refused after authorization.
    with pytest.raises(InvalidInput, match="memory"):
        graph.backup(fresh_memory())


TABLE: dict[str, Ask] = {
    "Graph.query": Ask(lambda g: g.query(COUNT, branch="dev"), "read", "dev"),
    "Graph.dataframe": Ask(no_frame, "read", "dev"),
    "Graph.explain": Ask(lambda g: g.explain(COUNT, branch="dev"), "read", "dev"),
    "Graph.get": Ask(lambda g: g.get("Person", "Ana", branch="dev"), "read", "dev"),
    "Graph.blob": Ask(no_blob, "read", "dev"),
    "Graph.nodes": Ask(lambda g: g.nodes("Person", branch="dev"), "read", "dev"),
    "Graph.edges": Ask(no_edges, "read", "dev"),
    "Graph.frame": Ask(lambda g: g.frame("Person", branch="dev"), "read", "dev"),
    "Graph.neighbors": Ask(lambda g: g.neighbors("Person", "Ana", branch="dev"), "read", "dev"),
    "Graph.history": Ask(lambda g: g.history("Person", "Ana", branch="dev"), "read", "dev"),
    "Graph.blame": Ask(lambda g: g.blame("Person", "Ana", branch="dev"), "read", "dev"),
    "Graph.commits": Ask(lambda g: g.commits("dev"), "read", "dev"),
    "Graph.commit": Ask(lambda g: g.commit(newest(g)), "read", looks_up=True),
    "Graph.recoveries": Ask(lambda g: g.recoveries(), "read"),
    "Graph.snapshot": Ask(lambda g: g.snapshot("dev"), "read", "dev"),
    "Graph.indexes": Ask(lambda g: g.indexes(branch="dev"), "read", "dev"),
    "Graph.diff": Ask(lambda g: g.diff("dev", "dev"), "read", "dev", looks_up=True),
    "Graph.changes": Ask(lambda g: g.changes(newest(g)), "read", "dev", looks_up=True),
    "Graph.feed": Ask(lambda g: g.feed(branch="dev"), "read", "dev"),
    "Graph.export": Ask(lambda g: g.export(StringIO(), branch="dev"), "export", "dev"),
    "Graph.baseline": Ask(lambda g: g.baseline(StringIO(), branch="dev"), "export", "dev"),
    "Graph.mutate": Ask(lambda g: g.mutate(ADD, {"n": "Bo"}, branch="dev"), "change", "dev"),
    "Graph.load": Ask(lambda g: g.load(BO, branch="dev"), "change", "dev"),
    "Graph.insert": Ask(lambda g: g.insert("Person", BO["Person"], branch="dev"), "change", "dev"),
    "Graph.upsert": Ask(lambda g: g.upsert("Person", BO["Person"], branch="dev"), "change", "dev"),
    "Graph.delete": Ask(lambda g: g.delete("Person", "Dan", branch="dev"), "change", "dev"),
    "Graph.batch": Ask(lambda g: g.batch(branch="dev").load(BO).commit(), "change", "dev"),
    "Graph.revert": Ask(
        lambda g: g.revert(newest(g), branch="dev"), "change", "dev", looks_up=True, reads="dev"
    ),
    "Graph.optimize": Ask(lambda g: g.optimize(branch="dev"), "change", "dev"),
    "Graph.cleanup": Ask(lambda g: g.cleanup(keep=1, confirm=True), "admin"),
    "Graph.backup": Ask(no_backup, "admin"),
    "Graph.settings": Ask(lambda g: g.settings(), "read"),
    "Graph.set_settings": Ask(lambda g: g.set_settings(retention="forever"), "admin"),
    "Graph.verify": Ask(lambda g: g.verify(), "admin"),
    "Graph.repair": Ask(lambda g: g.repair(confirm=True), "change", "main"),
    "Branches.list": Ask(lambda g: g.branches.list(), "read"),
    "Branches.create": Ask(
        lambda g: g.branches.create("fresh", "dev"), "branch_create", "dev", "fresh", reads="dev"
    ),
    "Branches.delete": Ask(lambda g: g.branches.delete("dev"), "branch_delete", None, "dev"),
    "Branches.merge": Ask(
        lambda g: g.branches.merge("dev", "main"), "branch_merge", "dev", "main", reads="dev"
    ),
    "Tags.list": Ask(lambda g: g.tags.list(), "read"),
    "Tags.create": Ask(lambda g: g.tags.create("fresh", "dev"), "branch_create", None, "fresh", reads="dev"),
    "Tags.delete": Ask(lambda g: g.tags.delete("v0"), "branch_delete", None, "v0"),
    "Embeddings.status": Ask(lambda g: g.embeddings.status(branch="dev"), "read", "dev"),
    "Embeddings.refresh": Ask(lambda g: g.embeddings.refresh(branch="dev"), "change", "dev"),
    "SchemaView.source": Ask(lambda g: g.schema.source("dev"), "read"),
    "SchemaView.plan": Ask(lambda g: g.schema.plan(WIDER, branch="dev"), "read", "dev"),
    "SchemaView.apply": Ask(lambda g: g.schema.apply(WIDER, branch="dev"), "schema_apply", None, "dev"),
}
# Nothing of the graph is read or written by these.
UNASKED = {"Graph.acting_as", "Graph.actor", "Graph.close", "Graph.uri"}


def test_authorized_view_granted_access_is_not_checked_again() -> None:
    uri = fresh_memory()
    make(uri).close()
    with og.open(uri, policy=may("read")) as graph:
        granted = graph.authorized_view("bob", frozenset({Access("change", "dev")}), graph._authorizer.gate)
        assert granted.mutate(ADD, {"n": "Bo"}, branch="dev").affected_nodes == 1
        for denied in (
            lambda: granted.mutate(ADD, {"n": "Bo"}),
            lambda: granted.mutate(ADD, {"n": "Bo"}, branch="dev", actor="eve"),
            lambda: granted.query(COUNT, branch="dev"),
            lambda: granted.acting_as("bob").mutate(ADD, {"n": "Bo"}, branch="dev"),
        ):
            with pytest.raises(PermissionDenied):
                denied()


@pytest.fixture(scope="module")
def standing() -> Graph:
    """A graph for those who are denied: nothing that they try changes it."""
    return make(fresh_memory())


class TestTheTable:
    def test_every_public_method_is_in_the_table_of_actions(self) -> None:
        found = {
            f"{kind.__name__}.{name}"
            for kind in (Graph, Branches, Tags, SchemaView, Embeddings)
            for name, _ in inspect.getmembers(kind)
            if not name.startswith("_")
        }
        assert found == TABLE.keys() | UNASKED
        assert not TABLE.keys() & UNASKED

    @pytest.mark.parametrize("name", TABLE)
    def test_call_without_permission_is_denied_and_changes_nothing(self, name: str, standing: Graph) -> None:
        before, history = heads(standing), standing.commits(limit=None)
        graph, ask = opened(standing.uri), TABLE[name]
        assert asked(ask.call, graph) == ask.access
        assert (heads(standing), standing.commits(limit=None)) == (before, history)

    @pytest.mark.parametrize("name", TABLE)
    def test_call_with_only_its_action_is_allowed(self, name: str) -> None:
        plain, ask = make(fresh_memory()), TABLE[name]
        if ask.reads is not None:
            both = (*ask.places[-1:], ask.reads)
            ask.call(opened(plain.uri, may(ask.action, "read", on=both)))
            assert asked(TABLE[name].call, opened(plain.uri, may(ask.action))) == ("read", ask.reads, None)
        elif ask.places:
            ask.call(opened(plain.uri, may(ask.action, on=ask.places[-1:])))
        else:
            rule = Rule("r", "g", (ask.action,))
            ask.call(opened(plain.uri, PolicyBundle({"g": ("ann",)}, frozenset(), (rule,))))

    @pytest.mark.parametrize("name", TABLE)
    def test_call_with_every_other_action_is_denied(self, name: str, standing: Graph) -> None:
        ask = TABLE[name]
        others = [action for action in (*BRANCH_ACTIONS, *TARGET_ACTIONS) if action != ask.action]
        graph = opened(standing.uri, may(*others))
        assert asked(ask.call, graph) == ask.access

    @pytest.mark.parametrize("name", TABLE)
    def test_call_without_actor_is_denied(self, name: str, standing: Graph) -> None:
        graph = opened(standing.uri, may(*BRANCH_ACTIONS, *TARGET_ACTIONS), actor=None)
        with pytest.raises(PermissionDenied, match="for no actor"):
            TABLE[name].call(graph)

    def test_denied_call_reads_nothing(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "g.omni")
        make(uri)
        graph = opened(uri)
        shutil.rmtree(uri)
        for ask in TABLE.values():
            if not ask.looks_up:
                assert asked(ask.call, graph) == ask.access
        assert not Path(uri).exists()

    def test_denied_call_writes_no_file(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "g.omni")
        make(uri)
        graph = opened(uri)
        before = sorted(tmp_path.rglob("*"))
        for ask in TABLE.values():
            asked(ask.call, graph)
        for call in (graph.export, graph.baseline):
            asked(call, tmp_path / "out.ndjson")
        assert sorted(tmp_path.rglob("*")) == before


class TestStates:
    """A state that is named by a commit belongs to the branch that the commit was made on."""

    @pytest.fixture
    def plain(self) -> Graph:
        return make(fresh_memory())

    def reads(self, graph: Graph) -> list[Callable[[Any], Any]]:
        return [
            lambda at: graph.query(COUNT, at=at),
            lambda at: graph.explain(COUNT, at=at),
            lambda at: graph.get("Person", "Ana", at=at),
            lambda at: graph.snapshot(at=at),
            lambda at: graph.indexes(at=at),
            lambda at: graph.diff(at, at),
        ]

    def test_read_at_commit_or_snapshot_requires_permission_on_its_branch(self, plain: Graph) -> None:
        states = (plain.snapshot("dev").commit_id, plain.snapshot("dev"))
        for at in states:
            for read in self.reads(opened(plain.uri, may("read", on=("main",)))):
                assert asked(read, at) == ("read", "dev", None)
            for read in self.reads(opened(plain.uri, may("read", on=("dev",)))):
                read(at)
            graph = opened(plain.uri, may("export", on=("main",)))
            assert asked(graph.export, StringIO(), at=at) == ("export", "dev", None)
        assert opened(plain.uri, may("read", on=("dev",))).query(COUNT, at=states[0]).scalar() == 2

    def test_read_of_inherited_commit_requires_permission_on_its_branch(self, plain: Graph) -> None:
        parent = plain.commits("dev")[1]
        assert parent.branch == "main"
        graph = opened(plain.uri, may("read", on=("dev",)))
        assert asked(graph.query, COUNT, branch="dev", at=parent.id) == ("read", "main", None)

    def test_read_at_time_requires_permission_on_the_named_branch(self, plain: Graph) -> None:
        now = datetime.now(UTC)
        graph = opened(plain.uri, may("read", on=("dev",)))
        assert graph.query(COUNT, branch="dev", at=now).scalar() == 2
        assert asked(graph.query, COUNT, at=now) == ("read", "main", None)
        assert asked(graph.diff, "dev", now) == ("read", "main", None)

    def test_diff_requires_permission_on_both_states(self, plain: Graph) -> None:
        graph = opened(plain.uri, may("read", on=("dev",)))
        for states in (("main", "dev"), ("dev", "main")):
            assert asked(graph.diff, *states) == ("read", "main", None)
        found = opened(plain.uri, may("read")).diff("main", "dev")
        assert ([change.id for change in found], found.branch) == (["Dan"], "dev")

    def test_unknown_commit_is_reported_only_with_permission_on_every_branch(self, plain: Graph) -> None:
        anywhere = PolicyBundle({"g": ("ann",)}, frozenset(), (Rule("r", "g", ("read",), "any"),))
        reads: tuple[Callable[[Graph], Any], ...] = (
            lambda g: g.query(COUNT, at="nothing"),
            lambda g: g.changes("nothing"),
            lambda g: g.diff("nothing", "main"),
        )
        for read in reads:
            with pytest.raises(NotFound):
                read(opened(plain.uri, anywhere))
            for graph in (opened(plain.uri, may("read")), opened(plain.uri, anywhere, "eve")):
                assert asked(read, graph) == ("read", None, None)

    def test_branch_name_with_spaces_is_still_protected(self, plain: Graph) -> None:
        rules = (
            Rule("r", "g", ("change", "read"), "unprotected"),
            Rule("s", "g", ("branch_merge",), None, "unprotected"),
        )
        graph = opened(plain.uri, PolicyBundle({"g": ("ann",)}, frozenset({"main"}), rules))
        assert asked(graph.mutate, ADD, {"n": "Bo"}, branch=" main ") == ("change", "main", None)
        assert asked(graph.query, COUNT, branch="main\n") == ("read", "main", None)
        assert asked(graph.branches.merge, "dev", "\tmain") == ("branch_merge", "dev", "main")


class TestSeveralActions:
    def test_load_that_creates_its_branch_requires_both_actions(self) -> None:
        plain = make(fresh_memory())
        graph = opened(plain.uri, may("change"))
        for dry_run in (True, False):
            asking = asked(graph.load, BO, branch="fresh", create_from="dev", dry_run=dry_run)
            assert asking == ("branch_create", "dev", "fresh")
        without = opened(plain.uri, may("branch_create"))
        assert asked(without.load, BO, branch="fresh", create_from="dev") == ("change", "fresh", None)
        assert plain.branches.list() == ["dev", "main"]
        assert graph.load(BO, branch="dev", create_from="main").branch_created is False
        blind = opened(plain.uri, may("change", "branch_create"))
        assert asked(blind.load, BO, branch="fresh", create_from="main") == ("read", "main", None)
        rights = may("change", "branch_create", "read")
        done = opened(plain.uri, rights).load(BO, branch="fresh", create_from="main")
        assert done.branch_created

    def test_merge_without_permission_to_delete_the_source_is_committed(self) -> None:
        plain = make(fresh_memory())
        merged = opened(plain.uri, may("branch_merge", "read")).branches.merge("dev", delete_source=True)
        assert (merged.outcome, merged.branch_deleted) == ("fast_forward", False)
        expected = "policy denied action 'branch_delete' targeting branch 'dev' for actor 'ann'"
        assert merged.branch_delete_error == expected
        assert plain.branches.list() == ["dev", "main"]
        again = opened(plain.uri, may("branch_merge", "branch_delete", "read")).branches.merge(
            "dev", delete_source=True
        )
        assert (again.branch_deleted, plain.branches.list()) == (True, ["main"])

    def test_revert_of_schema_change_requires_schema_apply(self) -> None:
        plain = make(fresh_memory())
        widened, added = plain.schema.apply(WIDER).commit, plain.load(BO).commit
        assert widened is not None
        assert added is not None
        graph = opened(plain.uri, may("change", "read"))
        before = heads(plain)
        for dry_run in (True, False):
            assert asked(graph.revert, widened.id, dry_run=dry_run) == ("schema_apply", None, "main")
        assert heads(plain) == before
        assert graph.revert(added.id).commit is not None
        assert opened(plain.uri, may("change", "schema_apply", "read")).revert(widened.id).commit is not None
        assert "city" not in plain.schema.source()

    def test_call_with_actor_argument_requires_permission_of_that_actor(self) -> None:
        graph = opened(make(fresh_memory()).uri, may("change", "branch_create"))
        with pytest.raises(PermissionDenied, match="for actor 'bob'"):
            graph.mutate(ADD, {"n": "Bo"}, branch="dev", actor="bob")
        with pytest.raises(PermissionDenied, match="for actor 'bob'"):
            graph.branches.create("fresh", actor="bob")
        done = graph.acting_as("bob").mutate(ADD, {"n": "Bo"}, branch="dev", actor="ann").commit
        assert done is not None
        assert done.actor == "ann"


class TestActingAs:
    def test_acting_as_records_the_actor_of_every_write(self) -> None:
        graph = make(fresh_memory())
        view = graph.acting_as("bo")
        view.mutate(ADD, {"n": "Bo"})
        view.load({"Person": [{"name": "Cy"}]})
        view.branches.merge("dev")
        view.schema.apply(WIDER)
        view.optimize()
        undone = view.load({"Person": [{"name": "Eve"}]}).commit
        assert undone is not None
        view.revert(undone.id)
        recorded = {commit.operation: commit.actor for commit in graph.commits(limit=7)}
        assert set(recorded) == {"mutate", "load", "merge", "schema_apply", "optimize", "revert"}
        assert set(recorded.values()) == {"bo"}
        view.branches.create("mine")
        assert graph._repository.branches()["mine"].created_by == "bo"
        assert (graph.actor, view.actor) == ("founder", "bo")
        assert view.acting_as("cy").actor == "cy"

    def test_acting_as_shares_caches_with_the_handle(self) -> None:
        graph = make(fresh_memory())
        view = graph.acting_as("bo")
        for kept in ("_repository", "_reader", "_queries"):
            assert getattr(view, kept) is getattr(graph, kept)

    def test_close_of_a_view_keeps_the_handle_open(self) -> None:
        graph = make(fresh_memory())
        with graph.acting_as("bo") as view:
            view.mutate(ADD, {"n": "Bo"})
        graph.mutate(ADD, {"n": "Cy"})
        graph.close()
        with pytest.raises(InvalidInput, match="closed"):
            view.mutate(ADD, {"n": "Eve"})

    def test_actor_attribute_is_read_only(self) -> None:
        with pytest.raises(AttributeError):
            make(fresh_memory()).actor = "eve"  # type: ignore[misc]

    def test_acting_as_in_threads_keeps_actors_apart(self) -> None:
        plain = make(fresh_memory())
        document = {**DOCUMENT, "groups": {"team": ["act-ann", "act-bob"], "admins": ["act-ann"]}}
        graph = og.open(plain.uri, policy=document, actor="act-ann")

        def write(actor: str, first: int) -> list[str]:
            view = graph.acting_as(actor)
            names = [f"{actor}-{number}" for number in range(first, first + 4)]
            for name in names:
                view.mutate(ADD, {"n": name}, branch="dev")
                assert view.query(COUNT, branch="dev").scalar() > 1
            return names

        actors = ("act-ann", "act-eve", "act-bob", "act-ann", "act-mal", "act-bob")
        done = together(
            [lambda actor=actor, at=at: write(actor, 4 * at) for at, actor in enumerate(actors)]  # type: ignore[misc]
        )
        for actor, outcome in zip(actors, done, strict=True):
            assert isinstance(outcome, PermissionDenied if actor in ("act-eve", "act-mal") else list)
        history = plain.commits("dev", limit=16)
        assert sorted(str(commit.actor) for commit in history) == ["act-ann"] * 8 + ["act-bob"] * 8
        changed = [(commit.actor, change.id) for commit in history for change in plain.changes(commit.id)]
        assert all(name.startswith(f"{actor}-") for actor, name in changed)

    def test_pickle_of_a_view_keeps_actor_and_policy(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "g.omni")
        make(uri)
        path = tmp_path / "policy.json"
        path.write_text(json.dumps(DOCUMENT), encoding="utf-8")
        graph = og.open(uri, actor="act-ann", policy=path, graph_id="k", durability="os")
        pickled = pickle.dumps(graph.acting_as("act-bob"))
        # What decides is the bundle as it was read, wherever the handle goes.
        path.unlink()
        twin = pickle.loads(pickled)
        assert twin.actor == "act-bob"
        assert asked(twin.mutate, ADD, {"n": "Bo"}) == ("change", "main", None)
        assert twin.mutate(ADD, {"n": "Bo"}, branch="dev").commit.actor == "act-bob"
        assert twin._authorizer.gate == graph._authorizer.gate


class TestOpening:
    def test_open_accepts_policy_as_bundle_mapping_or_file(self, tmp_path: Path) -> None:
        uri = make(fresh_memory()).uri
        yaml, js = tmp_path / "p.yaml", tmp_path / "p.json"
        yaml.write_text("version: 1\ngroups: {team: [act-bob]}\nrules: []\n", encoding="utf-8")
        js.write_text(json.dumps(DOCUMENT), encoding="utf-8")
        for policy in (read_bundle(DOCUMENT), DOCUMENT, js, str(js), yaml):
            graph = og.open(uri, actor="act-bob", policy=policy)
            assert asked(graph.mutate, ADD, {"n": "Bo"}) == ("change", "main", None)
        silent = og.open(uri, actor="act-bob", policy=yaml)
        assert asked(silent.query, COUNT) == ("read", "main", None)

    def test_open_with_invalid_policy_is_refused_and_creates_nothing(self, tmp_path: Path) -> None:
        uri, path = str(tmp_path / "g.omni"), tmp_path / "p.yaml"
        path.write_text("version: 2\n", encoding="utf-8")
        with pytest.raises(InvalidInput, match=r"p\.yaml: policy version must be 1"):
            og.init(uri, SCHEMA, policy=path)
        server = {
            **DOCUMENT,
            "rules": [{"id": "r", "allow": {"actors": {"group": "team"}, "actions": ["graph_list"]}}],
        }
        with pytest.raises(InvalidInput, match="applies to the server"):
            og.init(uri, SCHEMA, policy=server)
        with pytest.raises(NotFound):
            og.init(uri, SCHEMA, policy=tmp_path / "missing.yaml")
        odd: Any
        for odd in ([1], 7, "", " "):
            with pytest.raises(
                InvalidInput, match="a policy is a bundle, the content of a policy file, or its path"
            ):
                og.init(uri, SCHEMA, policy=odd)
        assert not Path(uri).exists()

    def test_init_with_policy_enforces_it(self) -> None:
        graph = og.init(fresh_memory(), SCHEMA, actor="act-bob", policy=DOCUMENT)
        assert asked(graph.mutate, ADD, {"n": "Bo"}) == ("change", "main", None)
        assert graph.query(COUNT).scalar() == 0

    def test_policy_graph_id_defaults_to_the_end_of_the_address(self, tmp_path: Path) -> None:
        for given, expected in ((None, "knowledge"), ("k", "k")):
            uri = str(tmp_path / str(given) / "knowledge.omni")
            gate = og.init(uri, SCHEMA, policy=DOCUMENT, graph_id=given, durability="os")._authorizer.gate
            assert gate is not None
            assert gate.graph_id == expected

    def test_open_without_policy_does_not_import_the_policy_package(self) -> None:
        code = (
            "import sys, omnigraph as og\n"
            f"g = og.init('memory://x', {SCHEMA!r})\n"
            f"g.acting_as('bo').mutate({ADD!r}, {{'n': 'Bo'}}); g.query({COUNT!r}); g.diff('main', 'main')\n"
            "print([name for name in sys.modules if 'cedar' in name or name.startswith('omnigraph.policy')])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n"

    def test_async_graph_enforces_the_policy(self) -> None:
        uri = make(fresh_memory()).uri

        async def main() -> None:
            async with og.aio.open(uri, actor="act-bob", policy=DOCUMENT) as graph:
                with pytest.raises(PermissionDenied):
                    await graph.mutate(ADD, {"n": "Bo"})
                done = await graph.mutate(ADD, {"n": "Bo"}, branch="dev")
                assert done.commit is not None
                async with graph.acting_as("act-eve") as eve:
                    with pytest.raises(PermissionDenied, match="unknown actor 'act-eve'"):
                        await eve.query(COUNT)
                ann = graph.acting_as("act-ann")
                assert (await ann.branches.merge("dev")).commit.actor == ann.actor == "act-ann"  # type: ignore[union-attr]

        asyncio.run(main())


@pytest.mark.parametrize(
    ("actor", "call", "message"),
    [
        ("act-bob", lambda g: g.query(COUNT), None),
        (
            "act-bob",
            lambda g: g.mutate(ADD, {"n": "Bo"}),
            "policy denied action 'change' on branch 'main' for actor 'act-bob'",
        ),
        ("act-bob", lambda g: g.mutate(ADD, {"n": "Bo"}, branch="dev"), None),
        (
            "act-bob",
            lambda g: g.branches.merge("dev"),
            "policy denied action 'branch_merge' on branch 'dev' targeting branch 'main' for actor 'act-bob'",
        ),
        ("act-ann", lambda g: g.branches.merge("dev"), None),
        (
            "act-ann",
            lambda g: g.branches.merge("main", "dev"),
            "policy denied action 'branch_merge' on branch 'main' targeting branch 'dev' for actor 'act-ann'",
        ),
        ("act-eve", lambda g: g.query(COUNT), "policy denied action 'read' for unknown actor 'act-eve'"),
        (
            "act-bob",
            lambda g: g.branches.create("x"),
            "policy denied action 'branch_create' on branch 'main' targeting branch 'x' for actor 'act-bob'",
        ),
        ("act-bob", lambda g: g.branches.list(), None),
    ],
)
def test_worked_examples_of_the_specification_on_a_graph(
    actor: str, call: Callable[[Graph], Any], message: str | None
) -> None:
    graph = og.open(make(fresh_memory()).uri, policy=DOCUMENT, actor=actor)
    if message is None:
        call(graph)
        return
    with pytest.raises(PermissionDenied) as denied:
        call(graph)
    assert denied.value.message == message
