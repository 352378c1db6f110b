"""`cluster apply`, `approve` and `rollback`: changes, failures, approvals and interrupted operations."""

from __future__ import annotations

import json
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cluster.applying.apply import apply
from omnigraph.cluster.applying.approve import approve
from omnigraph.cluster.applying.live_graphs import create_graph, delete_graph, migrate_graph, observe_graph
from omnigraph.cluster.applying.observe import import_state, refresh
from omnigraph.cluster.applying.rollback import rollback
from omnigraph.cluster.commands import history, plan, status
from omnigraph.cluster.configuration.read_configuration import load_configuration
from omnigraph.cluster.diagnostics import ClusterFailure
from omnigraph.cluster.digests import digest_of
from omnigraph.cluster.ledger.approvals import APPROVALS, confirm_approval, read_approvals, write_approval
from omnigraph.cluster.ledger.intents import Intent, IntentKind, read_intents, write_intent
from omnigraph.cluster.ledger.lock import acquire_lock, release_lock
from omnigraph.cluster.ledger.state import AppliedResource, ClusterState
from omnigraph.cluster.planning.changes import Change
from omnigraph.cluster.planning.plan import PlanInputs, compute_plan
from omnigraph.cluster.reports import Report
from omnigraph.graph.recovery.leases import hold_lease
from tests.cluster_control.cluster_files import (
    CONFIG,
    HIRE,
    OLDER,
    QUERY,
    SCHEMA,
    WIDER,
    ClusterFolder,
    codes,
    find,
)
from tests.support.s3 import Bucket

PEOPLE = [{"name": "Ann", "age": 50}]
OTHER = {"schema": "other.pg"}
SERVER = {"server": CONFIG["policies"]["server"]}


def dispositions(report: Report) -> dict[str, tuple[str, str | None]]:
    return {
        item["resource"]: (item["disposition"], item.get("reason")) for item in report.to_json()["changes"]
    }


def add_graph(cluster: ClusterFolder, **more: Any) -> None:
    cluster.write("other.pg", "node Thing { code: String @key }")
    cluster.configure(graphs={**CONFIG["graphs"], "other": OTHER}, **more)


def remove_graph(cluster: ClusterFolder) -> None:
    """Leave only `other` in the configuration."""
    cluster.configure(graphs={"other": OTHER}, policies=SERVER)


def touch(cluster: ClusterFolder, name: str) -> None:
    """Change a file without changing what it means."""
    cluster.write(name, (cluster.path / name).read_text() + "\n")


def state(cluster: ClusterFolder) -> ClusterState:
    return cluster.storage.read_state().or_empty


# --- changes -----------------------------------------------------------------------------------------------


def test_apply_on_a_fresh_cluster_creates_graph_and_catalogue(cluster: ClusterFolder) -> None:
    import_state(cluster.path)
    report = apply(cluster.path, actor="ann")
    document = report.to_json()
    assert (report.applied_count, report.deferred_count) == (6, 0)
    assert (document["converged"], document["state_written"], document["actor"]) == (True, True, "ann")
    assert {item["status"] for item in document["resource_statuses"].values()} == {"applied"}
    found = state(cluster)
    assert found.digests == dict(load_configuration(cluster.path).require().digests)
    assert found.resources["policy.base"].applies_to == ("graph.team",)
    assert found.resources["graph.team"].embedding_provider == "provider.embedding.default"
    assert found.resources["provider.embedding.default"].embedding_profile == {"kind": "mock"}
    with og.open(cluster.storage.graph_uri("team"), "r") as graph:
        assert graph.commits()[0].actor == "ann"
    assert read_intents(cluster.storage).intents == ()


def test_apply_again_writes_nothing(applied: ClusterFolder) -> None:
    before = applied.storage.read_state()
    report = apply(applied.path)
    assert (report.converged, report.state_written, report.applied_count) == (True, False, 0)
    assert applied.storage.read_state() == before


