"""`omnigraph repair`: list, roll forward and discard interrupted bulk writes; unreadable intents need --force."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import RecoveryRequired
from omnigraph.graph.publish import now_micros
from omnigraph.graph.recovery.intents import Intents
from tests.cli.graphs import abandon_load, add_people, make_graph
from tests.cli.running import run, write

PERSON, KNOWS = "node:Person", "edge:Knows"

pytestmark = pytest.mark.usefixtures("graph", "home")


@pytest.fixture
def graph(folder: Path) -> Path:
    make_graph("g.omni")
    add_people("g.omni", "Ann")
    return folder / "g.omni"


def document(*args: str, code: int = 0) -> Any:
    outcome = run("repair", "g.omni", "--json", *args)
    assert outcome.code == code, outcome.stderr
    return json.loads(outcome.stdout)


def rows(*args: str, code: int = 0) -> dict[str, tuple[str, str]]:
    found = document(*args, code=code)["datasets"]
    return {item["type_key"]: (item["classification"], item["action"]) for item in found}


def people() -> list[str]:
    with og.open("g.omni", "r") as graph:
        return sorted(
            row["name"]
            for row in graph.query("query q() { match { $p: Person } return { $p.name as name } }")
        )


def spoil(graph: Path, id_: str = "01M7F7J2SC9H2KDJR8X2Y3TSZ0") -> Path:
    """An intent of which nothing can be read."""
    return write(graph / "__recovery" / f"{id_}.json", "{")


NOTHING = {PERSON: ("no_drift", "no_op"), KNOWS: ("no_drift", "no_op")}


def test_repair_of_intact_graph_reports_nothing() -> None:
    for args in ([], ["--confirm"], ["--confirm", "--force"]):
        assert rows(*args) == NOTHING
    assert run("repair", "g.omni").stdout.startswith(
        "repair g.omni — preview mode, 2 datasets\nnode:Person: no_op, "
    )


def test_repair_json_has_the_documented_members() -> None:
    found = document()
    version = json.loads(run("snapshot", "g.omni", "--json").stdout)["datasets"][0][
        "published_dataset_version"
    ]
    assert found == {
        "uri": "g.omni",
        "confirm": False,
        "force": False,
        "graph_manifest_version": 2,
        "datasets": [
            {
                "type_key": key,
                "published_dataset_version": found["datasets"][place]["published_dataset_version"],
                "lance_head_version": found["datasets"][place]["published_dataset_version"],
                "classification": "no_drift",
                "action": "no_op",
                "operations": [],
                "error": None,
            }
            for place, key in enumerate((PERSON, KNOWS))
        ],
    }
    assert found["datasets"][0]["published_dataset_version"] == version


def test_repair_confirm_publishes_complete_write() -> None:
    abandon_load("g.omni", "Bob", complete=True, actor="dan")
    preview = document()["datasets"][0]
    assert (preview["classification"], preview["action"]) == ("verified_write", "preview")
    assert (preview["operations"], preview["error"]) == (["load"], None)
    assert preview["lance_head_version"] == preview["published_dataset_version"] + 1
    assert people() == ["Ann"]
    outcome = run("repair", "g.omni", "--confirm")
    assert (outcome.code, outcome.stderr) == (0, "omnigraph repair → g.omni (direct, local)\n")
    lines = outcome.stdout.splitlines()
    assert lines[0] == "repair g.omni — confirm mode, 2 datasets"
    assert lines[1].startswith("node:Person: healed, verified_write, version ")
    assert lines[1].endswith(", by load")
    assert people() == ["Ann", "Bob"]
    assert rows() == NOTHING
    with og.open("g.omni", "r") as graph:
        assert graph.snapshot().pin(PERSON).number == preview["lance_head_version"]


def test_repair_confirm_discards_incomplete_write_with_a_record() -> None:
    id_ = abandon_load("g.omni", complete=False, actor="dan")
    key = f"__recovery/{id_}"
    assert rows() == {**NOTHING, key: ("incomplete", "preview")}
    assert rows("--confirm") == {**NOTHING, key: ("incomplete", "discarded")}
    assert rows() == NOTHING
    with og.open("g.omni", "r") as graph:
        assert [(item.id, item.outcome, item.actor) for item in graph.recoveries()] == [
            (id_, "discarded", "dan")
        ]


def test_repair_recovers_writes_of_other_branches() -> None:
    run("branch", "create", "dev", "--uri", "g.omni")
    id_ = abandon_load("g.omni", "Bob", complete=True, branch="dev")
    assert rows("--confirm") == {**NOTHING, f"__recovery/{id_}": ("verified_write", "healed")}
    assert people() == ["Ann"]


def test_repair_force_discards_unreadable_intent(graph: Path) -> None:
    kept = abandon_load("g.omni", complete=False)
    key = f"__recovery/{spoil(graph).stem}"
    with pytest.raises(RecoveryRequired, match="omnigraph repair"):
        og.open("g.omni")
    assert rows()[key] == ("unverifiable", "preview")
    refused = rows("--confirm", code=1)
    # What stands behind it is settled all the same.
    assert (refused[key], refused[f"__recovery/{kept}"]) == (
        ("unverifiable", "refused"),
        ("incomplete", "discarded"),
    )
    forced = document("--confirm", "--force")["datasets"][2]
    assert (forced["action"], forced["published_dataset_version"]) == ("forced", None)
    assert forced["error"] == "its intent cannot be read and was discarded"
    assert rows() == NOTHING
    with og.open("g.omni") as opened:
        assert "its intent cannot be read and was discarded" in [item.reason for item in opened.recoveries()]
    listed = run("commit", "list", "g.omni", "--filter", "actor=omnigraph:recovery").stdout
    assert f"discarded {key.partition('/')[2]} " in listed


def test_repair_force_keeps_unreadable_intent_of_a_recent_writer(graph: Path) -> None:
    spoiled = spoil(graph)
    write(spoiled.with_suffix(".lease"), str(now_micros() / 1_000_000))
    assert rows("--confirm", "--force", code=1)[f"__recovery/{spoiled.stem}"] == ("unverifiable", "refused")
    assert spoiled.exists()


def test_repair_force_warns_of_a_writer_that_began_to_publish(graph: Path) -> None:
    spoiled = spoil(graph)
    write(spoiled.with_suffix(".outcome"), "publishing")
    forced = document("--confirm", "--force")["datasets"][2]
    assert forced["error"] == "its intent cannot be read and was discarded; it had begun to publish"


def test_repair_keeps_the_write_of_a_live_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    abandon_load("g.omni", "Bob", complete=True)
    monkeypatch.setattr(Intents, "is_abandoned", lambda *_: False)
    assert rows("--confirm") == NOTHING
    assert people() == ["Ann"]


def test_repair_force_without_confirm_is_a_usage_error() -> None:
    outcome = run("repair", "g.omni", "--force")
    assert outcome.code == 2
    assert "--force requires --confirm" in outcome.stderr


def test_repair_finds_the_graph_by_configuration_and_refuses_a_server(folder: Path) -> None:
    write(folder / "site.yaml", "graphs: {team: {uri: g.omni}}")
    outcome = run("repair", "--cluster", "site.yaml", "--graph", "team")
    assert (outcome.code, outcome.stdout.partition(" — ")[2][:12]) == (0, "preview mode")
    assert run("repair", "--server", "prod").stderr.startswith(
        "error: `repair` is a direct (storage-native) command"
    )


# --- damage -------------------------------------------------------------------------------------------------


def lose_people(graph: Path) -> None:
    """Delete the data file of the only load."""
    for file in graph.glob("nodes/*/data/*"):
        file.unlink()


def test_repair_damaged_type_is_refused_with_exit_code_1(graph: Path) -> None:
    lose_people(graph)
    assert rows(code=1) == {PERSON: ("damaged", "refused"), KNOWS: ("no_drift", "no_op")}
    outcome = run("repair", "g.omni")
    assert outcome.code == 1
    assert "the file does not exist; run `omnigraph verify`" in outcome.stdout


def test_repair_reset_branch_previews_then_resets(graph: Path) -> None:
    lose_people(graph)
    preview = document("--reset-branch", "main")
    assert preview["reset"]["commit_id"] is None
    assert {item["type_key"]: item["action"] for item in preview["datasets"]}[PERSON] == "preview"
    outcome = run("repair", "g.omni", "--reset-branch", "main", "--to", preview["reset"]["to"], "--confirm")
    assert outcome.code == 0, outcome.stderr
    assert "1 commit lost" in outcome.stdout
    assert "node:Person: 1 row → 0 rows" in outcome.stdout
    assert people() == []
    add_people("g.omni", "Eve")
    assert people() == ["Eve"]
    assert run("verify", "g.omni").code == 0


def test_repair_graph_that_cannot_be_opened_is_rebuilt(graph: Path) -> None:
    (registry,) = graph.glob("__manifest/data/registry-*")
    registry.write_bytes(b"")
    assert rows() == {"__manifest/registry": ("damaged", "preview")}
    assert rows("--confirm")["__manifest/registry"] == ("damaged", "rebuilt")
    assert people() == ["Ann"]


def test_repair_refuses_options_that_do_not_belong_together() -> None:
    for args in (["--to", "x"], ["--reset-branch", "main", "--confirm", "--force"]):
        assert run("repair", "g.omni", *args).code == 2
