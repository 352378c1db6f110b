"""What a policy bundle may say, and the sentence for everything that it may not."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.errors import InvalidInput
from omnigraph.policy.bundle import PolicyBundle, Rule, read_bundle
from omnigraph.policy.cases import failed_cases, read_cases
from omnigraph.policy.gate import Gate


def bundle(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"version": 1, "groups": {"g": ["ann"]}, "rules": [rule()]}
    return {**found, **changes}


def rule(id_: str = "r", **allow: Any) -> dict[str, Any]:
    return {"id": id_, "allow": {"actors": {"group": "g"}, "actions": ["read"], **allow}}


def case(**changes: Any) -> dict[str, Any]:
    return {"id": "a", "actor": "x", "action": "read", "expect": "deny", **changes}


def test_read_bundle_returns_groups_and_rules() -> None:
    found = read_bundle(
        bundle(
            protected_branches=["main"], rules=[rule(actions=["read", "export"], branch_scope="protected")]
        )
    )
    expected = Rule("r", "g", ("read", "export"), "protected")
    assert found == PolicyBundle({"g": ("ann",)}, frozenset({"main"}), (expected,))
    assert found.actors == {"ann"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (bundle(version=2), "policy version must be 1"),
        (bundle(version=True), "policy version must be 1"),
        (bundle(version=1.0), "policy version must be 1"),
        (bundle(groups={" ": ["a"]}), "policy group names must not be blank"),
        (bundle(groups={"g": []}), "policy group 'g' must not be empty"),
        (bundle(groups={"g": ["a", " "]}), "policy group 'g' contains a blank actor id"),
        (bundle(protected_branches=[" "]), "protected branch names must not be blank"),
        (bundle(rules=[rule(" ")]), "policy rule ids must not be blank"),
        (bundle(rules=[rule(), rule()]), "duplicate policy rule id 'r'"),
        (bundle(rules=[rule(actors={"group": " "})]), "policy rule 'r' must reference a non-blank group"),
        (bundle(rules=[rule(actors={"group": "x"})]), "policy rule 'r' references unknown group 'x'"),
        (bundle(rules=[rule(actions=[])]), "policy rule 'r' must include at least one action"),
        (
            bundle(rules=[rule(branch_scope="any", target_branch_scope="any")]),
            "policy rule 'r' may specify branch_scope or target_branch_scope, not both",
        ),
        (
            bundle(rules=[rule(actions=["branch_merge"], branch_scope="any")]),
            "policy rule 'r' uses branch_scope with unsupported action 'branch_merge'",
        ),
        (
            bundle(rules=[rule(target_branch_scope="any")]),
            "policy rule 'r' uses target_branch_scope with unsupported action 'read'",
        ),
        (
            bundle(rules=[rule(actions=["graph_list", "read"])]),
            (
                "policy rule 'r' mixes the server-scoped action `graph_list` with per-graph actions;"
                " split into separate rules"
            ),
        ),
        (bundle(rules=[rule(actions=["fly"])]), "unknown policy action 'fly'"),
        (bundle(groups={"\ud800": ["a"]}), "a policy group name is not valid Unicode text"),
        (bundle(groups={"g": ["a\ud800"]}), "policy group 'g' is not valid Unicode text"),
        (bundle(protected_branches=["\udfff"]), "protected_branches is not valid Unicode text"),
        (bundle(rules=[rule("\ud800")]), "a policy rule id is not valid Unicode text"),
    ],
)
def test_read_bundle_with_invalid_rule_reports_one_error(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_bundle(document)
    assert refused.value.message == message


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        bundle(extra=1),
        bundle(groups=["g"]),
        bundle(groups={"g": "ann"}),
        bundle(rules={}),
        bundle(rules=["r"]),
        bundle(rules=[{"id": "r", "allow": None}]),
        bundle(rules=[rule(branch_scope="some")]),
        bundle(rules=[rule(deny=True)]),
    ],
)
def test_read_bundle_of_wrong_shape_is_refused(document: Any) -> None:
    with pytest.raises(InvalidInput):
        read_bundle(document)


def test_bundle_binds_server_and_graph_rules_separately() -> None:
    server = bundle(rules=[rule(actions=["graph_list"])])
    assert read_bundle(server, binding="cluster").rules
    assert read_bundle(bundle(), binding="graph").rules
    with pytest.raises(InvalidInput, match="applies to the server"):
        read_bundle(server, binding="graph")
    with pytest.raises(InvalidInput, match="applies to graphs"):
        read_bundle(bundle(), binding="cluster")


# --- tests of policies --------------------------------------------------------------------------------------


def test_run_cases_lists_each_failed_case() -> None:
    gate = Gate(read_bundle(bundle()), "team")
    cases = read_cases(
        {
            "version": 1,
            "cases": [
                {"id": "right", "actor": "ann", "action": "read", "branch": "main", "expect": "allow"},
                {"id": "too-much", "actor": "ann", "action": "change", "branch": "main", "expect": "allow"},
                {"id": "too-little", "actor": "ann", "action": "read", "expect": "deny"},
            ],
        }
    )
    assert failed_cases(gate, cases) == [
        "too-much: expected Allow but got deny",
        "too-little: expected Deny but got allow",
    ]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"version": 2}, "policy test version must be 1"),
        ({"version": True, "cases": []}, "policy test version must be 1"),
        (
            {"version": 1, "case": []},
            "a policy test has an unknown member 'case'; expected one of version, cases",
        ),
        ({"version": 1}, "policy test cases must be a list with at least one case"),
        ({"version": 1, "cases": []}, "policy test cases must be a list with at least one case"),
        ({"version": 1, "cases": 5}, "policy test cases must be a list with at least one case"),
        ({"version": 1, "cases": [case(branch=["main"])]}, "policy test case 'a' branch must be a string"),
        ({"version": 1, "cases": [case(branch=5)]}, "policy test case 'a' branch must be a string"),
        (
            {"version": 1, "cases": [case(target_branch=" ")]},
            "policy test case 'a' target_branch must be a string",
        ),
        (
            {"version": 1, "cases": [case(brnch="main")]},
            (
                "a policy test case has an unknown member 'brnch'; expected one of id, actor, action, branch,"
                " target_branch, expect"
            ),
        ),
        ({"version": 1, "cases": [{"id": ""}]}, "policy test case ids must not be blank"),
        ({"version": 1, "cases": [{"id": "a", "actor": " "}]}, "policy test case 'a' has a blank actor"),
        (
            {"version": 1, "cases": [{"id": "a", "actor": "x", "action": "fly", "expect": "allow"}]},
            "unknown policy action 'fly'",
        ),
        (
            {"version": 1, "cases": [{"id": "a", "actor": "x", "action": "read", "expect": "maybe"}]},
            "policy test case 'a' must expect allow or deny",
        ),
        (
            {"version": 1, "cases": [{"id": "a", "actor": "x", "action": "read", "expect": "deny"}] * 2},
            "duplicate policy test case id 'a'",
        ),
    ],
)
def test_read_cases_of_wrong_shape_is_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_cases(document)
    assert refused.value.message == message
