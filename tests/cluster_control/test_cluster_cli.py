"""`omnigraph cluster` on the command line: output, exit codes, actors and options that do not apply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from omnigraph.cluster.diagnostics import ERROR_CODES, WARNING_CODES
from omnigraph.cluster.ledger.lock import acquire_lock
from tests.cli.running import run
from tests.cluster_control.cluster_files import CONFIG, OLDER, SCHEMA, WIDER, ClusterFolder, write_cluster

BASE: Final = CONFIG["policies"]["base"]
# The members of an observation without a lock.
OBSERVATIONS: Final = {
    "state_path", "lock_path", "state_found", "applied_config_digest", "state_revision", "state_cas",
    "resource_count", "locked", "lock_acquired",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("command", "members"),
    [
        (["validate"], ["config_file", "resource_digests", "resources", "dependencies"]),
        (
            ["plan"],
            [
                "desired_revision",
                "resource_digests",
                "dependencies",
                "state_observations",
                "changes",
                "blast_radius",
                "approvals_required",
            ],
        ),
        (
            ["apply", "--as", "ann"],
            [
                "actor",
                "desired_revision",
                "state_observations",
                "changes",
                "applied_count",
                "deferred_count",
                "converged",
                "state_written",
                "resource_statuses",
            ],
        ),
        (["status"], ["state_observations", "resource_digests", "resource_statuses", "observations"]),
        (
            ["refresh"],
            ["operation", "state_observations", "resource_digests", "resource_statuses", "observations"],
        ),
        (["history"], ["revisions"]),
        (
            ["rollback", "2"],
            [
                "rolled_back_to",
                "desired_revision",
                "state_observations",
                "changes",
                "applied_count",
                "deferred_count",
                "converged",
                "state_written",
                "resource_statuses",
            ],
        ),
    ],
    ids=lambda value: value[0],
)
def test_json_output_has_the_members_of_the_command(
    applied: ClusterFolder, command: list[str], members: list[str]
) -> None:
    outcome = run("cluster", *command, "--config", str(applied.path), "--json")
    assert outcome.code == 0, outcome.output
    document = json.loads(outcome.stdout)
    assert list(document) == ["ok", "config_dir", *members, "diagnostics"]
    assert document["ok"] is True
    assert document["config_dir"] == str(applied.path)


def test_json_objects_within_the_output_have_their_members(applied: ClusterFolder) -> None:
    applied.write("team.pg", WIDER)
    applied.configure(
        graphs={"team": {"schema": "team.pg"}}, policies={"base": {**BASE, "applies_to": ["graph.team"]}}
    )

    def result(*words: str) -> dict[str, Any]:
        outcome = run("cluster", *words, "--config", str(applied.path), "--json")
        found: dict[str, Any] = json.loads(outcome.stdout)
        return found

    planned = result("plan")
    assert planned["state_observations"].keys() == OBSERVATIONS | {
        "acquired_lock_id", "lock_operation", "lock_created_at", "lock_pid", "lock_age_seconds"
    }  # fmt: skip
    changes = {item["resource"]: item.keys() for item in planned["changes"]}
    always = {"resource", "operation", "disposition"}
    assert changes["schema.team"] == always | {"before_digest", "after_digest", "migration"}
    assert changes["query.team.all"] == always | {"before_digest"}
    assert planned["blast_radius"][0].keys() == {"resource", "affected"}
    assert planned["desired_revision"].keys() == {"config_digest"}
    assert result("validate")["resources"][0].keys() == {"address", "kind", "digest"}
    lock = acquire_lock(applied.storage, "apply")
    seen = result("status")
    assert seen["state_observations"].keys() == OBSERVATIONS | {
        "lock_id", "lock_operation", "lock_created_at", "lock_pid", "lock_age_seconds"
    }  # fmt: skip
    assert seen["resource_statuses"]["graph.team"] == {"status": "applied"}
    refused = result("plan")
    assert [item.keys() for item in refused["diagnostics"]] == [{"code", "severity", "path", "message"}]
    unlocked = result("force-unlock", lock.lock_id)
    assert list(unlocked) == ["ok", "config_dir", "state_observations", "lock_removed", "diagnostics"]
    assert unlocked["state_observations"].keys() == OBSERVATIONS
    assert result("refresh")["observations"]["graph.team"].keys() == {
        "kind", "address", "graph_uri", "observed_at", "exists", "graph_manifest_version", "schema_digest",
        "desired_schema_digest", "schema_matches_desired", "error",
    }  # fmt: skip


def test_diagnostics_are_lines_with_code_and_place_and_exit_1(cluster: ClusterFolder) -> None:
    cluster.write("team.pg", "node {")
    outcome = run("cluster", "validate", "--config", str(cluster.path))
    assert outcome.code == 1
    lines = outcome.stdout.splitlines()
    assert lines[0].startswith("ERROR schema_parse_error graphs.team.schema: ")
    assert lines[-1].startswith("WARN  query_typecheck_skipped query.team.all: ")
    outcome = run("cluster", "apply", "--config", str(cluster.path), "--json")
    document = json.loads(outcome.stdout)
    assert (outcome.code, document["ok"], document["converged"]) == (1, False, False)


def test_partly_converged_apply_exits_0(applied: ClusterFolder) -> None:
    applied.configure(graphs={"other": {"schema": "team.pg"}}, policies=None)
    outcome = run("cluster", "apply", "--config", str(applied.path))
    assert outcome.code == 0
    assert "  - delete graph.team (blocked, approval_required)" in outcome.stdout.splitlines()
    assert "converged: false" in outcome.stdout
    assert "omnigraph cluster approve graph.team" in outcome.stdout


def test_approve_needs_an_actor_from_the_option_or_the_settings(
    applied: ClusterFolder, tmp_path: Path
) -> None:
    applied.configure(graphs={"other": {"schema": "team.pg"}}, policies=None)
    outcome = run("cluster", "approve", "graph.team", "--config", str(applied.path))
    assert (outcome.code, "--as ACTOR" in outcome.stderr) == (1, True)
    settings = tmp_path / "home" / "config.yaml"
    settings.parent.mkdir()
    settings.write_text("operator: { actor: dan }\n")
    outcome = run("cluster", "approve", "graph.team", "--config", str(applied.path), "--json")
    document = json.loads(outcome.stdout)
    assert list(document) == [
        "ok", "config_dir", "approval_id", "resource", "operation", "approved_by", "diagnostics"
    ]  # fmt: skip
    assert document["approved_by"] == "dan"
    outcome = run("cluster", "plan", "--config", str(applied.path))
    assert "  ! graph.team (graph_delete) approved" in outcome.stdout.splitlines()
    assert run("cluster", "apply", "--config", str(applied.path), "--json").code == 0
    assert (
        json.loads(run("cluster", "history", "--config", str(applied.path), "--json").stdout)["revisions"][0][
            "actor"
        ]
        == "dan"
    )


def test_force_unlock_removes_a_left_lock(applied: ClusterFolder) -> None:
    lock = acquire_lock(applied.storage, "apply")
    assert "locked for" in run("cluster", "status", "--config", str(applied.path)).stdout
    outcome = run("cluster", "force-unlock", lock.lock_id, "--config", str(applied.path))
    assert (outcome.code, outcome.stdout) == (0, "lock removed\n")


def test_plan_is_coloured_on_request(applied: ClusterFolder) -> None:
    applied.write("queries/all.gq", OLDER)
    outcome = run(
        "cluster", "plan", "--config", str(applied.path), env={"NO_COLOR": None, "FORCE_COLOR": "1"}
    )
    assert "\x1b[33m~ update query.team.all\x1b[0m" in outcome.stdout


@pytest.mark.parametrize("option", ["--store", "--server", "--cluster", "--graph"])
def test_options_that_address_a_graph_are_refused(option: str) -> None:
    outcome = run(option, "x", "cluster", "plan")
    assert (outcome.code, f"{option} does not apply" in outcome.stderr) == (1, True)


def test_init_and_schema_apply_below_a_cluster_are_refused(applied: ClusterFolder, tmp_path: Path) -> None:
    schema = tmp_path / "s.pg"
    schema.write_text(SCHEMA)
    for command in (
        ["init", "--schema", str(schema), str(applied.path / "graphs" / "new.omni")],
        ["schema", "apply", "--schema", str(schema), str(applied.path / "graphs" / "team.omni")],
    ):
        outcome = run(*command)
        assert outcome.code == 1
        assert "cluster apply" in outcome.stderr
    assert not (applied.path / "graphs" / "new.omni").exists()


def test_every_diagnostic_code_is_in_a_test() -> None:
    files = sorted(Path(__file__).parent.glob("test_*.py"))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    missing = [code for code in sorted(ERROR_CODES | WARNING_CODES) if f'"{code}' not in text]
    assert missing == []


def test_configuration_in_the_working_directory_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cluster(tmp_path / "c")
    monkeypatch.chdir(tmp_path / "c")
    assert run("cluster", "validate").stdout == "cluster config valid: 6 resource(s), 5 dependency edge(s)\n"
