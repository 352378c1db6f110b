"""Properties of query parser and formatter over generated queries and arbitrary text."""

from __future__ import annotations

import re
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.gq.format_query import format_queries
from omnigraph.lang.gq.query_ast import QueryFile
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.scanner import scan_comments
from omnigraph.lang.source import Source
from tests.lang.query_reading import print_queries
from tests.strategies.queries import KEYWORDS, query_files

PIECES = (
    *KEYWORDS,
    "$a", "$b.name", "$w:", "name", "Person", "Vector", "1", "-5", "2.5", "18446744073709551616",
    '"text"', '"\\x"', '"', "{", "}", "(", ")", "[", "]", "<", ">", "=", "!=", ",", ":", ".", "?",
    "@description", "@x", "//", "/*", "*/", ";", "#", "é", "\n", "\ufeff",
)  # fmt: skip
# Characters that end a token, so that a comment can follow.
BOUNDARY = re.compile(r"(?<=[ \n(){}\[\],:])")
COMMENTS = ("// one\n", "/* two */", "/* three\n   rows */", "//\n", "\n\n// apart\n\n")


def only_a_language_error(text: str) -> None:
    """Parse and format the text; any exception other than `LanguageError` propagates."""
    try:
        formatted = format_queries(text)
    except LanguageError as error:
        found = error
    else:
        assert parse_queries(Source(formatted)) == parse_queries(Source(text))
        assert format_queries(formatted) == formatted
        return
    assert str(found)
    assert all(0 <= item.start <= item.end for item in found.diagnostics)


@given(query_files)
@settings(deadline=None, max_examples=60)
def test_printed_queries_parse_to_the_same_queries(file: QueryFile) -> None:
    assert parse_queries(Source(print_queries(file))) == file


@given(query_files)
@settings(deadline=None, max_examples=60)
def test_printed_queries_are_formatted_already(file: QueryFile) -> None:
    text = print_queries(file)
    assert format_queries(text) == text


@given(query_files)
@settings(deadline=None, max_examples=60)
def test_line_breaks_and_spaces_between_tokens_carry_no_meaning(file: QueryFile) -> None:
    text = print_queries(file)
    outside = re.split(r'("(?:[^"\\]|\\.)*")', text, flags=re.DOTALL)
    outside[::2] = [re.sub(r"\s+", "\r\n\t", part) for part in outside[::2]]
    assert parse_queries(Source("".join(outside))) == file


@given(query_files, st.data())
@settings(deadline=None, max_examples=90)
def test_formatting_keeps_every_comment_and_the_meaning_and_is_stable(
    file: QueryFile, data: st.DataObject
) -> None:
    text = print_queries(file)
    inside_strings = [match.span() for match in re.finditer(r'"(?:[^"\\]|\\.)*"', text, flags=re.DOTALL)]
    places = [
        match.start()
        for match in BOUNDARY.finditer(text)
        if not any(start < match.start() < end for start, end in inside_strings)
    ]
    chosen = data.draw(st.lists(st.sampled_from(places or [0]), max_size=6, unique=True))
    for place in sorted(chosen, reverse=True):
        text = f"{text[:place]}{data.draw(st.sampled_from(COMMENTS))}{text[place:]}"
    source = Source(text)
    assert parse_queries(source) == file
    once = format_queries(text)
    assert parse_queries(Source(once)) == file
    assert Counter(item.text for item in scan_comments(Source(once))) == Counter(
        item.text for item in scan_comments(source)
    )
    assert format_queries(once) == once


@given(query_files, st.data())
@settings(deadline=None, max_examples=60)
def test_a_mutated_source_gives_queries_or_a_language_error(file: QueryFile, data: st.DataObject) -> None:
    text = print_queries(file)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 6))
        text = text[:start] + data.draw(st.sampled_from(PIECES) | st.text(max_size=3)) + text[end:]
    only_a_language_error(text)


@given(st.lists(st.sampled_from(PIECES), max_size=40))
@settings(deadline=None, max_examples=60)
def test_a_heap_of_tokens_gives_queries_or_a_language_error(pieces: list[str]) -> None:
    only_a_language_error(" ".join(pieces))


@given(st.lists(st.sampled_from(PIECES), max_size=40))
@settings(deadline=None, max_examples=60)
def test_a_heap_of_tokens_in_a_match_gives_queries_or_a_language_error(pieces: list[str]) -> None:
    only_a_language_error(f"query q() {{ match {{ {' '.join(pieces)} }} return {{ $a }} }}")


@given(st.text())
@settings(deadline=None)
def test_any_text_gives_queries_or_a_language_error(text: str) -> None:
    only_a_language_error(text)


@given(st.binary())
@settings(deadline=None)
def test_any_bytes_give_queries_or_a_language_error(data: bytes) -> None:
    only_a_language_error(data.decode("utf-8", "surrogateescape"))
    only_a_language_error(data.decode("latin-1"))
