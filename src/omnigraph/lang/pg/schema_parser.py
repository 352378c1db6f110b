"""Parser of `.pg` texts: syntax, literals, and constructs that the AST cannot represent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

from omnigraph.lang.diagnostics import Diagnostics
from omnigraph.lang.lalr_parser import LalrParser, Token
from omnigraph.lang.literal_syntax import shorten, to_float, to_integer, unescape
from omnigraph.lang.parser_tables import SCHEMA_GRAMMAR, load_tables
from omnigraph.lang.parsing import parse_with_recovery
from omnigraph.lang.pg.schema_ast import (
    AnnotationDecl,
    BodyConstraint,
    Bounds,
    CardDecl,
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    Name,
    NodeDecl,
    PropertyDecl,
    SchemaFile,
)
from omnigraph.lang.schema import LiteralValue
from omnigraph.lang.source import Source, Span
from omnigraph.lang.suggestions import nearest_name, suggestion
from omnigraph.lang.types import BASE_TYPES, MAX_VECTOR_DIM, STRING, PropType, Scalar, vector

STARTS = frozenset({"interface", "node", "edge"})
MAX_VECTOR_DIGITS = 19
CONSTRAINT_NAMES = ("key", "unique", "index", "range", "check")

# Names of the terminals in messages, in the order in which messages list them.
TERMINAL_NAMES = {
    "_INTERFACE": "`interface`",
    "_NODE": "`node`",
    "_EDGE": "`edge`",
    "TYPE_NAME": "a type name (upper-case first letter)",
    "NAME": "a name (lower-case first letter)",
    "CONSTRAINT": "a name (lower-case first letter)",
    "_CARD": "a name (lower-case first letter)",
    "TYPE_WORD": "a type",
    "_ENUM": "a type",
    "_VECTOR": "a type",
    "ENUM_VALUE": "an enum value",
    "STRING": "a string",
    "INTEGER": "a number",
    "FLOAT": "a number",
    "MINUS": "`-`",
    "TRUE": "`true`",
    "FALSE": "`false`",
    "_IMPLEMENTS": "`implements`",
    "COLON": "`:`",
    "ARROW": "`->`",
    "DOTS": "`..`",
    "COMMA": "`,`",
    "EQUAL": "`=`",
    "NULLABLE": "`?`",
    "AT": "`@`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "$END": "the end of the file",
}

# Syntax of other languages that is a common mistake here.
HINTS = {
    (",", "RBRACE"): "properties need no separator",
    (";", "RBRACE"): "properties need no separator",
    (",", "_NODE"): "declarations need no separator",
    (";", "_NODE"): "declarations need no separator",
    ("#", "RBRACE"): "comments start with //",
    ("#", "_NODE"): "comments start with //",
    ("@", "LBRACE"): "annotations go before `implements`; interfaces take no annotations",
}
_MOVE_TO_BODY = "move it into the body, between the braces"


def parse_schema(source: Source) -> SchemaFile:
    """Parse a schema text, without resolving names or applying rules; `compile_schema` does that.

    Raises `LanguageError` with all syntax errors, at most one per declaration.
    """
    declarations, diagnostics = parse_with_recovery(
        _parser(), source, SchemaBuilder, STARTS, TERMINAL_NAMES, HINTS
    )
    diagnostics.raise_if_any()
    return SchemaFile(tuple(declarations))


@cache
def _parser() -> LalrParser:
    return LalrParser(load_tables(SCHEMA_GRAMMAR), SchemaBuilder)


@dataclass(frozen=True, slots=True)
class _Type:
    """A type and its span."""

    type: PropType
    span: Span


@dataclass(frozen=True, slots=True)
class _StrayAnnotation:
    """An annotation in a body that does not follow a property."""

    name: str
    span: Span


_HeaderItem: TypeAlias = AnnotationDecl | BodyConstraint | CardDecl
_Member: TypeAlias = PropertyDecl | BodyConstraint | _StrayAnnotation


class SchemaBuilder:
    """Builds declarations bottom-up and without recursion."""

    def __init__(self, report: Diagnostics) -> None:
        self._report = report

    # --- declarations ------------------------------------------------------------------------------------

    def file(self, _span: Span, children: list[Declaration]) -> list[Declaration]:
        return children

    def interface(self, _span: Span, children: list[Any]) -> InterfaceDecl:
        name, body = children
        properties: list[PropertyDecl] = []
        for member in body:
            if isinstance(member, PropertyDecl):
                properties.append(member)
            else:
                self._reject_in_interface(name, member, properties[-1].name if properties else None)
        return InterfaceDecl(str(name), tuple(properties), name.span)

    def node(self, _span: Span, children: list[Any]) -> NodeDecl:
        name, *header, body = children
        implements: tuple[Name, ...] = ()
        annotations: list[AnnotationDecl] = []
        for item in header:
            if isinstance(item, tuple):
                implements = item
            elif isinstance(item, AnnotationDecl):
                annotations.append(item)
            else:
                place = "" if item.name in ("range", "check") else "on node properties or "
                message = f"@{item.name} is only supported {place}as body constraint (node {name})"
                self._report.add(item.span, message, hint=_MOVE_TO_BODY)
        return NodeDecl(str(name), tuple(annotations), implements, self._members(body), name.span)

    def edge(self, _span: Span, children: list[Any]) -> EdgeDecl:
        name, source, target, *header = children
        body = header.pop() if header and isinstance(header[-1], list) else []
        card: CardDecl | None = None
        annotations: list[AnnotationDecl] = []
        for position, item in enumerate(header):
            if isinstance(item, AnnotationDecl):
                annotations.append(item)
            elif isinstance(item, BodyConstraint):
                kind = "" if item.name in ("key", "unique", "index") else " constraint"
                hint = _MOVE_TO_BODY if item.name in ("key", "unique", "index") else None
                message = f"@{item.name}{kind} is not supported on edges (edge {name})"
                self._report.add(item.span, message, hint=hint)
            elif position == 0:
                card = item
            else:
                self._report.add(
                    item.span, f"@card must be the first annotation and occur only once (edge {name})"
                )
        return EdgeDecl(
            str(name),
            _name(source),
            _name(target),
            card,
            tuple(annotations),
            self._members(body),
            name.span,
        )

    def implements(self, _span: Span, children: list[Token]) -> tuple[Name, ...]:
        return tuple(_name(token) for token in children)

    def card(self, span: Span, children: list[Token]) -> CardDecl:
        low, *high = (self._integer(token) for token in children)
        return CardDecl(low, high[0] if high else None, span)

    # --- members -----------------------------------------------------------------------------------------

    def body(self, _span: Span, children: list[Any]) -> list[_Member]:
        members: list[_Member] = []
        annotations: list[AnnotationDecl] = []
        # The grammar allows an annotation only after a property.
        for child in reversed(children):
            if isinstance(child, AnnotationDecl):
                annotations.append(child)
            elif annotations:
                members.append(replace(child, annotations=tuple(reversed(annotations))))
                annotations = []
            else:
                members.append(child)
        members.reverse()
        return members

    def property_head(self, _span: Span, children: list[Any]) -> PropertyDecl:
        name, kind = children
        return PropertyDecl(str(name), kind.type, (), name.span, kind.span)

    def constraint(self, span: Span, children: list[Any]) -> BodyConstraint:
        name, *arguments = children
        return BodyConstraint(str(name), tuple(arguments), span)

    def stray(self, span: Span, children: list[Any]) -> _StrayAnnotation:
        return _StrayAnnotation(str(children[0]), span)

    def annotation(self, span: Span, children: list[Any]) -> AnnotationDecl:
        name, *arguments = children
        value = arguments[0] if arguments else None
        return AnnotationDecl(str(name), value, tuple(arguments[1:]), span)

    def annotation_with_options(self, span: Span, children: list[Any]) -> AnnotationDecl:
        name, *options = children
        return AnnotationDecl(str(name), None, tuple(options), span)

    def option(self, _span: Span, children: list[Any]) -> tuple[str, LiteralValue]:
        name, value = children
        return str(name), value.text if isinstance(value, Name) else value

    def keyword_argument(self, _span: Span, children: list[Any]) -> tuple[str, LiteralValue]:
        name, value = children
        return str(name), value

    # --- types -------------------------------------------------------------------------------------------

    def property_type(self, span: Span, children: list[Any]) -> _Type:
        core, *nullable = children
        return _Type(core.optional if nullable else core, span)

    def list_type(self, span: Span, children: list[_Type]) -> PropType:
        (item,) = children
        message = _unsupported_item(item.type)
        if message:
            self._report.add(span, message)
            return replace(STRING, is_list=True)
        return replace(item.type, is_list=True)

    def enum_type(self, _span: Span, children: list[Token]) -> PropType:
        return replace(STRING, enum_values=tuple(str(token) for token in children))

    def vector_type(self, _span: Span, children: list[Token]) -> PropType:
        (token,) = children
        digits = token.lstrip("0") or "0"
        if len(digits) > MAX_VECTOR_DIGITS:
            # Python refuses to convert very long texts; shorter ones are checked with the other rules.
            message = f"Vector dimension {shorten(digits)} exceeds maximum supported {MAX_VECTOR_DIM}"
            self._report.add(token.span, message)
            return vector(1)
        return vector(int(digits))

    def base_type(self, _span: Span, children: list[Token]) -> PropType:
        (word,) = children
        scalar = BASE_TYPES.get(word)
        if scalar is None:
            known = [*BASE_TYPES, "Vector"]
            self._report.add(word.span, f"unknown type: {shorten(word)}", hint=suggestion(word, known))
            return STRING
        return PropType(scalar)

    # --- values ------------------------------------------------------------------------------------------

    def bounds_from(self, span: Span, children: list[int | float]) -> Bounds:
        low, *high = children
        return Bounds(low, high[0] if high else None, span)

    def bounds_to(self, span: Span, children: list[int | float]) -> Bounds:
        return Bounds(None, children[0], span)

    def number(self, span: Span, children: list[Token]) -> int | float:
        text = "".join(children)
        convert = to_float if children[-1].type == "FLOAT" else to_integer
        return convert(text, span, self._report)

    def name(self, _span: Span, children: list[Token]) -> Name:
        return _name(children[0])

    def literal(self, _span: Span, children: list[Token]) -> LiteralValue:
        (token,) = children
        match token.type:
            case "STRING":
                return unescape(token, token.span, self._report)
            case "INTEGER":
                return to_integer(token, token.span, self._report)
            case "FLOAT":
                return to_float(token, token.span, self._report)
            case _:
                return bool(token == "true")

    # --- rejected constructs -----------------------------------------------------------------------------

    def _integer(self, token: Token) -> int:
        return to_integer(token, token.span, self._report)

    def _members(self, body: Sequence[_Member]) -> tuple[PropertyDecl | BodyConstraint, ...]:
        members: list[PropertyDecl | BodyConstraint] = []
        for member in body:
            if isinstance(member, _StrayAnnotation):
                self._reject_stray(member)
            else:
                members.append(member)
        return tuple(members)

    def _reject_stray(self, stray: _StrayAnnotation) -> None:
        nearest = nearest_name(stray.name, CONSTRAINT_NAMES)
        hint = f"did you mean `@{nearest}`?" if nearest else "an annotation must directly follow its property"
        self._report.add(stray.span, f"unknown constraint: @{shorten(stray.name)}", hint=hint)

    def _reject_in_interface(
        self, interface: str, member: BodyConstraint | _StrayAnnotation, after: str | None
    ) -> None:
        if isinstance(member, _StrayAnnotation):
            self._reject_stray(member)
        elif after is not None and member.name in ("key", "unique", "index"):
            self._report.add(
                member.span,
                f"@{member.name} on {interface}.{after} does not accept a value",
                hint=f"write @{member.name} without arguments; interfaces have no body constraints",
            )
        else:
            self._report.add(
                member.span,
                f"@{member.name} constraint is not supported on interfaces (interface {interface})",
                hint="declare it on the nodes that implement the interface",
            )


def _name(token: Token) -> Name:
    return Name(str(token), token.span)


def _unsupported_item(item: PropType) -> str | None:
    """Return why the type cannot be the item type of a list, or None; the compiler rejects lists of Blob."""
    if item.is_list:
        return "list of lists is not supported"
    if item.is_enum:
        return "list of enum is not supported"
    if item.scalar is Scalar.VECTOR:
        return "list of Vector is not supported"
    if item.nullable:
        return "list items cannot be nullable"
    return None
