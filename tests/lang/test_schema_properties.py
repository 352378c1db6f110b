"""Properties of schema parser, compiler and formatter over generated schemas and arbitrary text."""

from __future__ import annotations

import re
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.pg.format_schema import format_schema
from omnigraph.lang.pg.schema_ast import SchemaFile
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.pg.schema_parser import parse_schema
from omnigraph.lang.pg.schema_printer import print_schema
from omnigraph.lang.scanner import scan_comments
from omnigraph.lang.source import Source
from tests.golden.schema_rendering import render_schema
from tests.strategies.schemas import KEYWORDS, schema_files

PIECES = (
    *KEYWORDS,
    "Person", "Vector", "String", "I32", "name", "1", "-5", "2.5", "..", "18446744073709551616",
    '"text"', '"\\x"', '"(?=a)"', '"', "{", "}", "(", ")", "[", "]", "->", "=", ",", ":", "?", "@",
    "@key", "@key(", "@range(name, 0..5)", "@embed(name)", "//", "/*", "*/", ";", "#", "é", "\n", "\ufeff",
)  # fmt: skip
# Characters that end a token, so that a comment can follow.
BOUNDARY = re.compile(r"(?<=[ \n(){}\[\],:])")
STRINGS = re.compile(r'("(?:[^"\\]|\\.)*")', re.DOTALL)
COMMENTS = ("// one\n", "/* two */", "/* three\n   rows */", "//\n", "\n\n// apart\n\n", "/**//**/")


def only_a_language_error(text: str) -> None:
    """Parse, compile and format the text; any exception other than `LanguageError` propagates."""
    try:
        formatted = format_schema(text)
        assert parse_schema(Source(formatted)) == parse_schema(Source(text))
        assert format_schema(formatted) == formatted
        assert render_schema(load_schema(text)) == render_schema(load_schema(formatted))
    except LanguageError as error:
        found = error
    else:
        return
    assert str(found)
    assert all(0 <= item.start <= item.end for item in found.diagnostics)


@given(schema_files)
@settings(deadline=None, max_examples=90)
def test_a_printed_schema_parses_to_the_same_schema(file: SchemaFile) -> None:
    # 1 and 1.0 are equal in Python and different in the language.
    assert repr(parse_schema(Source(print_schema(file)))) == repr(file)


@given(schema_files)
@settings(deadline=None, max_examples=60)
def test_a_printed_schema_is_formatted_already(file: SchemaFile) -> None:
    text = print_schema(file)
    assert format_schema(text) == text


@given(schema_files, st.data())
@settings(deadline=None, max_examples=60)
def test_comments_between_tokens_change_nothing_and_survive_formatting(
    file: SchemaFile, data: st.DataObject
) -> None:
    parts = STRINGS.split(print_schema(file))
    for position in range(0, len(parts), 2):
        pieces = BOUNDARY.split(parts[position])
        comments = [data.draw(st.sampled_from(["", "", *COMMENTS])) for _ in pieces[1:]]
        parts[position] = "".join([pieces[0], *(a + b for a, b in zip(comments, pieces[1:], strict=True))])
    text = "".join(parts)
    assert parse_schema(Source(text)) == file
    formatted = format_schema(text)
    assert parse_schema(Source(formatted)) == file
    assert format_schema(formatted) == formatted
    before, after = (Counter(item.text for item in scan_comments(Source(each))) for each in (text, formatted))
    assert after == before


@given(schema_files)
@settings(deadline=None, max_examples=60)
def test_a_generated_schema_compiles_or_is_refused_with_reasons(file: SchemaFile) -> None:
    only_a_language_error(print_schema(file))


@given(schema_files, st.data())
@settings(deadline=None, max_examples=90)
def test_a_damaged_schema_gives_nothing_but_a_language_error(file: SchemaFile, data: st.DataObject) -> None:
    text = print_schema(file)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 10)))
        text = text[:start] + data.draw(st.sampled_from(["", *PIECES])) + text[end:]
    only_a_language_error(text)


@given(st.lists(st.sampled_from(PIECES), max_size=40).map(" ".join))
@settings(deadline=None, max_examples=120)
def test_pieces_of_the_language_in_any_order_give_nothing_but_a_language_error(text: str) -> None:
    only_a_language_error(text)


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=120)
def test_any_characters_give_nothing_but_a_language_error(text: str) -> None:
    only_a_language_error(text)


@given(st.binary(max_size=60))
@settings(deadline=None, max_examples=60)
def test_any_bytes_give_nothing_but_a_language_error(data: bytes) -> None:
    only_a_language_error(data.decode("utf-8", "surrogateescape"))
    only_a_language_error(data.decode("latin-1"))


@given(st.text(max_size=30))
@settings(deadline=None, max_examples=120)
def test_any_pattern_is_accepted_or_refused_with_a_reason(pattern: str) -> None:
    only_a_language_error(f'node A {{ x: String @check(x, "{pattern}") }}')
