"""The policy gate: one decision for an actor, an action and a branch, evaluated by Cedar."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import cedarpy

from omnigraph.errors import InvalidInput, PermissionDenied
from omnigraph.policy.bundle import PolicyBundle, Rule
from omnigraph.policy.decision_log import log_decision

_CACHED_RESULTS = 1_024


@dataclass(frozen=True, slots=True)
class Access:
    """A requested action. `branch` is the branch that is read or written, or the source of a merge.

    Branch names are stripped as they are when stored, so that a name with spaces around it is the same branch.

    >>> Access("change", " main ")
    Access(action='change', branch='main', target_branch=None)
    """

    action: str
    branch: str | None = None
    target_branch: str | None = None

    def __post_init__(self) -> None:
        for name, given in (("branch", self.branch), ("target_branch", self.target_branch)):
            if given is not None:
                object.__setattr__(self, name, given.strip())


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of an evaluation: allowed or denied, the rule that allowed it, and the message."""

    allowed: bool
    matched_rule_id: str | None
    message: str


@dataclass(frozen=True, slots=True)
class NoPolicy:
    """Says in denials that the operator has configured no policy, and what to do."""

    reason: str
    hint: str


@dataclass(frozen=True)
class Gate:
    """A bundle applied to one resource: a graph by its id, or the server.

    `absence` is set if the bundle is a default because the operator has configured no policy.

    >>> from omnigraph.policy.bundle import read_bundle
    >>> allow = {"actors": {"group": "g"}, "actions": ["change"], "branch_scope": "unprotected"}
    >>> document = {
    ...     "version": 1,
    ...     "groups": {"g": ["ann"]},
    ...     "protected_branches": ["main"],
    ...     "rules": [{"id": "r", "allow": allow}],
    ... }
    >>> gate = Gate(read_bundle(document), "team")
    >>> gate.decide("ann", Access("change", "dev")).matched_rule_id
    'r'
    >>> gate.decide("ann", Access("change", "main")).message
    "policy denied action 'change' on branch 'main' for actor 'ann'"
    """

    bundle: PolicyBundle
    graph_id: str | None = None
    absence: NoPolicy | None = None

    def prepare(self) -> Gate:
        """Compile the rules now instead of at the first decision, and return the gate.

        Raises `InvalidInput` when Cedar rejects the rules.
        """
        try:
            _ = self._policies
        except ValueError as error:
            raise InvalidInput(f"Cedar rejects the rules: {error}") from error
        _ = self._groups, self._ids
        return self

    def check(self, actor: str | None, access: Access) -> None:
        """Raise `PermissionDenied` unless the access is allowed. The decision is logged."""
        decision = self.decide(actor, access)
        log_decision(self.graph_id, actor, access, decision)
        if not decision.allowed:
            absence = self.absence
            raise PermissionDenied(
                decision.message if absence is None else f"{decision.message}: {absence.reason}",
                hint=None if absence is None else absence.hint,
                details={
                    "actor": actor,
                    "action": access.action,
                    "branch": access.branch,
                    "target_branch": access.target_branch,
                },
            )

    def decide(self, actor: str | None, access: Access) -> Decision:
        """Evaluate an access. If several rules allow it, the decision names the one with the smallest id."""
        if actor is None or actor not in self._groups:
            shown = "no actor" if actor is None else f"unknown actor '{actor}'"
            return Decision(False, None, f"policy denied action '{access.action}' for {shown}")
        matched = self._cached_evaluate(
            actor, access.action, self._is_protected(access.branch), self._is_protected(access.target_branch)
        )
        if matched is not None:
            return Decision(True, matched, f"policy allowed action '{access.action}' for actor '{actor}'")
        source = _branch_phrase(" on branch", access.branch)
        target = _branch_phrase(" targeting branch", access.target_branch)
        return Decision(
            False, None, f"policy denied action '{access.action}'{source}{target} for actor '{actor}'"
        )

    def may_allow(self, actor: str | None, action: str) -> bool:
        """Return whether a rule allows the action to the actor on any branch.

        Decides before the branch is known, so that the body of a request need not be read. False is final.
        """
        groups = () if actor is None else self._groups.get(actor, ())
        return any(rule.group in groups and action in rule.actions for rule in self.bundle.rules)

    @cached_property
    def _cached_evaluate(self) -> Callable[[str, str, bool | None, bool | None], str | None]:
        # Bundles are immutable, so results can be cached. An evaluation by Cedar takes longer than many reads.
        # Rules do not compare names of branches, so that short-lived branches share one result.
        return lru_cache(_CACHED_RESULTS)(self._evaluate)

    def _evaluate(self, actor: str, action: str, branch: bool | None, target: bool | None) -> str | None:
        """Return the id of the rule that allows an action, None if no rule does.

        `branch` and `target` say whether the named branches are protected. None is no branch.
        """
        request = {
            "principal": _reference("Actor", actor),
            "action": _reference("Action", action),
            "resource": self._resource,
            "context": {
                "has_branch": branch is not None,
                "branch_is_protected": bool(branch),
                "has_target_branch": target is not None,
                "target_branch_is_protected": bool(target),
            },
        }
        result = cedarpy.is_authorized(request, self._policies, self._entities(actor))
        if not result.allowed:
            return None
        return min(self._ids[int(reason.removeprefix("policy"))] for reason in result.diagnostics.reasons)

    def _is_protected(self, branch: str | None) -> bool | None:
        return None if branch is None else branch in self.bundle.protected_branches

    @property
    def _resource(self) -> dict[str, str]:
        return _reference("Server", "root") if self.graph_id is None else _reference("Graph", self.graph_id)

    @cached_property
    def cedar(self) -> tuple[str, ...]:
        """The rules as Cedar policies, one for each rule and action."""
        return tuple(_cedar_policies(self.bundle.rules, self._resource))

    @cached_property
    def _policies(self) -> cedarpy.PolicySet:
        return cedarpy.PolicySet.from_str("\n".join(self.cedar))

    @cached_property
    def _ids(self) -> tuple[str, ...]:
        """The rule id of each Cedar policy. Cedar numbers policies in the order of the text."""
        return tuple(rule.id for rule in self.bundle.rules for _ in rule.actions)

    @cached_property
    def _groups(self) -> Mapping[str, list[str]]:
        """The groups of each actor."""
        found: dict[str, list[str]] = {}
        for name, members in self.bundle.groups.items():
            # An actor that is listed twice in a group is in it once.
            for actor in dict.fromkeys(members):
                found.setdefault(actor, []).append(name)
        return found

    def _entities(self, actor: str) -> cedarpy.Entities:
        # Only this actor: Cedar takes milliseconds to load thousands of entities.
        return cedarpy.Entities.from_json_str(json.dumps([_entity("Actor", actor, self._groups[actor])]))


