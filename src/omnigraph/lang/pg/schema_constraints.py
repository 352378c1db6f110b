"""Rules for body constraints and between the properties of a type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from omnigraph.lang.diagnostics import Diagnostics
from omnigraph.lang.pg.schema_ast import BodyConstraint, Bounds, EdgeDecl, Name, NodeDecl, PropertyDecl
from omnigraph.lang.pg.schema_patterns import pattern_problem
from omnigraph.lang.pg.schema_properties import ENDPOINT_WORDS, DeclaringType, unsupported_shape
from omnigraph.lang.schema import (
    Annotation,
    Check,
    Constraint,
    Index,
    Key,
    Property,
    Range,
    TypeKind,
    Unique,
    embedding_record_name,
)
from omnigraph.lang.source import Span
from omnigraph.lang.suggestions import suggestion
from omnigraph.lang.types import STRING, PropType, Scalar

_ON_COLUMNS: dict[str, type[Key | Unique | Index]] = {"key": Key, "unique": Unique, "index": Index}
_NODES_ONLY = ("range", "check")
# Constraints of an edge may name its endpoint columns, which are never null.
_ENDS: dict[str, PropType] = {"src": STRING, "dst": STRING}


class ConstraintCompiler:
    """Compiles the body constraints of a type.

    `complete` is false when an error may have removed properties; unknown properties are then not reported.
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
        """Return the valid constraints in source order, without duplicates."""
        compiled = (self._constraint(item) for item in declared)
        return tuple(dict.fromkeys(item for item in compiled if item is not None))

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
        valid = True
        for argument in decl.arguments:
            kind = self._lookup(decl, argument)
            if kind is None or not isinstance(argument, Name):
                valid = False
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
                valid = False
            columns.append(argument.text)
        return _ON_COLUMNS[decl.name](tuple(columns)) if valid else None

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
            message = f"@range on {place}: min ({bounds.low}) exceeds max ({bounds.high})"
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
        """Return the type of the property that an argument names; report an invalid argument and return None."""
        if not isinstance(argument, Name):
            span = argument.span if isinstance(argument, Bounds) else decl.span
            self._report.add(span, "expected property name in constraint")
            return None
        kind = self._types.get(argument.text)
        if kind is None and self._complete:
            self._report.add(
                argument.span,
                f"@{decl.name} on {self._owner.name} references unknown property '{argument.text}'",
                hint=self._endpoint_hint(argument.text) or suggestion(argument.text, self._types),
            )
        return kind

    def _endpoint_hint(self, name: str) -> str | None:
        if self._owner.kind != "edge" or name not in ENDPOINT_WORDS:
            return None
        return "the endpoints of an edge are named `src` and `dst` in constraints"


def check_single_key(
    kind: TypeKind, decl: NodeDecl | EdgeDecl, properties: Iterable[Property], report: Diagnostics
) -> None:
    """Reject a second key of a type, declared or inherited."""
    keys = [decl.span for item in properties if item.inherited and item.annotation("key")]
    for member in decl.members:
        if isinstance(member, PropertyDecl):
            keys.extend([item.span for item in member.annotations if item.name == "key"][:1])
        elif member.name == "key":
            keys.append(member.span)
    if len(keys) > 1:
        message = f"{kind} type {decl.name} has multiple @key constraints; only one is supported"
        report.add(keys[1], message)


def check_embeds(node: NodeDecl, properties: Iterable[Property], report: Diagnostics) -> None:
    """Check that the source of each embedding is a String property of the node."""
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


def embedding_records(
    node: NodeDecl, properties: Iterable[Property], report: Diagnostics
) -> Iterator[Property]:
    """Yield the property that records the text and the model of each vector that writes compute.

    The node does not declare them itself, so they count as inherited. A record is renamed with its vector.
    """
    names = {item.name for item in properties}
    for item in properties:
        if item.embed is None or item.embed.provider is None:
            continue
        name = embedding_record_name(item.name)
        if name in names:
            message = (
                f"property name '{node.name}.{name}' is reserved: it records how the vectors of "
                f"'{item.name}' were computed; choose another name"
            )
            report.add(_embed_span(node, item.name), message)
            continue
        hint = item.annotation("rename_from")
        renamed = () if hint is None else (Annotation("rename_from", embedding_record_name(str(hint.value))),)
        yield Property(name, STRING.optional, renamed, inherited=True)


def _embed_span(node: NodeDecl, name: str) -> Span:
    """Return the span of the ``@embed`` of a property, or of the node name when the property is inherited."""
    for member in node.members:
        if isinstance(member, PropertyDecl) and member.name == name:
            return next((item.span for item in member.annotations if item.name == "embed"), member.span)
    return node.span
