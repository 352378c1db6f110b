"""Decisions: the worked examples, names that try to break out, and every bundle against the rules in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cedarpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput, PermissionDenied
from omnigraph.policy.bundle import BRANCH_ACTIONS, TARGET_ACTIONS, PolicyBundle, Rule, Scope, read_bundle
from omnigraph.policy.gate import Access, Gate

DOCUMENT = {
    "version": 1,
    "groups": {"team": ["act-ann", "act-bob"], "admins": ["act-ann"]},
    "protected_branches": ["main"],
    "rules": [
        {
            "id": "team-read",
            "allow": {"actors": {"group": "team"}, "actions": ["read", "export"], "branch_scope": "any"},
        },
        {
            "id": "team-write",
            "allow": {"actors": {"group": "team"}, "actions": ["change"], "branch_scope": "unprotected"},
        },
        {
            "id": "admins-merge",
            "allow": {
                "actors": {"group": "admins"},
                "actions": ["branch_merge", "schema_apply"],
                "target_branch_scope": "protected",
            },
        },
        {"id": "team-invoke", "allow": {"actors": {"group": "team"}, "actions": ["invoke_query"]}},
    ],
}


@pytest.mark.parametrize(
    ("actor", "access", "matched"),
    [
        ("act-bob", Access("read", "main"), "team-read"),
        ("act-bob", Access("change", "main"), None),
        ("act-bob", Access("change", "dev"), "team-write"),
        ("act-bob", Access("branch_merge", "dev", "main"), None),
        ("act-ann", Access("branch_merge", "dev", "main"), "admins-merge"),
        ("act-ann", Access("branch_merge", "main", "dev"), None),
        ("act-eve", Access("read", "main"), None),
        ("act-bob", Access("branch_create", "main", "x"), None),
        ("act-bob", Access("read"), "team-read"),
        ("act-bob", Access("change"), None),
        ("act-bob", Access("invoke_query"), "team-invoke"),
    ],
)
def test_gate_decides_the_worked_examples(actor: str, access: Access, matched: str | None) -> None:
    decision = Gate(read_bundle(DOCUMENT), "knowledge").decide(actor, access)
    assert decision.matched_rule_id == matched
    assert decision.allowed == (matched is not None)


def test_decision_describes_its_request() -> None:
    gate = Gate(read_bundle(DOCUMENT), "knowledge")
    said = [
        gate.decide("act-bob", Access("read", "main")).message,
        gate.decide("act-bob", Access("branch_merge", "dev", "main")).message,
        gate.decide("act-bob", Access("schema_apply", None, "main")).message,
        gate.decide("act-eve", Access("read", "main")).message,
    ]
    assert said == [
        "policy allowed action 'read' for actor 'act-bob'",
        "policy denied action 'branch_merge' on branch 'dev' targeting branch 'main' for actor 'act-bob'",
        "policy denied action 'schema_apply' targeting branch 'main' for actor 'act-bob'",
        "policy denied action 'read' for unknown actor 'act-eve'",
    ]


def test_gate_without_actor_denies() -> None:
    gate = Gate(read_bundle(DOCUMENT), "knowledge")
    with pytest.raises(PermissionDenied) as denied:
        gate.check(None, Access("change", "dev"))
    assert denied.value.details == {
        "actor": None,
        "action": "change",
        "branch": "dev",
        "target_branch": None,
    }
    gate.check("act-bob", Access("change", "dev"))


def test_decision_names_the_first_of_several_rules() -> None:
    rules = tuple(Rule(f"r{number:02}", "g", ("read",)) for number in reversed(range(12)))
    gate = Gate(PolicyBundle({"g": ("ann",)}, frozenset(), rules), "team")
    assert gate.decide("ann", Access("read", "main")).matched_rule_id == "r00"


def test_gate_decides_repeated_requests_independently() -> None:
    bundle = read_bundle(DOCUMENT)
    gate = Gate(bundle, "knowledge")
    actors = ("act-ann", "act-bob", "act-eve")
    places = [(branch, target) for branch in (None, "main", "dev") for target in (None, "main", "dev")]
    asked = [
        (actor, Access(action, *place))
        for actor in actors
        for action in ("read", "change", "branch_merge")
        for place in places
    ]
    for _ in range(2):
        for actor, access in asked:
            assert gate.decide(actor, access).matched_rule_id == by_the_book(bundle, actor, access)


def test_gate_evaluates_unprotected_branches_once(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[str] = []
    evaluate = cedarpy.is_authorized

    def count(request: dict[str, Any], *arguments: Any) -> Any:
        evaluated.append(request["principal"]["id"])
        return evaluate(request, *arguments)

    monkeypatch.setattr(cedarpy, "is_authorized", count)
    gate = Gate(read_bundle(DOCUMENT), "knowledge")
    assert [gate.decide("act-bob", Access("change", f"work/{n}")).allowed for n in range(3)] == [True] * 3
    denied = [gate.decide("act-bob", Access("branch_merge", f"work/{n}", "main")).message for n in range(3)]
    text = (
        "policy denied action 'branch_merge' on branch 'work/{}' targeting branch 'main' for actor 'act-bob'"
    )
    assert denied == [text.format(n) for n in range(3)]
    assert evaluated == ["act-bob"] * 2


def test_gate_normalizes_the_branch_name() -> None:
    gate = Gate(read_bundle(DOCUMENT), "knowledge")
    assert not gate.decide("act-bob", Access("change", " main ")).allowed
    assert gate.decide("act-ann", Access("branch_merge", "dev", "main\t")).allowed
    with pytest.raises(PermissionDenied) as denied:
        gate.check("act-bob", Access("change", " main "))
    assert denied.value.details["branch"] == "main"


class Members(tuple[str, ...]):
    """The members of a group, and how often somebody went through them."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        type(self).walks += 1
        return super().__iter__()

    def __contains__(self, actor: object) -> bool:
        type(self).walks += 1
        return super().__contains__(actor)


