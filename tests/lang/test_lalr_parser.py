"""The parser against lark's own parser, which reads the same grammar: same trees, positions and errors."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest
from lark import Lark, Tree
from lark import Token as LarkToken
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from omnigraph.budget.deadline import Deadline, time_limit
from omnigraph.errors import ResourceLimit
from omnigraph.lang.lalr_parser import LalrParser, SyntaxFailure, Token
from omnigraph.lang.parser_tables import FOLDER, QUERY_GRAMMAR, SCHEMA_GRAMMAR, Grammar, load_tables
from omnigraph.lang.source import Span
from tests.golden.corpus import GOLDEN

GRAMMARS = [(QUERY_GRAMMAR, ".gq"), (SCHEMA_GRAMMAR, ".pg")]
each_grammar = pytest.mark.parametrize(("grammar", "suffix"), GRAMMARS, ids=["gq", "pg"])


class TreeBuilder:
    """Makes a nested tuple of every node: its rule, its span and its children."""


def add_rule(name: str) -> None:
    def build(_: object, span: Span, children: list[Any]) -> tuple[object, ...]:
        return (name, (span.start, span.end), *(outline(child) for child in children))

    setattr(TreeBuilder, name, build)


def outline(node: object) -> object:
    """Return a node, token or absent child of either parser in one form."""
    if isinstance(node, Token):
        return (node.type, str(node), (node.start, node.span.end))
    if isinstance(node, LarkToken):
        return (node.type, str(node), (node.start_pos, node.end_pos))
    if isinstance(node, Tree):
        span = (0, 0) if node.meta.empty else (node.meta.start_pos, node.meta.end_pos)
        return (str(node.data), span, *(outline(child) for child in node.children))
    return node


def parsers(grammar: Grammar) -> tuple[LalrParser, Lark]:
    tables = load_tables(grammar)
    for reduction in tables.reductions:
        add_rule(reduction.name)
    text = (FOLDER / f"{grammar.name}.lark").read_text(encoding="utf-8")
    return LalrParser(tables, TreeBuilder), Lark(text, propagate_positions=True, **grammar.options)


def parse_with_lark(parser: Lark, text: str) -> object:
    """Return the tree of a text, or the span of its first error with the terminals that could follow."""
    interactive = parser.parse_interactive(text)
    try:
        tokens = list(interactive.iter_parse())
        return outline(interactive.feed_eof(tokens[-1] if tokens else None))  # type: ignore[no-untyped-call]
    except UnexpectedInput as error:
        if isinstance(error, UnexpectedToken) and error.token.type != "$END":
            span: object = (error.token.start_pos, error.token.end_pos)
        elif isinstance(error, UnexpectedCharacters):
            span = cast(int, error.pos_in_stream)
        else:
            span = "end"
        return ("error", span, frozenset(interactive.accepts()))  # type: ignore[no-untyped-call]


def parse(parser: LalrParser, text: str) -> object:
    try:
        return parser.parse(text, TreeBuilder()).value
    except SyntaxFailure as error:
        at_end = error.span is not None and error.span.start == error.span.end
        span = "end" if at_end else error.start if error.span is None else (error.start, error.span.end)
        return ("error", span, error.accepted)


def texts(suffix: str) -> Iterator[str]:
    """Yield the texts of the golden corpus, and variants with a word removed, repeated or replaced."""
    found = [path.read_text(encoding="utf-8") for path in sorted(GOLDEN.rglob(f"*{suffix}"))]
    assert len(found) >= 20
    replacements = ["", "}", "(", "1.5", "..", "#", "not", '"x"', "Name", "é"]
    for number, text in enumerate(found):
        yield text
        words = list(re.finditer(r"\w+|[^\w\s]", text))
        for step in range(3):
            word = words[(number * 7 + step * len(words) // 3) % len(words)]
            other = replacements[(number + step) % len(replacements)]
            yield f"{text[: word.start()]}{other}{text[word.end() :]}"


@each_grammar
def test_parse_of_corpus_and_damaged_texts_equals_lark(grammar: Grammar, suffix: str) -> None:
    own, reference = parsers(grammar)
    wrong = 0
    for text in texts(suffix):
        expected = parse_with_lark(reference, text)
        # Compared before the assertion, because rendering the difference of two trees takes long.
        same = parse(own, text) == expected
        assert same, text
        wrong += cast(tuple[object, ...], expected)[0] == "error"
    assert wrong >= 20


def test_parse_checks_deadline_between_tokens() -> None:
    own, _ = parsers(QUERY_GRAMMAR)
    long = "query q() { match { $p: P $p.x in [" + "1, " * 2000 + "1] } return { $p.x } }"
    checks: list[int] = []

    class Counting(Deadline):
        @property
        def left(self) -> float:
            checks.append(1)
            return 1.0 if len(checks) < 5 else 0.0

    with time_limit(None) as outer:
        outer.__class__ = Counting
        with pytest.raises(ResourceLimit):
            own.parse(long, TreeBuilder())
    assert len(checks) == 5


def test_query_parse_with_stored_tables_imports_no_lark() -> None:
    code = (
        "import sys\n"
        "from omnigraph.lang.gq.query_parser import parse_queries\n"
        "from omnigraph.lang.source import Source\n"
        "parse_queries(Source('query q() { match { $p: P } return { $p.x } }'))\n"
        "sys.exit('lark' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