def test_changed_query_is_applied_and_its_graph_derived(applied: ClusterFolder) -> None:
    applied.write("queries/all.gq", OLDER)
    report = plan(applied.path)
    assert dispositions(report) == {
        "graph.team": ("derived", None),
        "query.team.all": ("applied", None),
    }
    done = apply(applied.path)
    assert (done.converged, done.applied_count) == (True, 1)
    digest = state(applied).resources["query.team.all"].digest
    assert applied.storage.read_payload("query.team.all", digest) == OLDER.encode()


def test_removed_query_and_policy_are_deleted(applied: ClusterFolder) -> None:
    applied.configure(graphs={"team": {"schema": "team.pg"}}, policies=None, providers=None)
    report = apply(applied.path)
    assert report.converged
    assert sorted(state(applied).resources) == ["graph.team", "schema.team"]


def test_policy_with_other_bindings_is_a_binding_change(applied: ClusterFolder) -> None:
    add_graph(applied)
    assert apply(applied.path).converged
    base = {"file": "base.policy.yaml", "applies_to": ["team", "other"]}
    add_graph(applied, policies={"base": base, **SERVER})
    change = plan(applied.path).to_json()["changes"][0]
    assert (change["resource"], change["binding_change"], change["metadata_change"]) == (
        "policy.base",
        True,
        "policy_bindings",
    )
    assert apply(applied.path).converged
    assert state(applied).resources["policy.base"].applies_to == ("graph.other", "graph.team")


def test_schema_update_applies_beside_user_branches(applied: ClusterFolder) -> None:
    uri = applied.storage.graph_uri("team")
    with og.open(uri) as graph:
        graph.load({"Person": PEOPLE})
        graph.branches.create("draft")
    applied.write("team.pg", WIDER)
    applied.write("queries/all.gq", QUERY.replace("as name", "as name, $p.town as town"))
    report = plan(applied.path)
    change = report.plan.find("schema.team")
    assert change is not None
    assert change.migration is not None
    assert change.migration.lines == ("add property 'Person.town' (String?) on node 'Person'",)
    assert apply(applied.path, actor="ann").converged
    with og.open(uri, "r") as graph:
        assert graph.schema.source() == WIDER
        assert graph.schema.source("draft") == SCHEMA
        assert graph.commits()[0].actor == "ann"


def test_unsupported_migration_blocks_its_queries_and_the_rest_applies(applied: ClusterFolder) -> None:
    applied.write("team.pg", SCHEMA.replace("I32?", "String?"))
    applied.write("queries/all.gq", QUERY + "\n")
    touch(applied, "base.policy.yaml")
    add_graph(applied)
    report = apply(applied.path)
    assert not report.ok
    assert dispositions(report)["schema.team"] == ("blocked", "schema_apply_failed")
    assert dispositions(report)["query.team.all"] == ("blocked", "dependency_not_applied")
    assert dispositions(report)["policy.base"] == ("applied", None)
    assert find(report, "schema_apply_failed").path == "schema.team"
    found = report.to_json()
    assert found["resource_statuses"]["schema.team"]["status"] == "error"
    assert found["resource_statuses"]["query.team.all"]["status"] == "blocked"
    # The new graph was created before the migration was refused.
    assert state(applied).graphs == ["other", "team"]
    assert read_intents(applied.storage).intents == ()


def test_failed_creation_skips_later_moves_and_blocks_dependents(cluster: ClusterFolder) -> None:
    add_graph(cluster)
    import_state(cluster.path)
    og.init(cluster.storage.graph_uri("other"), "node Cat { name: String @key }").close()
    report = apply(cluster.path)
    assert dispositions(report)["graph.other"] == ("blocked", "graph_create_failed")
    assert dispositions(report)["graph.team"] == ("blocked", "graph_create_skipped")
    assert dispositions(report)["policy.base"] == ("blocked", "dependency_not_applied")
    assert "cluster refresh" in find(report, "graph_create_failed").message
    assert find(report, "graph_create_skipped").severity == "warning"
    assert state(cluster).resources.keys() == {"policy.server", "provider.embedding.default"}
    assert refresh(cluster.path).ok
    cluster.write("other.pg", "node Cat { name: String @key }")
    assert apply(cluster.path).converged


