"""The skill for agents and the recipes of the guide show what the commands print, and follow their own rules."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from omnigraph.api.access import read_policy
from omnigraph.policy.cases import failed_cases, read_cases
from omnigraph.policy.gate import Gate
from tests.cli.console import exchanges, replay
from tests.cli.running import ROOT

SKILL = ROOT / "skills" / "omnigraph"
GUIDE = ROOT / "docs" / "guide" / "agents.md"
PAGES = [SKILL / "SKILL.md", *sorted((SKILL / "references").glob("*.md")), GUIDE]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_prints_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples" / "team", tmp_path / "examples" / "team")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    shown, real = replay(page.read_text(encoding="utf-8"))
    assert len(shown) > 5
    assert real == shown


def test_skill_has_a_name_a_description_and_its_references() -> None:
    text = (SKILL / "SKILL.md").read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    found = yaml.safe_load(head)
    assert found.keys() == {"name", "description"}
    # The usual limits of the format. The name is that of the folder.
    assert found["name"] == SKILL.name
    assert 100 < len(found["description"]) <= 1024
    assert len(body.splitlines()) < 500
    linked = set(re.findall(r"\((references/[\w.-]+)\)", body))
    assert linked == {f"references/{page.name}" for page in (SKILL / "references").iterdir()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_agents_of_the_examples_write_to_branches_and_merge_as_reviewers(page: Path) -> None:
    for item in exchanges(page.read_text(encoding="utf-8")):
        words = item.command
        if " mutate " in words and "--as agent-" in words:
            assert "--branch agent/" in words, words
        assert "--force" not in words
        assert "--allow-data-loss" not in words


def test_policy_of_the_recipe_lets_agents_propose_and_reviewers_decide() -> None:
    gate = Gate(read_policy(ROOT / "examples" / "team" / "agents.policy.yaml", binding="graph"), "team")

    def case(id_: str, actor: str, action: str, expect: str, **branches: str) -> dict[str, str]:
        return {"id": id_, "actor": actor, "action": action, "expect": expect, **branches}

    cases = [
        case("write", "agent-scout", "change", "allow", branch="agent/x"),
        case("main", "agent-scout", "change", "deny", branch="main"),
        case("create", "agent-scout", "branch_create", "allow", branch="main", target_branch="agent/x"),
        case("merge", "agent-scout", "branch_merge", "deny", branch="agent/x", target_branch="main"),
        case("schema", "agent-scout", "schema_apply", "deny", target_branch="main"),
        case("drop", "agent-scout", "branch_delete", "deny", target_branch="main"),
        case("review", "act-ann", "branch_merge", "allow", branch="agent/x", target_branch="main"),
        case("tidy", "act-ann", "branch_delete", "allow", target_branch="agent/x"),
        case("other", "act-ann", "change", "deny", branch="main"),
    ]
    assert failed_cases(gate, read_cases({"version": 1, "cases": cases})) == []