def _cedar_policies(rules: tuple[Rule, ...], resource: Mapping[str, str]) -> Iterator[str]:
    for rule in rules:
        for action in rule.actions:
            yield (
                f"@id({_quoted(f'{rule.id}:{action}')})\n"
                f"permit (principal in {_uid('Group', rule.group)}, action == {_uid('Action', action)},"
                f" resource == {resource['type']}::{_quoted(resource['id'])}){_condition(rule)};"
            )


def _condition(rule: Rule) -> str:
    for name, scope in (("branch", rule.branch_scope), ("target_branch", rule.target_branch_scope)):
        if scope == "protected":
            return f"\nwhen {{ context.has_{name} && context.{name}_is_protected }}"
        if scope == "unprotected":
            return f"\nwhen {{ context.has_{name} && !context.{name}_is_protected }}"
    return ""


def _reference(kind: str, id_: str) -> dict[str, str]:
    """An entity reference as JSON data."""
    return {"type": f"Omnigraph::{kind}", "id": id_}


def _uid(kind: str, id_: str) -> str:
    """An entity reference in the text of a Cedar policy."""
    return f"Omnigraph::{kind}::{_quoted(id_)}"


def _quoted(text: str) -> str:
    """A Cedar string literal. Special characters are escaped, so the text cannot end the literal."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def _entity(kind: str, id_: str, groups: list[str]) -> dict[str, Any]:
    return {
        "uid": _reference(kind, id_),
        "attrs": {},
        "parents": [_reference("Group", name) for name in groups],
    }


def _branch_phrase(words: str, branch: str | None) -> str:
    return "" if branch is None else f"{words} '{branch}'"
