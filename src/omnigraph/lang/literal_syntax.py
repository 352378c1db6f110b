"""Reading and writing of literals, in the syntax that both languages share."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from omnigraph.lang.diagnostics import Diagnostics
from omnigraph.lang.source import Span

MIN_INTEGER = -(2**63)
MAX_INTEGER = 2**64 - 1

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_UNESCAPES = {value: f"\\{char}" for char, value in _ESCAPES.items()}


def unescape(literal: str, span: Span, diagnostics: Diagnostics) -> str:
    """Return the value of a string literal that is given with its quotes.

    Unsupported escape sequences are reported at their position. Unpaired surrogates are reported too, because
    no encoding can store them.
    """
    for match in _SURROGATE.finditer(literal):
        at = span.start + match.start()
        message = f"string contains an unpaired surrogate: {_visible(match.group())}"
        diagnostics.add(Span(at, at + 1), message)

    def replace(match: re.Match[str]) -> str:
        char = match.group(1)
        if char in _ESCAPES:
            return _ESCAPES[char]
        at = span.start + match.start()
        diagnostics.add(Span(at, at + 2), f"unsupported escape sequence: \\{_visible(char)}")
        return ""

    return _ESCAPE.sub(replace, literal)[1:-1]


def quote(value: str) -> str:
    """Return the string literal of a value.

    >>> print(quote('say "hi"'))
    "say \\"hi\\""
    """
    return f'"{"".join(_UNESCAPES.get(char, char) for char in value)}"'


def to_integer(
    literal: str,
    span: Span,
    diagnostics: Diagnostics,
    *,
    low: int = MIN_INTEGER,
    high: int = MAX_INTEGER,
) -> int:
    """Return the value of an integer literal; one outside the bounds is reported and becomes 0."""
    # Python refuses to convert very long texts, and no integer that long is within the bounds.
    value = int(literal) if len(literal.lstrip("-0")) <= 40 else None
    if value is None or not low <= value <= high:
        diagnostics.add(span, f"integer {shorten(literal)} is out of range ({low} to {high})")
        return 0
    return value


def to_float(literal: str, span: Span, diagnostics: Diagnostics) -> float:
    """Return the value of a float literal; one beyond the range of a 64-bit float is reported and becomes 0."""
    value = float(literal)
    if math.isinf(value):
        diagnostics.add(span, f"number {shorten(literal)} is out of range for a 64-bit float")
        return 0.0
    return value


def float_literal(value: float) -> str:
    """Return the shortest float literal that reads back as the same value; the languages have no exponents.

    >>> float_literal(1e21), float_literal(-2.5e-7)
    ('1000000000000000000000.0', '-0.00000025')
    """
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"


def shorten(text: str, limit: int = 40) -> str:
    """Return the text in a form for messages: limited in length, control characters as ``<U+XXXX>``."""
    clipped = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(_visible(char) for char in clipped)


def _visible(char: str) -> str:
    return char if char.isprintable() else f"<U+{ord(char):04X}>"
