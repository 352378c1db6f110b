"""A policy bundle: groups of actors, protected branches, and rules that allow actions.

An action that no rule allows is denied. Bundles are read from plain data; callers parse files first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NoReturn, TypeAlias

from omnigraph.errors import InvalidInput

Scope: TypeAlias = Literal["any", "protected", "unprotected"]
Binding: TypeAlias = Literal["graph", "cluster"]

BRANCH_ACTIONS = ("read", "export", "change")
TARGET_ACTIONS = ("schema_apply", "branch_create", "branch_delete", "branch_merge")
PLAIN_ACTIONS = ("admin", "invoke_query")
SERVER_ACTIONS = ("graph_list",)
ACTIONS = (*BRANCH_ACTIONS, *TARGET_ACTIONS, *PLAIN_ACTIONS, *SERVER_ACTIONS)

_SCOPES: tuple[Scope, ...] = ("any", "protected", "unprotected")
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Rule:
    """One permission: the actions that a group may perform. Without a scope it applies to every branch."""

    id: str
    group: str
    actions: tuple[str, ...]
    branch_scope: Scope | None = None
    target_branch_scope: Scope | None = None


@dataclass(frozen=True)
class PolicyBundle:
    """The complete policy of one graph, or of the server."""

    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    protected_branches: frozenset[str] = frozenset()
    rules: tuple[Rule, ...] = ()

    @cached_property
    def actors(self) -> frozenset[str]:
        """The members of all groups."""
        return frozenset(actor for members in self.groups.values() for actor in members)


def read_bundle(document: Any, *, binding: Binding | None = None) -> PolicyBundle:
    """Parse and validate a bundle; raise `InvalidInput` with the first error.

    `binding` is what the bundle applies to. A bundle has rules for the server or rules for graphs, not both.

    >>> bundle = read_bundle({
    ...     "version": 1,
    ...     "groups": {"team": ["act-ann"]},
    ...     "rules": [{"id": "r", "allow": {"actors": {"group": "team"}, "actions": ["read"]}}],
    ... })
    >>> bundle.rules[0].actions
    ('read',)
    """
    found = read_members(document, "a policy", ("version", "groups", "protected_branches", "rules"))
    if not is_version(found.get("version")):
        _refuse(f"policy version must be {_VERSION}")
    groups = dict(_groups(found.get("groups", {})))
    protected = _texts(found.get("protected_branches", []), "protected_branches")
    if not all(name.strip() for name in protected):
        _refuse("protected branch names must not be blank")
    rules = tuple(_rules(found.get("rules", []), groups))
    for rule in rules:
        _check_binding(rule, binding)
    return PolicyBundle(groups, frozenset(name.strip() for name in protected), rules)


def _groups(document: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not isinstance(document, Mapping):
        _refuse("policy groups must be a mapping from names to lists of actors")
    for name, members in document.items():
        if not isinstance(name, str) or not name.strip():
            _refuse("policy group names must not be blank")
        _check_unicode(name, "a policy group name")
        actors = _texts(members, f"policy group '{name}'")
        if not actors:
            _refuse(f"policy group '{name}' must not be empty")
        if not all(actor.strip() for actor in actors):
            _refuse(f"policy group '{name}' contains a blank actor id")
        yield name, tuple(actor.strip() for actor in actors)


def _rules(document: Any, groups: Mapping[str, tuple[str, ...]]) -> Iterator[Rule]:
    if not isinstance(document, list):
        _refuse("policy rules must be a list")
    seen: set[str] = set()
    for item in document:
        found = read_members(item, "a policy rule", ("id", "allow"))
        id_ = found.get("id")
        if not isinstance(id_, str) or not id_.strip():
            _refuse("policy rule ids must not be blank")
        _check_unicode(id_, "a policy rule id")
        if id_ in seen:
            _refuse(f"duplicate policy rule id '{id_}'")
        seen.add(id_)
        yield _rule(id_, found.get("allow"), groups)


def _rule(id_: str, document: Any, groups: Mapping[str, tuple[str, ...]]) -> Rule:
    members = ("actors", "actions", "branch_scope", "target_branch_scope")
    allow = read_members(document, f"policy rule '{id_}' allow", members)
    group = read_members(allow.get("actors"), f"policy rule '{id_}' actors", ("group",)).get("group")
    if not isinstance(group, str) or not group.strip():
        _refuse(f"policy rule '{id_}' must reference a non-blank group")
    if group not in groups:
        _refuse(f"policy rule '{id_}' references unknown group '{group}'")
    actions = _texts(allow.get("actions", []), f"policy rule '{id_}' actions")
    if not actions:
        _refuse(f"policy rule '{id_}' must include at least one action")
    for action in actions:
        if action not in ACTIONS:
            _refuse(f"unknown policy action '{action}'")
    rule = Rule(
        id_,
        group,
        tuple(dict.fromkeys(actions)),
        _scope(id_, "branch_scope", allow.get("branch_scope")),
        _scope(id_, "target_branch_scope", allow.get("target_branch_scope")),
    )
    _check_scopes(rule)
    return rule


def _check_scopes(rule: Rule) -> None:
    if rule.branch_scope is not None and rule.target_branch_scope is not None:
        _refuse(f"policy rule '{rule.id}' may specify branch_scope or target_branch_scope, not both")
    allowed = (
        ("branch_scope", rule.branch_scope, BRANCH_ACTIONS),
        ("target_branch_scope", rule.target_branch_scope, TARGET_ACTIONS),
    )
    for name, scope, actions in allowed:
        odd = next((action for action in rule.actions if action not in actions), None)
        if scope is not None and odd is not None:
            _refuse(f"policy rule '{rule.id}' uses {name} with unsupported action '{odd}'")
    server = [action for action in rule.actions if action in SERVER_ACTIONS]
    if server and len(server) < len(rule.actions):
        _refuse(
            f"policy rule '{rule.id}' mixes the server-scoped action `{server[0]}` with per-graph actions;"
            " split into separate rules"
        )


def _check_binding(rule: Rule, binding: Binding | None) -> None:
    for_server = all(action in SERVER_ACTIONS for action in rule.actions)
    if binding == "cluster" and not for_server:
        _refuse(f"policy rule '{rule.id}' applies to graphs, but the bundle is bound to the cluster")
    if binding == "graph" and for_server:
        _refuse(f"policy rule '{rule.id}' applies to the server, but the bundle is bound to graphs")


def _scope(id_: str, name: str, value: Any) -> Scope | None:
    if value is None:
        return None
    for scope in _SCOPES:
        if value == scope:
            return scope
    _refuse(f"policy rule '{id_}' has an unknown {name} '{value}'; expected any, protected or unprotected")


def is_version(value: Any) -> bool:
    """Whether a document has the supported version. True and 1.0 equal 1 in Python but are not versions."""
    return type(value) is int and value == _VERSION


def read_members(document: Any, subject: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    """Return a mapping that has only known members; raise `InvalidInput` otherwise. Members are optional."""
    if not isinstance(document, Mapping):
        _refuse(f"{subject} must be a mapping with {', '.join(known)}")
    for name in document:
        if name not in known:
            _refuse(f"{subject} has an unknown member '{name}'; expected one of {', '.join(known)}")
    return document


def _texts(value: Any, subject: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        _refuse(f"{subject} must be a list of strings")
    for item in value:
        _check_unicode(item, subject)
    return value


def _check_unicode(text: str, subject: str) -> None:
    # YAML and JSON can contain lone surrogates, which Cedar rejects.
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(f"{subject} is not valid Unicode text")


def _refuse(message: str) -> NoReturn:
    raise InvalidInput(message, details={"policy": message})
