"""Maintenance over HTTP: indexes, compaction, garbage collection and recovery."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.protocol import maintenance_responses as answers
from omnigraph.protocol.codec import EXACT
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import ADD, SCHEMA, Running, error_body, running, success_body


def add(client: httpx.Client, name: str) -> None:
    assert client.post("/mutate", json={"query": ADD, "params": {"n": name}}).status_code == 200


def test_optimize_commits_once(client: httpx.Client) -> None:
    assert success_body(client.get("/indexes"), answers.IndexListOutput) == {"indexes": []}
    add(client, "Cid")
    done = success_body(client.post("/optimize", json={"message": "tidy"}), answers.OptimizeOutput)
    assert done["branch"] == "main"
    assert done["commit"] == client.get("/commits").json()["commits"][0]
    person = next(item for item in done["datasets"] if item["type_key"] == "node:Person")
    assert (person["fragments_removed"], person["committed"], person["error"]) == (2, True, None)
    indexes = success_body(client.get("/indexes"), answers.IndexListOutput)["indexes"]
    assert {(item["type"], item["property"]) for item in indexes} >= {("Person", "id"), ("Person", "name")}
    assert all(item["covered"] == item["rows"] for item in indexes)
    before = done["commit"]["parent_commit_id"]
    assert client.get("/indexes", params={"snapshot": before}).json() == {"indexes": []}
    assert success_body(client.post("/optimize"), answers.OptimizeOutput)["commit"] is None
    error_body(client.post("/optimize", json={"branch": "nowhere"}), 404)


def test_cleanup_and_repair_dry_run_and_confirm(client: httpx.Client) -> None:
    add(client, "Cid")
    told = success_body(client.post("/cleanup", json={"keep": 1}), answers.CleanupOutput)
    assert told["confirmed"] is False
    assert {item["type_key"] for item in told["datasets"]} >= {"node:Person"}
    done = success_body(
        client.post("/cleanup", json={"older_than": "7d", "confirm": True}), answers.CleanupOutput
    )
    assert done["confirmed"] is True
    report = success_body(client.post("/repair"), answers.RepairOutput)
    assert (report["confirmed"], report["pending"], report["settled"]) == (False, 0, [])
    assert {item["action"] for item in report["datasets"]} == {"no_op"}
    assert (told["objects_removed"], told["objects_error"]) == (0, None)
    assert (
        success_body(client.post("/repair", json={"confirm": True}), answers.RepairOutput)["confirmed"]
        is True
    )


def test_settings_are_changed_and_shown(client: httpx.Client) -> None:
    default = success_body(client.get("/settings"), answers.SettingsOutput)
    assert default == {"retention": {"keep": 1000, "older_than": "1m", "thinned": "30d"}}
    changed = client.patch("/settings", json={"retention": "keep=9"})
    assert success_body(changed, answers.SettingsOutput)["retention"]["keep"] == 9
    fields = client.patch("/settings", json={"retention": {"keep": "forever"}})
    assert success_body(fields, answers.SettingsOutput) == {"retention": {"keep": "forever"}}
    assert success_body(client.get("/settings"), answers.SettingsOutput) == fields.json()
    assert (
        "unknown field" in error_body(client.patch("/settings", json={"retention": {"k": 1}}), 400)["error"]
    )


def test_verify_reports_damage_with_status_200(client: httpx.Client) -> None:
    add(client, "Cid")
    report = success_body(client.post("/verify"), answers.VerifyOutput)
    assert (report["ok"], report["quick"], report["damage"]) == (True, False, [])
    assert [item["branch"] for item in report["branches"]] == ["main"]
    every = success_body(
        client.post("/verify", json={"all_commits": True, "quick": True}), answers.VerifyOutput
    )
    assert every["commits"] > report["commits"]
    error_body(client.post("/verify", json={"branch": "nowhere"}), 404)


def test_repair_reset_branch_of_an_intact_branch_makes_no_commit(client: httpx.Client) -> None:
    add(client, "Cid")
    body = {"reset_branch": "main", "confirm": True}
    report = success_body(client.post("/repair", json=body), answers.RepairOutput)
    assert (report["reset"]["branch"], report["reset"]["lost_commits"]) == ("main", [])
    assert report["reset"]["commit_id"] is None
    error_body(client.post("/repair", json={"reset_branch": "main", "to": "nothing"}), 404)


def test_repair_damaged_index_rebuilds_it(tmp_path: Path) -> None:
    uri = str(tmp_path / "g.omni")
    with og.init(uri, SCHEMA, durability="os") as graph:
        graph.load({"Person": [{"name": "Ann"}]})
        graph.optimize()
    hosted = open_graphs(Hosting((GraphSource("g", uri),)), TokenRegistry())
    for file in tmp_path.glob("*/nodes/*/_indices/*/*.lance"):
        file.write_bytes(file.read_bytes()[:-9])
    with running(hosted) as server, server.client(prefix="/graphs/g") as client:
        for confirm, action in ((False, "preview"), (True, "rebuilt"), (True, "no_op")):
            report = success_body(client.post("/repair", json={"confirm": confirm}), answers.RepairOutput)
            assert {item["type_key"]: item["action"] for item in report["datasets"]}["node:Person"] == action
        assert success_body(client.post("/verify"), answers.VerifyOutput)["ok"]
    with og.open(uri, "r") as graph:
        assert graph.commits()[0].operation == "repair"
    hosted.close()


def test_maintenance_storage_error_is_redacted(tmp_path: Path) -> None:
    uri = str(tmp_path / "broken.omni")
    with og.init(uri, SCHEMA) as graph:
        graph.load({"Person": [{"name": "Ann"}]})
    hosted = open_graphs(Hosting((GraphSource("broken", uri),)), TokenRegistry())
    for file in tmp_path.glob("*/nodes/*/data/*.lance"):
        file.unlink()
    with running(hosted) as server, server.client(prefix="/graphs/broken") as client:
        for headers in ({}, {"Accept": EXACT}):
            response = client.post("/optimize", headers=headers)
            assert response.status_code == 200
            person = next(item for item in response.json()["datasets"] if item["type_key"] == "node:Person")
            assert "storage failure" in str(person["pending_indexes"])
            assert str(tmp_path) not in response.text
            assert "nodes/" not in str(person["pending_indexes"])
    hosted.close()


@pytest.mark.parametrize("body", [None, {}, {"keep": 0}, {"keep": "1"}, {"older_than": "soon"}])
def test_invalid_cleanup_request_returns_400(client: httpx.Client, body: object) -> None:
    error_body(client.post("/cleanup", json=body), 400)


@pytest.mark.parametrize(
    ("path", "body"), [("/optimize", {}), ("/cleanup", {"keep": 1, "confirm": True}), ("/repair", {})]
)
def test_maintenance_requires_change_permission_on_main(guarded: Running, path: str, body: object) -> None:
    with guarded.client("bob") as client:
        error_body(client.post(path, json=body), 403)
        assert client.get("/indexes").status_code == 200
    with guarded.client("eve") as client:
        error_body(client.get("/indexes"), 403)