def test_failed_creation_skips_schema_updates_and_deletions(applied: ClusterFolder) -> None:
    add_graph(applied)
    assert apply(applied.path).converged
    og.init(applied.storage.graph_uri("new"), SCHEMA).close()
    applied.write("team.pg", WIDER)
    applied.configure(graphs={**CONFIG["graphs"], "new": {"schema": "team.pg"}})
    assert approve(applied.path, "graph.other", "ann").ok
    report = apply(applied.path)
    assert {"graph_create_failed", "schema_apply_skipped", "graph_delete_skipped"} <= set(codes(report))
    assert dispositions(report)["graph.other"] == ("blocked", "graph_delete_skipped")
    assert state(applied).graphs == ["other", "team"]


def test_unknown_resource_and_lone_schema_in_the_ledger_are_deferred(applied: ClusterFolder) -> None:
    configuration = load_configuration(applied.path).require()
    present = state(applied)
    odd = present.with_resources(
        {"schema.gone": present.resources["schema.team"], "panel.x": present.resources["schema.team"]}
    )
    found = compute_plan(configuration, odd, PlanInputs())
    assert [(c.resource, c.disposition, c.reason) for c in found.changes] == [
        ("schema.gone", "deferred", "apply_unsupported_kind"),
        ("panel.x", "deferred", "apply_unsupported_kind"),
    ]
    applied.storage.objects.put("__cluster/state.json", odd.to_bytes())
    report = apply(applied.path)
    assert (report.ok, report.deferred_count, report.converged) == (True, 2, False)
    assert codes(report) == ["apply_unsupported_change"] * 2


def test_plan_of_an_unreadable_graph_has_no_migration(applied: ClusterFolder) -> None:
    applied.storage.graph_objects("team").delete_tree()
    applied.write("team.pg", WIDER)
    report = plan(applied.path)
    assert (report.ok, codes(report)) == (True, ["schema_preview_unavailable"])


# --- approvals ---------------------------------------------------------------------------------------------


@pytest.fixture
def two(applied: ClusterFolder) -> ClusterFolder:
    """A cluster with two graphs, whose configuration has only one any more."""
    add_graph(applied)
    assert apply(applied.path).converged
    remove_graph(applied)
    return applied


def test_deletion_needs_an_approval_and_keeps_the_policy_until_then(two: ClusterFolder) -> None:
    planned = plan(two.path)
    assert planned.to_json()["approvals_required"] == [
        {"resource": "graph.team", "reason": "graph_delete", "satisfied": False}
    ]
    report = apply(two.path)
    assert (report.ok, report.converged) == (True, False)
    found = dispositions(report)
    for address in ("graph.team", "schema.team", "query.team.all"):
        assert found[address] == ("blocked", "approval_required")
    # Without its policy the graph would be open to every actor with a token.
    assert found["policy.base"] == ("blocked", "dependency_not_applied")
    assert set(codes(report)) == {"apply_dependency_blocked"}
    assert observe_graph(two.storage, "team").presence == "open"


def test_approved_deletion_removes_the_graph_and_uses_the_approval_up(two: ClusterFolder) -> None:
    approved = approve(two.path, "graph.team", "ann").to_json()
    assert (approved["resource"], approved["operation"], approved["approved_by"]) == (
        "graph.team",
        "delete",
        "ann",
    )
    assert plan(two.path).to_json()["approvals_required"][0]["satisfied"] is True
    report = apply(two.path)
    assert report.converged, report.diagnostics
    assert not two.storage.graph_objects("team").exists_any()
    assert state(two).graphs == ["other"]
    assert approved["approval_id"] in state(two).approval_records
    stored = json.loads(two.storage.objects.get(f"{APPROVALS}/{approved['approval_id']}.json").data)
    assert stored["consumed_by_operation"] is not None
    assert read_approvals(two.storage)[0] == ()


