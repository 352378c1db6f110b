"""What is written over HTTP is what the same call writes at hand."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.api.graph import Graph
from omnigraph.client.graph import RemoteGraph
from omnigraph.errors import Conflict, InvalidInput, MergeConflicts, PreconditionFailed
from tests.client.comparing import LABELLED, SET, WIDER, failure, told
from tests.server.running import ADD, SCHEMA


class TestWrites:
    def test_mutate_makes_one_commit_of_the_actor(self, remote: RemoteGraph, local: Graph) -> None:
        done = remote.mutate(ADD, {"n": "Zoe", "a": 40}, message="adds Zoe")
        head = local.commits()[0]
        assert done.commit == head
        assert (head.actor, head.message) == ("ann", "adds Zoe")
        assert (done.affected_nodes, done.query_name) == (1, "add")
        assert done.affected == {"Person": {"inserted": 1, "updated": 0, "deleted": 0}}
        assert remote.mutate(SET, {"n": "nobody"}).commit is None

    def test_mutate_if_commit_with_other_head_is_refused(self, remote: RemoteGraph, local: Graph) -> None:
        head = local.commits()[0].id
        assert remote.mutate(ADD, {"n": "Cid"}, if_commit=head).commit is not None
        with pytest.raises(PreconditionFailed) as caught:
            remote.mutate(ADD, {"n": "Dan"}, if_commit=head)
        assert told(caught.value) == told(
            failure(lambda g: g.mutate(ADD, {"n": "Dan"}, if_commit=head), local)
        )
        for strange in ("", "two words", "*", "é", "a\r\nb"):
            with pytest.raises(InvalidInput, match="not a commit id"):
                remote.mutate(ADD, {"n": "Dan"}, if_commit=strange)

    def test_mutate_with_repeated_idempotency_key_commits_once(self, remote: RemoteGraph) -> None:
        first = remote.mutate(ADD, {"n": "Zoe"}, idempotency_key="k")
        again = remote.mutate(ADD, {"n": "Zoe"}, idempotency_key="k")
        assert (again.commit, again.replayed, again.affected_nodes) == (first.commit, True, 0)

    def test_branches_create_merge_and_delete(self, remote: RemoteGraph, local: Graph) -> None:
        first = local.commits()[0]
        remote.mutate(ADD, {"n": "Zoe"})
        made = remote.branches.create("a/b c%2F", at=first.id)
        assert (made.name, made.commit_id) == ("a/b c%2F", first.id)
        moment = first.created_at + timedelta(milliseconds=1)
        assert remote.branches.create("then", at=moment) == og.Branch("then", first.id)
        assert remote.branches.create("of", "then").commit_id == first.id
        remote.branches.delete("a/b c%2F")
        assert remote.branches.list() == local.branches.list() == ["main", "of", "then"]
        remote.mutate(ADD, {"n": "Yan"}, branch="then")
        trial = remote.branches.merge("then", dry_run=True)
        assert (trial.outcome, trial.dry_run, trial.commit) == ("merged", True, None)
        done = remote.branches.merge("then", message="all of it", delete_source=True)
        assert done.commit == local.commits()[0]
        assert (done.commit.message, done.branch_deleted) == ("all of it", True)
        assert done.affected == {"Person": {"inserted": 1, "updated": 0, "deleted": 0}}

    def test_merge_conflicts_are_reported_and_resolved(self, remote: RemoteGraph, local: Graph) -> None:
        local.branches.create("review")
        local.mutate(SET, {"n": "Ann", "a": 31}, branch="review")
        local.mutate(SET, {"n": "Ann", "a": 32})
        with pytest.raises(MergeConflicts) as caught:
            remote.branches.merge("review")
        assert told(caught.value) == told(failure(lambda g: g.branches.merge("review"), local))
        trial = remote.branches.merge("review", dry_run=True)
        assert trial == local.branches.merge("review", dry_run=True)
        (conflict,) = trial.conflicts
        settled = {conflict["id"]: {"value": 33}}
        assert remote.branches.merge("review", resolve=settled).commit is not None
        assert local.get("Person", "Ann") == {"id": "Ann", "age": 33, "name": "Ann"}

    def test_revert_makes_a_commit(self, remote: RemoteGraph, local: Graph) -> None:
        done = remote.mutate(ADD, {"n": "Zoe"}).commit
        assert done is not None
        trial = remote.revert(done.id, dry_run=True)
        assert trial == local.revert(done.id, dry_run=True)
        undone = remote.revert(done.id, if_commit=done.id)
        assert undone.commit == local.commits()[0]
        assert (undone.commit.operation, undone.commit.message) == ("revert", f"revert {done.id}")
        assert remote.get("Person", "Zoe") is None

    def test_schema_plan_and_apply(self, remote: RemoteGraph, local: Graph, tmp_path: Path) -> None:
        wanted = tmp_path / "wider.pg"
        wanted.write_text(WIDER, encoding="utf-8")
        assert remote.schema.plan(wanted) == local.schema.plan(wanted)
        planned = remote.schema.plan(LABELLED)
        assert planned == local.schema.plan(LABELLED)
        assert not planned.supported
        first = local.commits()[0].id
        steps = local.schema.plan(WIDER).steps
        done = remote.schema.apply(wanted, message="wider", if_commit=first)
        assert (done.applied, done.commit, done.graph_manifest_version) == (True, local.commits()[0], 3)
        assert done.plan.steps == steps != ()
        assert done.before == local.snapshot(at=first).catalog
        assert remote.schema.source() == local.schema.source() == WIDER
        assert remote.schema.source(at=first) == SCHEMA
        again = remote.schema.apply(WIDER)
        assert (again.applied, again.commit, again.plan.steps) == (False, None, ())

    def test_schema_apply_backfills_new_properties(self, remote: RemoteGraph, local: Graph) -> None:
        backfill = {"Person.label": og.expr("$this.name"), "Person.size": 7}
        assert remote.schema.plan(LABELLED, backfill=backfill) == local.schema.plan(
            LABELLED, backfill=backfill
        )
        # On main a stored query would not fit it.
        with pytest.raises(Conflict, match="stored queries of the graph: hire"):
            remote.schema.apply(LABELLED, backfill=backfill)
        remote.branches.create("wider")
        assert remote.schema.apply(LABELLED, backfill=backfill, branch="wider").applied
        assert local.get("Person", "Ann", branch="wider") == {
            "id": "Ann",
            "age": 30,
            "label": "Ann",
            "name": "Ann",
            "size": 7,
        }

    def test_maintenance_calls_return_the_results_of_a_local_graph(
        self, remote: RemoteGraph, local: Graph
    ) -> None:
        for name in ("Cid", "Dan"):
            local.mutate(ADD, {"n": name})
        done = remote.optimize(message="tidy")
        assert done.commit == local.commits()[0]
        assert (done.branch, [item.type_key for item in done.datasets]) == (
            "main",
            ["node:Person", "edge:Knows"],
        )
        assert remote.indexes() == local.indexes() != []
        assert remote.optimize().commit is None
        assert remote.verify(quick=True) == local.verify(quick=True)
        assert remote.verify(all_commits=True, branch="main") == local.verify(all_commits=True, branch="main")
        assert remote.repair() == local.repair()
        assert remote.repair(confirm=True).confirmed
        assert remote.cleanup(keep=50) == local.cleanup(keep=50)
        assert remote.set_settings(retention="2h") == local.settings() == remote.settings()
        assert remote.cleanup(keep=1, confirm=True)["confirmed"]


def test_stored_embeddings_on_a_server_are_refused_with_the_command_to_run(remote: RemoteGraph) -> None:
    for call in (remote.embeddings.status, remote.embeddings.refresh):
        with pytest.raises(InvalidInput, match="over HTTP") as raised:
            call()
        assert "omnigraph embed refresh" in str(raised.value.hint)
