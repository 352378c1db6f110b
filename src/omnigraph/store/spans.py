"""Spans of operations for distributed tracing. Without a factory a span costs nothing and imports no library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

Attributes: TypeAlias = Mapping[str, str | int]
SpanFactory: TypeAlias = Callable[[str, Attributes], AbstractContextManager[Any]]

_NO_SPAN: AbstractContextManager[Any] = nullcontext()
_factory: SpanFactory | None = None


def set_span_factory(factory: SpanFactory | None) -> None:
    """Set the function that starts spans in this process; None turns tracing off."""
    global _factory
    _factory = factory


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """Return a context that is recorded as a span.

    >>> with span("query", graph="team"):
    ...     pass
    """
    return _NO_SPAN if _factory is None else _factory(name, attributes)