def test_deletion_that_was_approved_twice_uses_both_approvals_up(two: ClusterFolder) -> None:
    held = acquire_lock(two.storage, "plan")
    # Approving needs no lock.
    assert approve(two.path, "graph.team", "ann").ok
    assert approve(two.path, "graph.team", "bob").ok
    release_lock(two.storage, held)
    assert apply(two.path).converged
    assert len(state(two).approval_records) == 2
    # The same graph, declared and removed again, has the same digests.
    two.configure(graphs={**CONFIG["graphs"], "other": OTHER})
    assert apply(two.path).converged
    remove_graph(two)
    assert dispositions(apply(two.path))["graph.team"] == ("blocked", "approval_required")


def test_approval_is_stale_after_a_change_of_the_configuration(two: ClusterFolder) -> None:
    assert approve(two.path, "graph.team", "ann").ok
    two.configure(graphs={"other": OTHER}, policies=SERVER, metadata={"name": "renamed"})
    for command in (plan, apply):
        report = command(two.path)
        assert find(report, "approval_stale").severity == "warning"
    assert observe_graph(two.storage, "team").presence == "open"
    assert approve(two.path, "graph.team", "ann").ok
    assert "approval_stale" in codes(apply(two.path))
    assert observe_graph(two.storage, "team").presence == "absent"


def test_approval_of_anything_else_is_refused(applied: ClusterFolder) -> None:
    assert codes(approve(applied.path, "graph.team", "ann")) == ["approval_not_required"]
    assert codes(approve(applied.path, "policy.base", "ann")) == ["approval_not_required"]
    assert codes(approve(applied.path, "graph.gone", "ann")) == ["graph_not_applied"]


def test_damaged_approval_is_ignored_with_a_warning(two: ClusterFolder) -> None:
    two.storage.objects.put(f"{APPROVALS}/x.json", b"{")
    assert "approval_stale" in codes(plan(two.path))


def test_approval_that_is_withdrawn_while_it_is_used_is_refused(two: ClusterFolder) -> None:
    assert approve(two.path, "graph.team", "ann").ok
    (approval,), _ = read_approvals(two.storage)
    confirm_approval(two.storage, approval)
    write_approval(two.storage, approval.consumed("another"))
    with pytest.raises(ClusterFailure, match="apply_approval_invariant_violation"):
        confirm_approval(two.storage, approval)


def test_deletion_waits_for_running_copies(two: ClusterFolder) -> None:
    assert approve(two.path, "graph.team", "ann").ok
    with hold_lease(two.storage.graph_objects("team"), "backup", "team"):
        report = apply(two.path)
    assert find(report, "graph_delete_export_in_progress").path == "graph.team"
    assert observe_graph(two.storage, "team").presence == "open"
    assert "policy.base" in state(two).resources
    assert apply(two.path).converged


def test_approval_that_cannot_be_written_is_an_error(remote: ClusterFolder, s3: Bucket) -> None:
    add_graph(remote)
    remote.start()
    remove_graph(remote)
    with s3.seam.fail(403, method="PUT", key="approvals", times=None):
        assert codes(approve(remote.path, "graph.team", "ann", remote.options)) == ["approval_write_error"]
    assert approve(remote.path, "graph.team", "ann", remote.options).ok
    with s3.seam.fail(403, method="POST", times=None):
        report = apply(remote.path, remote.options)
    assert "graph_delete_failed" in codes(report)
    assert state(remote).graphs == ["other", "team"]


# --- interrupted operations --------------------------------------------------------------------------------


