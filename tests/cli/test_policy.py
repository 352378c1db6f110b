"""`omnigraph policy`: validate, test and explain bundles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import run, write
from tests.policy.test_gate import DOCUMENT

CASES = """\
version: 1
cases:
  - { id: bob-main, actor: act-bob, action: change, branch: main, expect: deny }
  - { id: ann-merge, actor: act-ann, action: branch_merge, branch: dev, target_branch: main, expect: allow }
"""
SERVER = """\
version: 1
groups: { ops: [act-ann] }
rules:
  - { id: list, allow: { actors: { group: ops }, actions: [graph_list] } }
"""


@pytest.fixture(autouse=True)
def _with_a_bundle(folder: Path) -> None:
    write(folder / "base.json", json.dumps(DOCUMENT))
    write(folder / "cases.yaml", CASES)
    write(folder / "server.yaml", SERVER)


class TestValidate:
    def test_validate_prints_name_and_actors(self) -> None:
        outcome = run("policy", "validate", "--file", "base.json")
        assert (outcome.code, outcome.stdout, outcome.stderr) == (
            0,
            "policy valid: bundle 'base' [2 actors]\n",
            "",
        )

    def test_validate_of_invalid_bundle_names_the_file(self, folder: Path) -> None:
        write(folder / "bad.yaml", "version: 1\ngroups: { g: [] }\n")
        outcome = run("policy", "validate", "--file", "bad.yaml")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == "error: bad.yaml: policy group 'g' must not be empty\n"

    @pytest.mark.parametrize("text", ["rules: [", "version: 1\nversion: 1\n", ""])
    def test_validate_of_file_that_is_no_bundle_is_refused(self, folder: Path, text: str) -> None:
        write(folder / "bad.yaml", text)
        outcome = run("policy", "validate", "--file", "bad.yaml")
        assert outcome.code == 1
        assert outcome.stderr.startswith("error: bad.yaml")

    def test_validate_with_wrong_scope_is_refused(self) -> None:
        assert run("policy", "validate", "--file", "server.yaml", "--cluster-scope").code == 0
        for args in (["server.yaml"], ["base.json", "--cluster-scope"]):
            outcome = run("policy", "validate", "--file", *args)
            assert outcome.code == 1
            assert "the bundle is bound to" in outcome.stderr

    @pytest.mark.parametrize("key", ["branch_scope: any", "actions: [change]"])
    def test_validate_of_rule_with_duplicate_key_is_refused(self, folder: Path, key: str) -> None:
        allow = "{ actors: { group: g }, actions: [read], branch_scope: unprotected, " + key + " }"
        write(folder / "bad.yaml", f"version: 1\ngroups: {{ g: [a] }}\nrules:\n- id: r\n  allow: {allow}\n")
        outcome = run("policy", "validate", "--file", "bad.yaml")
        assert outcome.code == 1
        assert outcome.stderr.startswith("error: bad.yaml: line 5: rules.0.allow.")

    def test_validate_of_missing_file_is_refused(self) -> None:
        outcome = run("policy", "validate", "--file", "missing.yaml")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert "missing.yaml" in outcome.stderr


class TestTests:
    def test_policy_test_counts_passed_cases(self) -> None:
        outcome = run("policy", "test", "--file", "base.json", "--tests", "cases.yaml")
        assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "policy tests passed: 2 cases\n", "")

    def test_policy_test_lists_failed_cases_and_fails(self, folder: Path) -> None:
        turned = (
            CASES.replace("expect: deny", "expect: x").replace("allow }", "deny }").replace("x }", "allow }")
        )
        write(folder / "cases.yaml", turned)
        outcome = run("policy", "test", "--file", "base.json", "--tests", "cases.yaml")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == (
            "error: policy tests failed:\n"
            "bob-main: expected Allow but got deny\n"
            "ann-merge: expected Deny but got allow\n"
        )

    def test_policy_test_with_invalid_cases_names_the_file(self, folder: Path) -> None:
        write(folder / "cases.yaml", "version: 2\n")
        outcome = run("policy", "test", "--file", "base.json", "--tests", "cases.yaml")
        assert (outcome.code, outcome.stderr) == (1, "error: cases.yaml: policy test version must be 1\n")

    def test_policy_test_of_server_bundle(self, folder: Path) -> None:
        case = "{ id: ann, actor: act-ann, action: graph_list, expect: allow }"
        write(folder / "cases.yaml", f"version: 1\ncases:\n  - {case}\n")
        assert run("policy", "test", "--file", "server.yaml", "--tests", "cases.yaml").code == 0


class TestExplain:
    def test_explain_prints_the_decision_line_by_line(self) -> None:
        asked = (
            "--actor",
            "act-ann",
            "--action",
            "branch_merge",
            "--branch",
            "dev",
            "--target-branch",
            "main",
        )
        outcome = run("policy", "explain", "--file", "base.json", *asked, "--graph", "knowledge")
        assert (outcome.code, outcome.stderr) == (0, "")
        assert outcome.stdout == (
            "decision: allow\n"
            "actor: act-ann\n"
            "action: branch_merge\n"
            "branch: dev\n"
            "target_branch: main\n"
            "matched_rule: admins-merge\n"
            "message: policy allowed action 'branch_merge' for actor 'act-ann'\n"
        )

    def test_explain_of_denial_succeeds(self) -> None:
        asked = ("--actor", "act-eve", "--action", "read")
        outcome = run("policy", "explain", "--file", "base.json", *asked)
        assert (outcome.code, outcome.stdout.splitlines()) == (
            0,
            [
                "decision: deny",
                "actor: act-eve",
                "action: read",
                "branch: null",
                "target_branch: null",
                "matched_rule: null",
                "message: policy denied action 'read' for unknown actor 'act-eve'",
            ],
        )

    def test_explain_normalizes_the_branch_name(self) -> None:
        asked = ("--actor", "act-bob", "--action", "change", "--branch", " main ")
        lines = run("policy", "explain", "--file", "base.json", *asked).stdout.splitlines()
        assert (lines[0], lines[3]) == ("decision: deny", "branch: main")

    def test_explain_of_unknown_action_is_refused(self) -> None:
        outcome = run("policy", "explain", "--file", "base.json", "--actor", "act-ann", "--action", "reed")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr.startswith("error: unknown policy action 'reed'; did you mean `read`?\n")


class TestOfAConfiguration:
    @pytest.fixture(autouse=True)
    def _with_bundles(self, folder: Path) -> None:
        write(folder / "site.yaml", "graphs: {k: {uri: k.omni, policy: base.json}}\npolicy: server.yaml\n")

    def test_cluster_scope_selects_the_bundle_of_the_server(self, folder: Path) -> None:
        chosen = ("--cluster", "site.yaml")
        outcome = run("policy", "validate", "--cluster-scope", *chosen)
        assert (outcome.code, outcome.stdout) == (0, "policy valid: bundle 'cluster' [1 actors]\n")
        asked = ("--actor", "act-ann", "--action", "graph_list")
        assert "matched_rule: list" in run("policy", "explain", "--cluster-scope", *asked, *chosen).stdout
        case = "{ id: ann, actor: act-ann, action: graph_list, expect: allow }"
        write(folder / "cases.yaml", f"version: 1\ncases: [{case}]\n")
        tests = ("--tests", "cases.yaml")
        assert run("policy", "test", "--cluster-scope", *tests, *chosen).code == 0
        assert run("policy", "test", "--cluster-scope", *tests, "--file", "server.yaml").code == 0
        assert run("policy", "test", "--cluster-scope", *tests, "--file", "base.json").code == 1

    def test_graph_and_cluster_scope_together_are_refused(self) -> None:
        outcome = run("policy", "validate", "--cluster-scope", "--cluster", "site.yaml", "--graph", "k")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == ("error: --cluster-scope and --graph exclude each other\n")

    def test_configuration_with_several_bundles_names_both_options(self) -> None:
        outcome = run("policy", "validate", "--cluster", "site.yaml")
        assert (outcome.code, outcome.stderr) == (
            1,
            (
                "error: --cluster site.yaml has several policy bundles: choose one with --graph <id> or"
                " --cluster-scope\nhint: choices: --graph k, --cluster-scope\n"
            ),
        )

    def test_cluster_scope_without_server_bundle_is_refused(self, folder: Path) -> None:
        write(folder / "site.yaml", "graphs: {k: {uri: k.omni, policy: base.json}}\n")
        outcome = run("policy", "validate", "--cluster-scope", "--cluster", "site.yaml")
        assert (outcome.code, outcome.stderr) == (
            1,
            "error: --cluster site.yaml has no policy bundle for the server\n",
        )

    @pytest.mark.parametrize("chosen", [["--graph", "k"], []])
    def test_validate_of_invalid_bundle_of_a_graph_names_its_file(
        self, folder: Path, chosen: list[str]
    ) -> None:
        write(folder / "bad.yaml", "version: 2\n")
        write(folder / "site.yaml", "graphs: {k: {uri: k.omni, policy: bad.yaml}}\n")
        outcome = run("policy", "validate", "--cluster", "site.yaml", *chosen)
        assert (outcome.code, outcome.stderr) == (1, "error: bad.yaml: policy version must be 1\n")


@pytest.mark.parametrize("option", ["--store", "--server", "--cluster", "--profile", "--as", "--graph"])
def test_graph_options_are_refused(option: str) -> None:
    outcome = run("policy", "validate", "--file", "base.json", option, "x")
    assert (outcome.code, outcome.stdout) == (1, "")
    expected = f"error: `policy validate` reads the bundle in --file; {option} does not apply.\n"
    assert outcome.stderr == expected


@pytest.mark.parametrize(
    "args", [["validate"], ["test", "--file", "base.json"], ["explain", "--file", "base.json"]]
)
def test_missing_option_is_a_usage_error(args: list[str]) -> None:
    assert run("policy", *args).code == 2
