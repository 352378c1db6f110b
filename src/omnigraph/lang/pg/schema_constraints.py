"""The rules of body constraints, and those between the properties of one type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph.lang.pg.schema_ast import BodyConstraint, Bounds, Name, NodeDecl, PropertyDecl
from omnigraph.lang.pg.schema_patterns import pattern_problem
from omnigraph.lang.pg.schema_properties import DeclaringType, unsupported_shape
from omnigraph.lang.schema import Check, Constraint, Index, Key, Property, Range, Unique
from omnigraph.lang.source import Diagnostics, Span, suggestion
from omnigraph.lang.types import STRING, PropType, Scalar

_ON_COLUMNS: dict[str, type[Key | Unique | Index]] = {"key": Key, "unique": Unique, "index": Index}
_NODES_ONLY = ("key", "range", "check")
# An edge may name its physical ends; they are never null.
_ENDS: dict[str, PropType] = {"src": STRING, "dst": STRING}


class ConstraintCompiler:
    """Checks the body constraints of one type against its properties.

    `complete` is false when properties may be missing because of another error; then a reference to an
    unknown property is not reported on top of it.
    """

    def __init__(
        self,
        owner: DeclaringType,
        properties: Iterable[Property],
        report: Diagnostics,
        *,
        complete: bool = True,
    ) -> None:
        self._owner = owner
        self._report = report
        self._complete = complete
        self._types: Mapping[str, PropType] = {item.name: item.type for item in properties}
        if owner.kind == "edge":
            self._types = {**_ENDS, **self._types}

    def compile(self, declared: Iterable[BodyConstraint]) -> tuple[Constraint, ...]:
        """The constraints that pass, in source order and without repeats."""
        found = (self._constraint(item) for item in declared)
        return tuple(dict.fromkeys(item for item in found if item is not None))

    def _constraint(self, decl: BodyConstraint) -> Constraint | None:
        if self._owner.kind == "edge" and decl.name in _NODES_ONLY:
            message = f"@{decl.name} constraint is not supported on edges (edge {self._owner.name})"
            self._report.add(decl.span, message)
            return None
        if decl.name == "range":
            return self._range(decl)
        if decl.name == "check":
            return self._check(decl)
        return self._on_columns(decl)

    def _on_columns(self, decl: BodyConstraint) -> Constraint | None:
        columns: list[str] = []
        fine = True
        for argument in decl.arguments:
            kind = self._lookup(decl, argument)
            if kind is None or not isinstance(argument, Name):
                fine = False
                continue
            place = f"{self._owner.name}.{argument.text}"
            shape = unsupported_shape(decl.name, kind)
            problem = None
            if argument.text in columns:
                problem = f"@{decl.name} on {self._owner.name} names property '{argument.text}' twice"
            elif shape:
                problem = f"@{decl.name} is not supported on {shape} property {place}"
            elif decl.name == "key" and kind.nullable:
                problem = f"@key property {place} cannot be nullable"
            if problem:
                self._report.add(argument.span, problem)
                fine = False
            columns.append(argument.text)
        return _ON_COLUMNS[decl.name](tuple(columns)) if fine else None

    def _range(self, decl: BodyConstraint) -> Range | None:
        if len(decl.arguments) != 2:
            message = "@range requires property name and bounds: @range(prop, min..max)"
            self._report.add(decl.span, message)
            return None
        name, bounds = decl.arguments
        if not isinstance(bounds, Bounds):
            span = bounds.span if isinstance(bounds, Name) else decl.span
            self._report.add(span, "expected range bounds (min..max) in @range constraint")
            return None
        kind = self._lookup(decl, name)
        if kind is None or not isinstance(name, Name):
            return None
        place = f"{self._owner.name}.{name.text}"
        if not kind.is_numeric:
            self._report.add(name.span, f"@range on {place} requires a numeric type, got {kind}")
            return None
        if bounds.low is not None and bounds.high is not None and bounds.low > bounds.high:
            message = f"@range on {place} has min ({bounds.low}) above max ({bounds.high})"
            self._report.add(bounds.span, message)
            return None
        return Range(name.text, bounds.low, bounds.high)

    def _check(self, decl: BodyConstraint) -> Check | None:
        name = decl.arguments[0]
        pattern = decl.arguments[1] if len(decl.arguments) == 2 else None
        if not isinstance(pattern, str):
            message = '@check requires property name and pattern: @check(prop, "regex")'
            self._report.add(decl.span, message)
            return None
        kind = self._lookup(decl, name)
        if kind is None or not isinstance(name, Name):
            return None
        place = f"{self._owner.name}.{name.text}"
        if kind.scalar is not Scalar.STRING or kind.is_list:
            self._report.add(name.span, f"@check on {place} requires String type, got {kind}")
            return None
        problem = pattern_problem(pattern)
        if problem:
            self._report.add(decl.span, f"@check on {place} has an invalid pattern: {problem}")
            return None
        return Check(name.text, pattern)

    def _lookup(self, decl: BodyConstraint, argument: object) -> PropType | None:
        """The type of the property that an argument names; what is wrong with it is reported."""
        if not isinstance(argument, Name):
            span = argument.span if isinstance(argument, Bounds) else decl.span
            self._report.add(span, "expected property name in constraint")
            return None
        kind = self._types.get(argument.text)
        if kind is None and self._complete:
            self._report.add(
                argument.span,
                f"@{decl.name} on {self._owner.name} references unknown property '{argument.text}'",
                hint=suggestion(argument.text, self._types),
            )
        return kind


def check_single_key(node: NodeDecl, properties: Iterable[Property], report: Diagnostics) -> None:
    """Refuse a node with more than one key, wherever its keys come from, at the second one."""
    keys = [node.span for item in properties if item.inherited and item.annotation("key")]
    for member in node.members:
        if isinstance(member, PropertyDecl):
            keys.extend([item.span for item in member.annotations if item.name == "key"][:1])
        elif member.name == "key":
            keys.append(member.span)
    if len(keys) > 1:
        message = f"node type {node.name} has multiple @key constraints; only one is supported"
        report.add(keys[1], message)


def check_embeds(node: NodeDecl, properties: Iterable[Property], report: Diagnostics) -> None:
    """Check that each embedding of a node is that of one of its String properties."""
    types = {item.name: item.type for item in properties}
    for item in properties:
        if item.embed is None:
            continue
        source = item.embed.source
        kind = types.get(source)
        if kind is None:
            report.add(
                _embed_span(node, item.name),
                f"@embed on {node.name}.{item.name} references unknown source property {source}",
                hint=suggestion(source, types),
            )
        elif kind.scalar is not Scalar.STRING or kind.is_list:
            message = f"@embed source property {node.name}.{source} must be String"
            report.add(_embed_span(node, item.name), message)


def _embed_span(node: NodeDecl, name: str) -> Span:
    """Where the node says that a property is an embedding; its own name if an interface says so."""
    for member in node.members:
        if isinstance(member, PropertyDecl) and member.name == name:
            return next((item.span for item in member.annotations if item.name == "embed"), member.span)
    return node.span
