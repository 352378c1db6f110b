"""The ledger of a cluster: import, plan, status, refresh, the lock, and states that are not valid."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cluster.applying.apply import apply
from omnigraph.cluster.applying.live_graphs import LiveGraph, observe_graph
from omnigraph.cluster.applying.observe import find_conflicts, import_state, observe_cluster, refresh
from omnigraph.cluster.commands import force_unlock, history, plan, status
from omnigraph.cluster.diagnostics import ClusterFailure
from omnigraph.cluster.ledger.history import commit_ledger
from omnigraph.cluster.ledger.lock import LOCK_KEY, acquire_lock
from omnigraph.cluster.ledger.state import STATE_KEY, ClusterState, parse_state
from omnigraph.cluster.ledger.storage import ClusterStorage, payload_key
from omnigraph.cluster.reports import Report
from omnigraph.errors import NotFound
from tests.cluster_control.cluster_files import SCHEMA, WIDER, ClusterFolder, codes, find
from tests.support.s3 import Bucket


def state_of(cluster: ClusterFolder) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(cluster.storage.objects.get(STATE_KEY).data)
    return document


def replace_state(cluster: ClusterFolder, data: bytes) -> None:
    cluster.storage.objects.put(STATE_KEY, data)


def changes(report: Report) -> list[tuple[str, str, str]]:
    return [
        (item["operation"], item["resource"], item["disposition"]) for item in report.to_json()["changes"]
    ]


def test_import_on_a_fresh_directory_writes_revision_1_without_resources(cluster: ClusterFolder) -> None:
    report = import_state(cluster.path, actor="ann")
    document = report.to_json()
    assert report.ok
    assert document["operation"] == "import"
    assert document["resource_digests"] == {}
    assert document["observations"]["graph.team"]["exists"] is False
    assert document["resource_statuses"]["graph.team"]["conditions"] == ["graph_missing"]
    stored = state_of(cluster)
    assert stored["state_revision"] == 1
    assert stored["applied_revision"] == {"config_digest": None, "resources": {}}
    assert not cluster.storage.objects.exists_any("graphs")
    assert codes(import_state(cluster.path)) == ["state_already_exists"]
    assert state_of(cluster) == stored


def test_plan_without_a_ledger_creates_everything_and_writes_nothing(cluster: ClusterFolder) -> None:
    report = plan(cluster.path)
    document = report.to_json()
    assert report.ok
    assert changes(report) == [
        ("create", "provider.embedding.default", "applied"),
        ("create", "graph.team", "applied"),
        ("create", "schema.team", "applied"),
        ("create", "query.team.all", "applied"),
        ("create", "policy.base", "applied"),
        ("create", "policy.server", "applied"),
    ]
    assert {"resource": "schema.team", "affected": ["query.team.all"]} in document["blast_radius"]
    assert document["state_observations"]["state_found"] is False
    assert document["state_observations"]["lock_acquired"] is True
    assert not cluster.storage.objects.exists_any("__cluster")


def test_commands_without_a_ledger_say_to_import(cluster: ClusterFolder) -> None:
    for command in (apply, refresh, history):
        assert codes(command(cluster.path)) == ["state_missing"]
    report = status(cluster.path)
    assert report.ok
    assert find(report, "state_missing").severity == "warning"


def test_import_adopts_an_existing_graph_and_reports_another_schema(cluster: ClusterFolder) -> None:
    og.init(cluster.storage.graph_uri("team"), SCHEMA.replace("  age: I32?", "")).close()
    report = import_state(cluster.path)
    document = report.to_json()
    assert report.ok
    observed = document["observations"]["graph.team"]
    assert (observed["exists"], observed["schema_matches_desired"]) == (True, False)
    assert document["resource_statuses"]["schema.team"] == {
        "status": "drifted",
        "conditions": ["schema_mismatch"],
        "message": "the schema of the graph differs from the declared one",
    }
    planned = plan(cluster.path).to_json()
    schema = next(item for item in planned["changes"] if item["resource"] == "schema.team")
    assert schema["operation"] == "update"
    assert schema["migration"]["supported"] is True
    assert [step["kind"] for step in schema["migration"]["steps"]] == ["add_property"]
    assert apply(cluster.path).converged


def test_import_with_an_unreadable_graph_writes_nothing(cluster: ClusterFolder) -> None:
    cluster.write("graphs/team.omni/junk.txt", "not a graph")
    report = import_state(cluster.path)
    assert codes(report) == ["graph_observation_error"]
    assert not cluster.storage.objects.exists_any("__cluster")


def test_refresh_of_a_vanished_graph_plans_its_creation(applied: ClusterFolder) -> None:
    applied.storage.graph_objects("team").delete_tree()
    report = refresh(applied.path)
    assert report.ok
    assert "graph.team" not in report.to_json()["resource_digests"]
    assert state_of(applied)["resource_statuses"]["graph.team"]["conditions"] == ["graph_missing"]
    assert ("create", "graph.team", "applied") in changes(plan(applied.path))


def test_refresh_of_a_missing_payload_plans_it_again(applied: ClusterFolder) -> None:
    digest = state_of(applied)["applied_revision"]["resources"]["query.team.all"]["digest"]
    applied.storage.objects.delete(payload_key("query.team.all", digest))
    assert find(status(applied.path), "catalog_payload_missing").path == "query.team.all"
    report = refresh(applied.path)
    assert report.to_json()["resource_statuses"]["query.team.all"]["conditions"] == ["payload_missing"]
    assert ("create", "query.team.all", "applied") in changes(plan(applied.path))
    assert apply(applied.path).converged
    assert codes(status(applied.path)) == []


def test_status_reports_an_altered_payload(applied: ClusterFolder) -> None:
    digest = state_of(applied)["applied_revision"]["resources"]["policy.base"]["digest"]
    applied.storage.write_payload("policy.base", digest, b"altered")
    report = status(applied.path)
    assert report.ok
    assert find(report, "catalog_payload_mismatch").path == "policy.base"


def test_status_refresh_shows_drift_and_writes_nothing(applied: ClusterFolder) -> None:
    with og.open(applied.storage.graph_uri("team")) as graph:
        graph.schema.apply(WIDER)
    before = state_of(applied)
    assert status(applied.path).to_json()["resource_statuses"]["schema.team"]["status"] == "applied"
    found = status(applied.path, observes=True).to_json()
    assert found["resource_statuses"]["schema.team"]["conditions"] == ["schema_mismatch"]
    assert found["observations"]["graph.team"]["graph_manifest_version"] == 2
    assert state_of(applied) == before


def test_schema_that_differs_in_comments_only_is_no_drift(applied: ClusterFolder) -> None:
    applied.write("team.pg", "// the people\n" + SCHEMA)
    report = apply(applied.path)
    assert (report.converged, report.state_written) == (True, True)
    assert observe_graph(applied.storage, "team").version == 1
    assert status(applied.path, observes=True).to_json()["observations"]["graph.team"][
        "schema_matches_desired"
    ]


# --- lock --------------------------------------------------------------------------------------------------


def test_held_lock_refuses_commands_until_it_is_removed_by_its_id(applied: ClusterFolder) -> None:
    lock = acquire_lock(applied.storage, "apply")
    for command in (plan, apply, refresh):
        report = command(applied.path)
        assert codes(report) == ["state_lock_held"]
        assert lock.lock_id in report.diagnostics[0].message
        assert "force-unlock" in report.diagnostics[0].message
    observed = status(applied.path).to_json()["state_observations"]
    assert (observed["locked"], observed["lock_id"], observed["lock_operation"]) == (
        True,
        lock.lock_id,
        "apply",
    )
    assert codes(force_unlock(applied.path, "01ARZ3NDEKTSV4RRFFQ69G5FAV")) == ["state_lock_id_mismatch"]
    unlocked = force_unlock(applied.path, lock.lock_id)
    assert unlocked.ok
    assert unlocked.lock_removed is True
    assert codes(force_unlock(applied.path, lock.lock_id)) == ["state_lock_missing"]
    assert plan(applied.path).ok


def test_command_releases_its_lock_after_an_error(applied: ClusterFolder) -> None:
    replace_state(applied, b"{")
    assert codes(plan(applied.path)) == ["invalid_state_json"]
    with pytest.raises(NotFound):
        applied.storage.objects.get(LOCK_KEY)


def test_disabled_lock_is_a_warning_and_the_ledger_is_still_compared(applied: ClusterFolder) -> None:
    applied.configure(state={"lock": False})
    acquire_lock(applied.storage, "apply")
    report = apply(applied.path)
    assert (report.ok, codes(report)) == (True, ["state_lock_disabled"])
    storage = applied.storage
    stored = storage.read_state()
    assert stored.state is not None
    commit_ledger(storage, stored, stored.state, "apply", "ann")
    with pytest.raises(ClusterFailure, match="state_cas_mismatch"):
        commit_ledger(storage, stored, stored.state, "apply", "bob")
    assert [entry["actor"] for entry in history(applied.path).to_json()["revisions"]] == [
        "ann",
        None,
        "ann",
        None,
    ]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{", "invalid_state_lock"),
        (b'{"version": 1}', "invalid_state_lock"),
        (b'{"version": 2}', "unsupported_state_lock_version"),
    ],
)
def test_invalid_lock_file_is_reported(applied: ClusterFolder, data: bytes, code: str) -> None:
    applied.storage.objects.put(LOCK_KEY, data)
    assert codes(plan(applied.path)) == [code]
    assert code in codes(status(applied.path))


# --- invalid ledgers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda state: state | {"version": 2}, "unsupported_state_version"),
        (lambda state: state | {"extra": 1}, "invalid_state_json"),
        (lambda state: state | {"state_revision": 0}, "invalid_state_json"),
        (lambda state: state | {"applied_revision": []}, "invalid_state_json"),
        (
            lambda state: state | {"resource_statuses": {"graph.team": {"status": "odd"}}},
            "invalid_state_json",
        ),
        (
            lambda state: state | {"applied_revision": {"resources": {"graph.team": {"digest": 1}}}},
            "invalid_state_json",
        ),
    ],
)
def test_invalid_ledger_is_refused_and_kept(
    applied: ClusterFolder, change: Callable[[dict[str, Any]], dict[str, Any]], code: str
) -> None:
    data = json.dumps(change(state_of(applied))).encode()
    replace_state(applied, data)
    for command in (plan, apply, refresh, status, import_state):
        assert codes(command(applied.path)) == [code]
    assert applied.storage.objects.get(STATE_KEY).data == data


def test_ledger_survives_writing_and_reading(applied: ClusterFolder) -> None:
    data = applied.storage.objects.get(STATE_KEY).data
    assert parse_state(data).to_bytes() == data
    assert parse_state(ClusterState(1).to_bytes()) == ClusterState(1)


# --- storage that fails ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "key", "code"),
    [
        ("GET", "__cluster/state.json", "state_read_error"),
        ("PUT", "__cluster/state.json", "state_write_error"),
        ("PUT", "__cluster/history/", "state_write_error"),
        ("PUT", "__cluster/lock.json", "state_lock_error"),
        ("PUT", "__cluster/recoveries/", "recovery_sidecar_write_error"),
        ("PUT", "__cluster/resources/policy/base", "resource_payload_write_error"),
        ("PUT", "/graphs/team.omni", "graph_create_failed"),
    ],
)
def test_refused_storage_request_is_reported_and_the_next_apply_converges(
    remote: ClusterFolder, s3: Bucket, method: str, key: str, code: str
) -> None:
    assert import_state(remote.path, remote.options).ok
    with s3.seam.fail(403, method=method, key=key, times=None):
        report = apply(remote.path, remote.options)
    assert code in codes(report), report.diagnostics
    assert not report.ok
    assert apply(remote.path, remote.options).converged
    assert remote.storage.read_state().or_empty.graphs == ["team"]


def test_refused_read_of_lock_or_payload_is_reported(remote: ClusterFolder, s3: Bucket) -> None:
    remote.start()
    with s3.seam.fail(403, method="GET", key="lock.json", times=None):
        assert "state_lock_read_error" in codes(status(remote.path, remote.options))
    with s3.seam.fail(403, method="GET", key="resources/policy/base", times=None):
        assert codes(status(remote.path, remote.options)) == ["catalog_payload_read_error"]


def test_failed_cleanup_after_the_ledger_is_a_warning(remote: ClusterFolder, s3: Bucket) -> None:
    assert import_state(remote.path, remote.options).ok
    # Objects are deleted with a POST. The first is the intent of the creation, the second the lock.
    with s3.seam.fail(403, method="POST", times=None):
        report = apply(remote.path, remote.options)
    assert (report.ok, report.converged) == (True, True)
    assert codes(report) == ["recovery_sidecar_cleanup_failed", "state_lock_error"]
    lock = status(remote.path, remote.options).to_json()["state_observations"]["lock_id"]
    assert force_unlock(remote.path, lock, remote.options).ok
    assert codes(apply(remote.path, remote.options)) == []


def test_storage_root_that_is_no_address_is_refused() -> None:
    with pytest.raises(ClusterFailure, match="storage_root_invalid"):
        ClusterStorage.at("ftp://host/x")


# --- observations ------------------------------------------------------------------------------------------


def test_schema_that_changes_during_a_refresh_is_an_error(applied: ClusterFolder) -> None:
    live = observe_graph(applied.storage, "team")
    earlier = LiveGraph("team", "open", 1, "node Cat { name: String @key }")
    assert find_conflicts({"team": live}, [live]) == []
    found = find_conflicts({"team": earlier}, [live])
    assert [item.code for item in found] == ["conflicting_graph_manifest_observation"]


def test_observation_of_an_interrupted_creation_is_an_error(cluster: ClusterFolder) -> None:
    cluster.write("graphs/team.omni/nodes/x/data.lance", "")
    configuration = import_state(cluster.path)
    assert codes(configuration) == ["graph_observation_error"]
    from omnigraph.cluster.configuration.read_configuration import load_configuration

    observed = observe_cluster(cluster.storage, load_configuration(cluster.path).require(), ClusterState())
    assert observed.state.resource_statuses["graph.team"].status == "error"
