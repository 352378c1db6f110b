"""The abstract syntax tree (AST) of a `.pg` text, before rules are applied. Equality ignores spans."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from omnigraph.lang.schema import LiteralValue
from omnigraph.lang.source import NOWHERE, Span
from omnigraph.lang.types import PropType


def _span() -> Span:
    return field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A bare identifier used as an argument."""

    text: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class AnnotationDecl:
    """``@name``, ``@name(value)``, ``@name(value, key=literal)`` or ``@name(option: value)``."""

    name: str
    value: LiteralValue | Name | None = None
    kwargs: tuple[tuple[str, LiteralValue], ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Bounds:
    """``low..high`` of a ``@range``; None for a missing side."""

    low: int | float | None
    high: int | float | None
    span: Span = _span()


Argument: TypeAlias = Bounds | Name | LiteralValue


@dataclass(frozen=True, slots=True)
class BodyConstraint:
    """``@key(…)``, ``@unique(…)``, ``@index(…)``, ``@range(…)`` or ``@check(…)`` in a body."""

    name: str
    arguments: tuple[Argument, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class PropertyDecl:
    """``name: Type @annotation …``. Enum values are in source order; the compiler sorts them."""

    name: str
    type: PropType
    annotations: tuple[AnnotationDecl, ...] = ()
    span: Span = _span()
    type_span: Span = _span()


@dataclass(frozen=True, slots=True)
class CardDecl:
    """``@card(min..max)`` of an edge header."""

    min: int
    max: int | None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class InterfaceDecl:
    """``interface Name { … }``."""

    name: str
    properties: tuple[PropertyDecl, ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class NodeDecl:
    """``node Name @annotation … implements A, B { … }``."""

    name: str
    annotations: tuple[AnnotationDecl, ...] = ()
    implements: tuple[Name, ...] = ()
    members: tuple[PropertyDecl | BodyConstraint, ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class EdgeDecl:
    """``edge Name: Source -> Target @card(…) @annotation … { … }``."""

    name: str
    source: Name
    target: Name
    card: CardDecl | None = None
    annotations: tuple[AnnotationDecl, ...] = ()
    members: tuple[PropertyDecl | BodyConstraint, ...] = ()
    span: Span = _span()


Declaration: TypeAlias = InterfaceDecl | NodeDecl | EdgeDecl


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """All declarations of a text, in source order. The span of a declaration covers its name only."""

    declarations: tuple[Declaration, ...] = ()
