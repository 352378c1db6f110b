"""The gate: one decision for one actor, action and branch, made by Cedar."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import cedarpy

from omnigraph.errors import InvalidInput, PermissionDenied
from omnigraph.policy.bundle import PolicyBundle, Rule

_KEPT_DECISIONS = 1_024


@dataclass(frozen=True, slots=True)
class Access:
    """What somebody wants to do. `branch` is what is read or written, or the source; `target_branch` the target.

    Both are as branches are stored: one that is spelled with spaces around it must not pass for another.

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
    """Whether it is allowed, by which rule, and the sentence that says so."""

    allowed: bool
    matched_rule_id: str | None
    message: str


@dataclass(frozen=True)
class Gate:
    """A bundle as it decides about one resource: a graph by its id, or the server.

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

    def prepare(self) -> Gate:
        """The gate itself, with everything made that decisions need; `InvalidInput` when Cedar refuses the rules.

        Otherwise the first decision makes it, which is slow where there are many rules or actors.
        """
        try:
            _ = self._policies
        except ValueError as error:
            raise InvalidInput(f"the rules cannot be used: {error}") from error
        _ = self._groups, self._ids
        return self

    def check(self, actor: str | None, access: Access) -> None:
        """Return when it is allowed, else raise `PermissionDenied`."""
        decision = self.decide(actor, access)
        if not decision.allowed:
            raise PermissionDenied(
                decision.message,
                details={
                    "actor": actor,
                    "action": access.action,
                    "branch": access.branch,
                    "target_branch": access.target_branch,
                },
            )

    def decide(self, actor: str | None, access: Access) -> Decision:
        """What the bundle says; of several rules that allow it the one with the smallest id is named."""
        return self._decided(actor, access)

    @cached_property
    def _decided(self) -> Callable[[str | None, Access], Decision]:
        # A bundle never changes its mind, and asking Cedar takes longer than many a read.
        return lru_cache(_KEPT_DECISIONS)(self._decide)

    def _decide(self, actor: str | None, access: Access) -> Decision:
        if actor is None or actor not in self._groups:
            shown = "no actor" if actor is None else f"unknown actor '{actor}'"
            return Decision(False, None, f"policy denied action '{access.action}' for {shown}")
        request = {
            "principal": _named("Actor", actor),
            "action": _named("Action", access.action),
            "resource": self._resource,
            "context": self._context(access),
        }
        result = cedarpy.is_authorized(request, self._policies, self._entities(actor))
        if not result.allowed:
            places = _place(" on branch", access.branch) + _place(" targeting branch", access.target_branch)
            return Decision(
                False, None, f"policy denied action '{access.action}'{places} for actor '{actor}'"
            )
        matched = min(self._ids[int(reason.removeprefix("policy"))] for reason in result.diagnostics.reasons)
        return Decision(True, matched, f"policy allowed action '{access.action}' for actor '{actor}'")

    def _context(self, access: Access) -> dict[str, Any]:
        protected = self.bundle.protected_branches
        return {
            "has_branch": access.branch is not None,
            "branch": access.branch or "",
            "branch_is_protected": access.branch in protected,
            "has_target_branch": access.target_branch is not None,
            "target_branch": access.target_branch or "",
            "target_branch_is_protected": access.target_branch in protected,
        }

    @property
    def _resource(self) -> dict[str, str]:
        return _named("Server", "root") if self.graph_id is None else _named("Graph", self.graph_id)

    @cached_property
    def cedar(self) -> tuple[str, ...]:
        """The rules as Cedar policies, one for each rule and action."""
        return tuple(_written(self.bundle.rules, self._resource))

    @cached_property
    def _policies(self) -> cedarpy.PolicySet:
        return cedarpy.PolicySet.from_str("\n".join(self.cedar))

    @cached_property
    def _ids(self) -> tuple[str, ...]:
        """The rule of each policy; Cedar counts policies in the order of the text."""
        return tuple(rule.id for rule in self.bundle.rules for _ in rule.actions)

    @cached_property
    def _groups(self) -> Mapping[str, list[str]]:
        """The groups of each actor."""
        found: dict[str, list[str]] = {}
        for name, members in self.bundle.groups.items():
            # Somebody who is named twice in a group is in it once.
            for actor in dict.fromkeys(members):
                found.setdefault(actor, []).append(name)
        return found

    def _entities(self, actor: str) -> cedarpy.Entities:
        # Nobody else has a part in the decision, and Cedar takes milliseconds to look at thousands.
        return cedarpy.Entities.from_json_str(json.dumps([_entity("Actor", actor, self._groups[actor])]))


def _written(rules: tuple[Rule, ...], resource: Mapping[str, str]) -> Iterator[str]:
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


def _named(kind: str, id_: str) -> dict[str, str]:
    """An entity as data."""
    return {"type": f"Omnigraph::{kind}", "id": id_}


def _uid(kind: str, id_: str) -> str:
    """An entity in the text of a policy."""
    return f"Omnigraph::{kind}::{_quoted(id_)}"


def _quoted(text: str) -> str:
    """A text in Cedar; whatever it holds stays inside its quotes."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def _entity(kind: str, id_: str, groups: list[str]) -> dict[str, Any]:
    return {
        "uid": _named(kind, id_),
        "attrs": {},
        "parents": [_named("Group", name) for name in groups],
    }


def _place(words: str, branch: str | None) -> str:
    return "" if branch is None else f"{words} '{branch}'"
