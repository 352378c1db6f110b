"""Colours of a query text at the prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator

from omnigraph.cli.shell.completion import FUNCTIONS, KEYWORDS

_TOKEN = re.compile(
    rf"""(?P<comment>//[^\n]*+|/\*.*?(?:\*/|\Z))
    |(?P<string>"(?:[^"\\]|\\.)*+"?)
    |(?P<command>\A\.\w+)
    |(?P<variable>\$\w+)
    |(?P<number>(?<![\w.])-?[0-9]+(?:\.[0-9]+)?)
    |(?P<type>\b[A-Z]\w*)
    |(?P<keyword>(?<![.\w$])(?:{"|".join(KEYWORDS)})\b)
    |(?P<function>(?<![.\w$])(?:{"|".join(FUNCTIONS)})(?=\())""",
    re.VERBOSE | re.DOTALL,
)
STYLES = {
    "comment": "ansibrightblack italic",
    "string": "ansigreen",
    "command": "bold ansimagenta",
    "variable": "ansicyan",
    "number": "ansiyellow",
    "type": "ansibrightblue",
    "keyword": "bold",
    "function": "ansimagenta",
}


def highlight(text: str) -> list[list[tuple[str, str]]]:
    """Return the lines of a text as pieces with their styles.

    >>> highlight("return {")
    [[('bold', 'return'), ('', ' {')]]
    """
    lines: list[list[tuple[str, str]]] = [[]]
    for style, piece in _pieces(text):
        first, *others = piece.split("\n")
        if first:
            lines[-1].append((style, first))
        lines += [[(style, part)] if part else [] for part in others]
    return lines


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    for token in _TOKEN.finditer(text):
        if token.start() > position:
            yield "", text[position : token.start()]
        yield STYLES[token.lastgroup or ""], token[0]
        position = token.end()
    if position < len(text):
        yield "", text[position:]
