"""What a checker knows while it walks a query: names in scope, parameters, and where to report."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import NoReturn

from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.schema import EdgeType, NodeType, Property, Schema
from omnigraph.lang.source import Diagnostics, Source, Span, did_you_mean, nearest_name
from omnigraph.lang.types import PropType

RESERVED_PARAM = "__nanograph_now"


class Rejected(Exception):
    """The construct at hand is wrong and has been reported; the checker goes on with the next one."""


@dataclass(frozen=True, slots=True)
class VariableType:
    """What a variable stands for."""

    kind: ir.EntityKind
    type_name: str
    nullable: bool = False


class Scope:
    """The variables of a pattern. An inner scope sees the outer one; what it binds stays inside."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.own: dict[str, VariableType] = {}
        self.poisoned: set[str] = set()
        self.used_outer = False

    def find(self, name: str) -> VariableType | None:
        """The variable of that name, noting when it comes from outside."""
        if name in self.own:
            return self.own[name]
        if self.outer is None:
            return None
        found = self.outer.find(name)
        if found is not None:
            self.used_outer = True
        return found

    def is_poisoned(self, name: str) -> bool:
        """Whether an error already reported left the variable without a type."""
        if name in self.poisoned:
            return True
        poisoned_outside = self.outer is not None and self.outer.is_poisoned(name)
        self.used_outer |= poisoned_outside
        return poisoned_outside

    def names(self) -> list[str]:
        """Every name in sight."""
        return [*self.own, *(self.outer.names() if self.outer else [])]


class Context:
    """One query being checked."""

    def __init__(self, schema: Schema, source: Source) -> None:
        self.schema = schema
        self.diagnostics = Diagnostics(source, "type")
        self.params: dict[str, PropType] = {}
        self.reads: set[ir.EntityType] = set()
        self._anonymous = 0

    def reject(self, span: Span, code: str | None, message: str, hint: str | None = None) -> NoReturn:
        """Report an error and leave the construct at hand."""
        self.report(span, code, message, hint)
        raise Rejected

    def give_up(self) -> NoReturn:
        """Leave the construct at hand because a part of it has been rejected."""
        raise Rejected

    def report(self, span: Span, code: str | None, message: str, hint: str | None = None) -> None:
        """Report an error and go on."""
        self.diagnostics.add(span, message, code=code, hint=hint)

    def recovering(self) -> AbstractContextManager[None]:
        """Confine a rejection, which has been reported, to the construct inside."""
        return suppress(Rejected)

    def fresh_variable(self) -> str:
        """A name no source can write, because it begins with a digit, for ``$_``."""
        self._anonymous += 1
        return str(self._anonymous)

    def declare_params(self, params: tuple[ast.Param, ...]) -> tuple[ir.Param, ...]:
        """Take the query's parameters into scope."""
        for param in params:
            if param.name == RESERVED_PARAM:
                self.report(param.span, None, f"parameter name `${param.name}` is reserved")
            elif param.name == ast.ANONYMOUS:
                self.report(param.span, None, "`$_` stands for nothing and cannot be a parameter")
            elif param.name in self.params:
                self.report(param.span, None, f"parameter `${param.name}` is declared twice")
            self.params[param.name] = param.type
        return tuple(ir.Param(name, type_) for name, type_ in self.params.items())

    def node_type(self, name: str, span: Span) -> NodeType:
        """The node type of that name, or a rejection."""
        found = self.schema.node(name)
        if found is not None:
            return found
        known = [item.name for item in self.schema.nodes]
        hint = self.not_a_node_type(name)
        self.reject(
            span, "T1", f"unknown node type `{name}`{'' if hint else did_you_mean(name, known)}", hint
        )

    def not_a_node_type(self, name: str) -> str | None:
        """What to do with a name that the schema has, but not for a node type."""
        if any(item.name == name for item in self.schema.interfaces):
            names = ", ".join(f"`{item.name}`" for item in self.schema.nodes if name in item.implements)
            what = f"`{name}` is an interface"
            return f"{what}; name one of its node types: {names}" if names else f"{what} and no node has it"
        if any(item.name == name for item in self.schema.edges):
            edge = name[:1].lower() + name[1:]
            return f"`{name}` is an edge type; bind it in a traversal: `$a $w:{edge} $b`"
        return None

    def edge_type(self, name: str, span: Span) -> EdgeType:
        """The edge type of that name in any case, or a rejection."""
        found = self.schema.edge(name)
        if found is None:
            known = [item.name[:1].lower() + item.name[1:] for item in self.schema.edges]
            self.reject(span, "T4", f"unknown edge type `{name}`{did_you_mean(name, known)}")
        return found

    def property_of(self, bound: VariableType, name: str, span: Span, code: str) -> Property:
        """A property of what a variable stands for, or a rejection."""
        is_node = bound.kind == "node"
        owner = self.schema.node(bound.type_name) if is_node else self.schema.edge(bound.type_name)
        assert owner is not None
        found = owner.by_name.get(name)
        if found is None:
            hint = None
            if is_node and name == "id" and code == "T6":
                hint = "a bare variable in `return` gives the id"
            elif not is_node and name in ("src", "dst"):
                hint = "the variable at that end of the traversal is the node"
            tail = did_you_mean(name, owner.by_name)
            self.reject(span, code, f"{bound.kind} type `{owner.name}` has no property `{name}`{tail}", hint)
        return found

    def variable(self, scope: Scope, name: str, span: Span, code: str | None = "T6") -> VariableType:
        """What a variable stands for, or a rejection; silent when its binding was already rejected."""
        found = scope.find(name)
        if found is not None:
            return found
        if scope.is_poisoned(name):
            self.give_up()
        hint = f"`${name}` is a parameter and has no properties" if name in self.params else None
        tail = did_you_mean_variable(name, scope.names())
        self.reject(span, code, f"variable `${name}` is not bound{tail}", hint)

    def touch(self, kind: ir.EntityKind, type_name: str) -> None:
        """Note that the query reads a type."""
        self.reads.add(ir.EntityType(kind, type_name))


def did_you_mean_variable(wanted: str, known: list[str]) -> str:
    """The tail ``, did you mean `$x`?`` of a message, or nothing."""
    name = nearest_name(wanted, known)
    return f", did you mean `${name}`?" if name else ""


def as_nullable(bound: VariableType) -> VariableType:
    """The same variable seen from outside the optional pattern that bound it."""
    return replace(bound, nullable=True)


def sorted_entities(found: set[ir.EntityType]) -> tuple[ir.EntityType, ...]:
    """Nodes before edges, each by name: the one order of descriptors."""
    return tuple(sorted(found, key=lambda item: (item.kind != "node", item.type_name)))