def interrupt(
    cluster: ClusterFolder, kind: IntentKind, graph: str, schema: str | None = None, **more: Any
) -> Intent:
    """Leave the intent of an operation that did not get to the ledger."""
    digest = None if schema is None else digest_of(schema.encode())
    intent = Intent.begin(kind, cluster.storage, graph, actor="ann", cas=None, digest=digest, **more)
    write_intent(cluster.storage, intent)
    return intent


def test_interrupted_creation_without_a_graph_is_repeated(cluster: ClusterFolder) -> None:
    import_state(cluster.path)
    interrupt(cluster, "graph_create", "team", SCHEMA)
    assert "cluster_recovery_pending" in codes(plan(cluster.path))
    assert dispositions(plan(cluster.path))["graph.team"] == ("blocked", "cluster_recovery_pending")
    assert "cluster_recovery_pending" in codes(status(cluster.path))
    report = apply(cluster.path)
    assert (report.converged, codes(report)) == (True, [])
    assert read_intents(cluster.storage).intents == ()


def test_interrupted_creation_with_a_complete_graph_is_rolled_forward(cluster: ClusterFolder) -> None:
    import_state(cluster.path)
    interrupt(cluster, "graph_create", "team", SCHEMA)
    create_graph(
        cluster.storage, "team", load_configuration(cluster.path).require().graphs["team"].schema, "ann"
    )
    report = apply(cluster.path)
    assert find(report, "cluster_recovery_rolled_forward").path == "graph.team"
    assert report.converged
    assert "graph.team" not in dispositions(report) or dispositions(report)["graph.team"][0] == "derived"


def test_interrupted_creation_with_foreign_files_is_kept_as_an_error(cluster: ClusterFolder) -> None:
    import_state(cluster.path)
    intent = interrupt(cluster, "graph_create", "team", SCHEMA)
    cluster.write("graphs/team.omni/notes.txt", "not of a graph")
    report = apply(cluster.path)
    assert not report.ok
    assert "notes.txt" in find(report, "graph_create_incomplete").message
    assert report.to_json()["resource_statuses"]["graph.team"]["status"] == "error"
    assert dispositions(report)["graph.team"] == ("blocked", "cluster_recovery_pending")
    assert read_intents(cluster.storage).intents == (intent,)
    (cluster.path / "graphs/team.omni/notes.txt").unlink()
    assert apply(cluster.path).converged


@pytest.mark.parametrize("is_done", [False, True])
def test_interrupted_schema_apply_is_rolled_forward_or_repeated(
    applied: ClusterFolder, is_done: bool
) -> None:
    applied.write("team.pg", WIDER)
    interrupt(applied, "schema_apply", "team", WIDER)
    if is_done:
        schema = load_configuration(applied.path).require().graphs["team"].schema
        migrate_graph(applied.storage, "team", schema, "ann")
    report = apply(applied.path)
    assert report.converged
    assert codes(report) == ["cluster_recovery_rolled_forward"] * is_done
    assert observe_graph(applied.storage, "team").version == 2
    assert read_intents(applied.storage).intents == ()


def test_interrupted_schema_apply_with_another_schema_is_kept(applied: ClusterFolder) -> None:
    intent = interrupt(applied, "schema_apply", "team", WIDER)
    with og.open(applied.storage.graph_uri("team")) as graph:
        graph.schema.apply(SCHEMA + "node Cat { name: String @key }")
    for command in (refresh, apply):
        report = command(applied.path)
        assert "cluster_recovery_pending" in codes(report)
        found = report.to_json()["resource_statuses"]["graph.team"]
        assert (found["status"], found["conditions"]) == ("drifted", ["actual_applied_state_pending"])
    assert read_intents(applied.storage).intents == (intent,)


@pytest.mark.parametrize(
    ("folder", "presence"), [("__manifest/data", "unreadable"), ("__manifest", "interrupted")]
)
def test_interrupted_deletion_is_repeated(two: ClusterFolder, folder: str, presence: str) -> None:
    approval = approve(two.path, "graph.team", "ann").approval_id
    interrupt(two, "graph_delete", "team", approval_id=approval)
    objects = two.storage.graph_objects("team")
    objects.delete_many([info.key for info in objects.list(folder)])
    assert observe_graph(two.storage, "team").presence == presence
    report = apply(two.path)
    assert "graph_delete_incomplete" in codes(report)
    assert report.converged
    assert approval in state(two).approval_records


