"""State of the type checker: variables in scope, parameters and diagnostics."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import NoReturn

from omnigraph.lang import ir
from omnigraph.lang.diagnostics import Diagnostics
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.schema import EdgeType, NodeType, Property, Schema
from omnigraph.lang.source import Source, Span
from omnigraph.lang.suggestions import did_you_mean, nearest_name
from omnigraph.lang.types import PropType

RESERVED_PARAM = "__nanograph_now"


class Rejected(Exception):
    """The current construct has an error that is already reported; the checker continues with the next one."""


@dataclass(frozen=True, slots=True)
class VariableType:
    """The node or edge type that a variable is bound to."""

    kind: ir.EntityKind
    type_name: str
    nullable: bool = False


class Scope:
    """Variables of a pattern. An inner scope sees the outer one; its own variables are not visible outside."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.own: dict[str, VariableType] = {}
        self.poisoned: set[str] = set()
        self.used_outer = False

    def find(self, name: str) -> VariableType | None:
        """Return the type of a variable, or None; record whether it is bound in the outer scope."""
        if name in self.own:
            return self.own[name]
        if self.outer is None:
            return None
        outer = self.outer.find(name)
        if outer is not None:
            self.used_outer = True
        return outer

    def is_poisoned(self, name: str) -> bool:
        """Return whether the variable has no type because of an error that is already reported."""
        if name in self.poisoned:
            return True
        poisoned_outside = self.outer is not None and self.outer.is_poisoned(name)
        self.used_outer |= poisoned_outside
        return poisoned_outside

    def names(self) -> list[str]:
        """Return all names in scope."""
        return [*self.own, *(self.outer.names() if self.outer else [])]


class Context:
    """State of the check of one query."""

    def __init__(self, schema: Schema, source: Source) -> None:
        self.schema = schema
        self.diagnostics = Diagnostics(source, "type")
        self.params: dict[str, PropType] = {}
        self.reads: set[ir.EntityType] = set()
        self.writes: set[ir.EntityType] = set()
        self.fusion_depth = ir.FUSION_DEPTH
        self._anonymous = 0

    def reject(self, span: Span, code: str | None, message: str, hint: str | None = None) -> NoReturn:
        """Report an error and abandon the current construct."""
        self.report(span, code, message, hint)
        raise Rejected

    def abandon(self) -> NoReturn:
        """Abandon the current construct because a part of it was rejected."""
        raise Rejected

    def report(self, span: Span, code: str | None, message: str, hint: str | None = None) -> None:
        """Report an error and continue with the current construct."""
        self.diagnostics.add(span, message, code=code, hint=hint)

    def recovering(self) -> AbstractContextManager[None]:
        """Return a context manager that ends a rejection, so that checking continues after its block."""
        return suppress(Rejected)

    def fresh_variable(self) -> str:
        """Return a new name for ``$_``; it starts with a digit, so that it cannot occur in a source text."""
        self._anonymous += 1
        return str(self._anonymous)

    def declare_params(self, params: tuple[ast.Param, ...]) -> tuple[ir.Param, ...]:
        """Add the parameters of the query to the scope."""
        for param in params:
            if param.name == RESERVED_PARAM:
                self.report(param.span, None, f"parameter name `${param.name}` is reserved")
            elif param.name == ast.ANONYMOUS:
                self.report(param.span, None, "`$_` is anonymous and cannot be a parameter")
            elif param.name in self.params:
                self.report(param.span, None, f"duplicate parameter `${param.name}`")
            self.params[param.name] = param.type
        return tuple(ir.Param(name, type_) for name, type_ in self.params.items())

    def node_type(self, name: str, span: Span) -> NodeType:
        """Return the node type of that name, or reject it."""
        node = self.schema.node(name)
        if node is not None:
            return node
        known = [item.name for item in self.schema.nodes]
        hint = self.not_a_node_type(name)
        self.reject(
            span, "T1", f"unknown node type `{name}`{'' if hint else did_you_mean(name, known)}", hint
        )

    def not_a_node_type(self, name: str) -> str | None:
        """Return a hint for the name of an interface or edge type that is used as a node type, or None."""
        if any(item.name == name for item in self.schema.interfaces):
            names = ", ".join(f"`{item.name}`" for item in self.schema.nodes if name in item.implements)
            if not names:
                return f"`{name}` is an interface that no node type implements"
            return f"`{name}` is an interface; use a node type that implements it: {names}"
        if any(item.name == name for item in self.schema.edges):
            edge = name[:1].lower() + name[1:]
            return f"`{name}` is an edge type; bind it in a traversal: `$a $w:{edge} $b`"
        return None

    def edge_type(self, name: str, span: Span) -> EdgeType:
        """Return the edge type of that name, which is case-insensitive, or reject it."""
        edge = self.schema.edge(name)
        if edge is None:
            known = [item.name[:1].lower() + item.name[1:] for item in self.schema.edges]
            self.reject(span, "T4", f"unknown edge type `{name}`{did_you_mean(name, known)}")
        return edge

    def property_of(self, bound: VariableType, name: str, span: Span, code: str) -> Property:
        """Return a property of the type of a variable, or reject it."""
        is_node = bound.kind == "node"
        owner = self.schema.node(bound.type_name) if is_node else self.schema.edge(bound.type_name)
        assert owner is not None
        prop = owner.by_name.get(name)
        if prop is None:
            hint = None
            if is_node and name == "id" and code == "T6":
                hint = "return the variable itself to get the id"
            elif not is_node and name in ("src", "dst"):
                hint = "use the variable at that end of the traversal"
            tail = did_you_mean(name, owner.by_name)
            self.reject(span, code, f"{bound.kind} type `{owner.name}` has no property `{name}`{tail}", hint)
        return prop

    def variable(self, scope: Scope, name: str, span: Span, code: str | None = "T6") -> VariableType:
        """Return the type of a variable, or reject it; without a report when its binding was rejected."""
        bound = scope.find(name)
        if bound is not None:
            return bound
        if scope.is_poisoned(name):
            self.abandon()
        hint = f"`${name}` is a parameter and has no properties" if name in self.params else None
        tail = did_you_mean_variable(name, scope.names())
        self.reject(span, code, f"variable `${name}` is not bound{tail}", hint)

    def record_read(self, kind: ir.EntityKind, type_name: str) -> None:
        """Record that the query reads a type."""
        self.reads.add(ir.EntityType(kind, type_name))


def did_you_mean_variable(name: str, known: list[str]) -> str:
    """Return ``; did you mean `$x`?`` to end a message with, or an empty string."""
    nearest = nearest_name(name, known)
    return f"; did you mean `${nearest}`?" if nearest else ""


def as_nullable(bound: VariableType) -> VariableType:
    """Return the type of a variable outside the optional pattern that binds it."""
    return replace(bound, nullable=True)


def sorted_entities(entities: set[ir.EntityType]) -> tuple[ir.EntityType, ...]:
    """Return entity types in the order of descriptors: nodes before edges, each by name."""
    return tuple(sorted(entities, key=lambda item: (item.kind != "node", item.type_name)))
