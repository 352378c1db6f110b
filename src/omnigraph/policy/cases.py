"""Tests of a policy: what somebody expects it to decide, and what it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from omnigraph.errors import InvalidInput
from omnigraph.policy.bundle import ACTIONS
from omnigraph.policy.gate import Access, Gate

Expected: TypeAlias = Literal["allow", "deny"]
_MEMBERS = frozenset({"id", "actor", "action", "branch", "target_branch", "expect"})


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """One expectation."""

    id: str
    actor: str
    access: Access
    expect: Expected


def read_cases(document: Any) -> tuple[PolicyCase, ...]:
    """Cases from plain data, or `InvalidInput`."""
    if not isinstance(document, Mapping) or document.get("version") != 1:
        raise InvalidInput("policy test version must be 1")
    cases = tuple(_case(item) for item in document.get("cases") or ())
    for number, case in enumerate(cases):
        if any(case.id == other.id for other in cases[:number]):
            raise InvalidInput(f"duplicate policy test case id '{case.id}'")
    return cases


def _case(document: Any) -> PolicyCase:
    if not isinstance(document, Mapping) or not document.keys() <= _MEMBERS:
        raise InvalidInput(f"a policy test case is a mapping with {', '.join(sorted(_MEMBERS))}")
    id_, actor, action = (document.get(name) for name in ("id", "actor", "action"))
    if not isinstance(id_, str) or not id_.strip():
        raise InvalidInput("policy test case ids must not be blank")
    if not isinstance(actor, str) or not actor.strip():
        raise InvalidInput(f"policy test case '{id_}' has a blank actor")
    if action not in ACTIONS:
        raise InvalidInput(f"unknown policy action '{action}'")
    expect = document.get("expect")
    if expect not in ("allow", "deny"):
        raise InvalidInput(f"policy test case '{id_}' must expect allow or deny")
    access = Access(str(action), document.get("branch"), document.get("target_branch"))
    return PolicyCase(id_, actor, access, "allow" if expect == "allow" else "deny")


def failed_cases(gate: Gate, cases: tuple[PolicyCase, ...]) -> list[str]:
    """A line for each case that the policy decides otherwise, as people read it."""
    lines = []
    for case in cases:
        allowed = gate.decide(case.actor, case.access).allowed
        if allowed != (case.expect == "allow"):
            lines.append(
                f"{case.id}: expected {case.expect.capitalize()} but got {'allow' if allowed else 'deny'}"
            )
    return lines