def test_completed_deletion_is_rolled_forward(two: ClusterFolder) -> None:
    approval = approve(two.path, "graph.team", "ann").approval_id
    interrupt(two, "graph_delete", "team", approval_id=approval)
    delete_graph(two.storage, "team")
    report = apply(two.path)
    assert "cluster_recovery_rolled_forward" in codes(report)
    assert report.converged
    assert approval in state(two).approval_records
    assert read_approvals(two.storage)[0] == ()


def test_unreadable_intent_blocks_moves_of_all_graphs(applied: ClusterFolder) -> None:
    applied.storage.objects.put("__cluster/recoveries/x.json", b"{}")
    applied.write("team.pg", WIDER)
    touch(applied, "base.policy.yaml")
    report = apply(applied.path)
    assert find(report, "recovery_sidecar_read_error").severity == "warning"
    assert dispositions(report)["schema.team"] == ("blocked", "cluster_recovery_pending")
    assert dispositions(report)["policy.base"] == ("applied", None)


# --- history and rollback ----------------------------------------------------------------------------------


def test_rollback_applies_the_catalogue_of_an_earlier_revision(applied: ClusterFolder) -> None:
    first = state(applied)
    applied.write("queries/all.gq", OLDER)
    applied.write("queries/hire.gq", HIRE)
    applied.configure(policies=SERVER)
    assert apply(applied.path, actor="bob").converged
    report = rollback(applied.path, 2, actor="ann")
    assert report.ok, report.diagnostics
    assert state(applied).digests == first.digests
    assert state(applied).config_digest is None
    entries = history(applied.path).to_json()["revisions"]
    assert [(e["state_revision"], e["operation"], e["actor"]) for e in entries] == [
        (4, "rollback", "ann"),
        (3, "apply", "bob"),
        (2, "apply", "ann"),
        (1, "import", None),
    ]
    assert {c.resource for c in plan(applied.path).plan.changes} == {
        "graph.team",
        "query.team.all",
        "query.team.hire",
        "policy.base",
    }
    again = rollback(applied.path, 2)
    assert (again.ok, again.state_written) == (True, False)


def test_rollback_to_queries_that_the_schema_does_not_allow_is_refused(applied: ClusterFolder) -> None:
    applied.write("queries/all.gq", OLDER)
    applied.write("team.pg", SCHEMA)
    assert apply(applied.path).converged
    applied.write("queries/all.gq", QUERY)
    applied.write("team.pg", 'node Person { name: String @key  years: I32? @rename_from("age") }\n')
    assert apply(applied.path).converged
    before = state(applied)
    report = rollback(applied.path, 3)
    assert find(report, "query_typecheck_error").path == "query.team.all"
    assert state(applied) == before


def test_rollback_to_an_unknown_revision_is_refused(applied: ClusterFolder) -> None:
    assert codes(rollback(applied.path, 9)) == ["revision_not_found"]


def test_change_of_a_provider_profile_is_applied(applied: ClusterFolder) -> None:
    profile = {"kind": "openai", "model": "m", "api_key": "${KEY}"}
    applied.configure(providers={"embedding": {"default": profile}})
    assert apply(applied.path).converged
    present = state(applied)
    bare = {"provider.embedding.default": AppliedResource(present.digests["provider.embedding.default"])}
    applied.storage.objects.put("__cluster/state.json", present.with_resources(bare).to_bytes())
    assert plan(applied.path).plan.changes == (
        Change(
            "provider.embedding.default",
            "update",
            present.digests["provider.embedding.default"],
            present.digests["provider.embedding.default"],
            "applied",
            metadata_change="embedding_profile",
        ),
    )