def test_gate_reads_group_members_once() -> None:
    many = Members(f"a{number}" for number in range(2_000))
    bundle = PolicyBundle({"g": many}, rules=(Rule("r", "g", ("read",)),))
    gate = Gate(bundle, "team").prepare()
    assert all(gate.decide(actor, Access("read")).allowed for actor in ("a0", "a7", "a1999"))
    assert not gate.decide("b", Access("read")).allowed
    assert Members.walks == 1
    assert bundle.actors is bundle.actors


def test_gate_with_rules_that_cedar_rejects_is_refused() -> None:
    gate = Gate(PolicyBundle({"\ud800": ("ann",)}, rules=(Rule("r", "\ud800", ("read",)),)), "team")
    with pytest.raises(InvalidInput, match="Cedar rejects the rules"):
        gate.prepare()


@pytest.mark.parametrize(
    "name", ['a"b', "a\\", "a\nb", "a\0b", "é😀", '") permit(principal,action,resource);//']
)
def test_gate_quotes_names_in_cedar_policies(name: str) -> None:
    bundle = PolicyBundle({name: (name,)}, frozenset({name}), (Rule(name, name, ("change",), "protected"),))
    gate = Gate(bundle, name)
    assert gate.decide(name, Access("change", name)).matched_rule_id == name
    assert not gate.decide(name, Access("change", "main")).allowed
    assert not gate.decide(name, Access("read", name)).allowed


# --- against the rules in words -----------------------------------------------------------------------------

ACTORS, GROUPS, BRANCHES = ("ann", "bob", "eve"), ("g", "h"), ("main", "dev")
SCOPES: tuple[Scope | None, ...] = (None, "any", "protected", "unprotected")


@st.composite
def bundles(draw: st.DrawFn) -> PolicyBundle:
    def a_rule(number: int) -> Rule:
        group, scope = draw(st.sampled_from(GROUPS)), draw(st.sampled_from(SCOPES))
        if draw(st.booleans()):
            return Rule(f"r{number}", group, (draw(st.sampled_from(BRANCH_ACTIONS)),), scope)
        return Rule(f"r{number}", group, (draw(st.sampled_from(TARGET_ACTIONS)),), None, scope)

    members = st.sets(st.sampled_from(ACTORS[:2]), min_size=1).map(lambda found: tuple(sorted(found)))
    groups = {name: draw(members) for name in GROUPS}
    protected = frozenset(draw(st.sets(st.sampled_from(BRANCHES))))
    return PolicyBundle(groups, protected, tuple(a_rule(number) for number in range(draw(st.integers(0, 4)))))


def by_the_book(bundle: PolicyBundle, actor: str, access: Access) -> str | None:
    def fits(scope: Scope | None, branch: str | None) -> bool:
        if scope in (None, "any"):
            return True
        return branch is not None and (branch in bundle.protected_branches) == (scope == "protected")

    matching = [
        rule.id
        for rule in bundle.rules
        if actor in bundle.groups[rule.group]
        and access.action in rule.actions
        and fits(rule.branch_scope, access.branch)
        and fits(rule.target_branch_scope, access.target_branch)
    ]
    return min(matching, default=None)


@settings(max_examples=150, deadline=None)
@given(
    bundles(),
    st.sampled_from(ACTORS),
    st.builds(
        Access,
        st.sampled_from(BRANCH_ACTIONS + TARGET_ACTIONS),
        st.sampled_from((None, *BRANCHES)),
        st.sampled_from((None, *BRANCHES)),
    ),
)
def test_cedar_decisions_equal_the_reference_rules(bundle: PolicyBundle, actor: str, access: Access) -> None:
    decision = Gate(bundle, "team").decide(actor, access)
    expected: Any = by_the_book(bundle, actor, access)
    assert decision.matched_rule_id == expected
    assert decision.allowed == (expected is not None)
