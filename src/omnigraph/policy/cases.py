"""Policy tests: expected decisions, compared with the decisions of a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from omnigraph.errors import InvalidInput
from omnigraph.policy.bundle import ACTIONS, is_version, read_members
from omnigraph.policy.gate import Access, Gate

Expected: TypeAlias = Literal["allow", "deny"]
_MEMBERS = ("id", "actor", "action", "branch", "target_branch", "expect")


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """An access and the decision that is expected for it."""

    id: str
    actor: str
    access: Access
    expect: Expected


def read_cases(document: Any) -> tuple[PolicyCase, ...]:
    """Parse and validate test cases; raise `InvalidInput` with the first error."""
    found = read_members(document, "a policy test", ("version", "cases"))
    if not is_version(found.get("version")):
        raise InvalidInput("policy test version must be 1")
    given = found.get("cases")
    if not isinstance(given, list) or not given:
        # A test without cases would pass.
        raise InvalidInput("policy test cases must be a list with at least one case")
    cases: dict[str, PolicyCase] = {}
    for case in map(_case, given):
        if case.id in cases:
            raise InvalidInput(f"duplicate policy test case id '{case.id}'")
        cases[case.id] = case
    return tuple(cases.values())


def _case(document: Any) -> PolicyCase:
    found = read_members(document, "a policy test case", _MEMBERS)
    id_, actor, action = (found.get(name) for name in ("id", "actor", "action"))
    if not isinstance(id_, str) or not id_.strip():
        raise InvalidInput("policy test case ids must not be blank")
    if not isinstance(actor, str) or not actor.strip():
        raise InvalidInput(f"policy test case '{id_}' has a blank actor")
    if action not in ACTIONS:
        raise InvalidInput(f"unknown policy action '{action}'")
    for name in ("branch", "target_branch"):
        branch = found.get(name)
        if branch is not None and (not isinstance(branch, str) or not branch.strip()):
            raise InvalidInput(f"policy test case '{id_}' {name} must be a string")
    expect = found.get("expect")
    if expect not in ("allow", "deny"):
        raise InvalidInput(f"policy test case '{id_}' must expect allow or deny")
    access = Access(str(action), found.get("branch"), found.get("target_branch"))
    return PolicyCase(id_, actor, access, "allow" if expect == "allow" else "deny")


def failed_cases(gate: Gate, cases: tuple[PolicyCase, ...]) -> list[str]:
    """Return one line for each case whose decision differs from the expected one."""
    lines = []
    for case in cases:
        allowed = gate.decide(case.actor, case.access).allowed
        if allowed != (case.expect == "allow"):
            lines.append(
                f"{case.id}: expected {case.expect.capitalize()} but got {'allow' if allowed else 'deny'}"
            )
    return lines
