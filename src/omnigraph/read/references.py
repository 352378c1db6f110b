"""The variables and properties that parts of a query refer to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

from omnigraph.lang import ir


def walk(node: Any) -> Iterator[Any]:
    """Yield every node of an IR tree, the root first."""
    yield node
    if isinstance(node, tuple):
        for item in node:
            yield from walk(item)
    elif is_dataclass(node) and not isinstance(node, type):
        for item in fields(node):
            value = getattr(node, item.name)
            if isinstance(value, tuple) or is_dataclass(value):
                yield from walk(value)


@lru_cache(maxsize=4_096)
def variables_of(node: Any) -> frozenset[str]:
    """Return the variables that an expression, a predicate or a tuple of them refers to."""
    return frozenset(item.variable for item in walk(node) if isinstance(item, (ir.PropertyRef, ir.EntityRef)))


@lru_cache(maxsize=4_096)
def properties_of(node: Any) -> tuple[ir.PropertyRef, ...]:
    """Return the distinct properties that an expression or a predicate refers to."""
    return tuple(dict.fromkeys(item for item in walk(node) if isinstance(item, ir.PropertyRef)))


@lru_cache(maxsize=4_096)
def has_search(node: Any) -> bool:
    """Return whether an expression or a predicate contains a text search."""
    return any(isinstance(item, ir.TextMatch) for item in walk(node))


@lru_cache(maxsize=1_024)
def pattern_variables(pattern: tuple[ir.Step, ...]) -> frozenset[str]:
    """Return every variable that a pattern refers to, including those of inner patterns."""
    found: set[str] = set()
    for step in pattern:
        match step:
            case ir.NodeScan():
                found |= {step.variable} | variables_of(step.where)
            case ir.Expand():
                found |= {step.source, step.target}
                if step.edge_variable is not None:
                    found.add(step.edge_variable)
            case ir.Filter():
                found |= variables_of(step.predicate)
            case ir.AntiJoin() | ir.OptionalMatch():
                found |= pattern_variables(step.pattern)
    return frozenset(found)
