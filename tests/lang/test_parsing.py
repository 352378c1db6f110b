"""Scanning, literals and diagnostics that both parsers share."""

from __future__ import annotations

import pytest

from omnigraph.budget.deadline import time_limit
from omnigraph.errors import ResourceLimit
from omnigraph.lang.diagnostics import Diagnostics, diagnose
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.literal_syntax import quote, shorten, to_float, to_integer, unescape
from omnigraph.lang.parsing import MAX_NESTING, check_nesting
from omnigraph.lang.scanner import scan_comments
from omnigraph.lang.source import Source, Span


def collector(text: str = "") -> Diagnostics:
    return Diagnostics(Source(text), "parse")


def test_every_escape_reads_back_as_its_character() -> None:
    report = collector()
    assert unescape(r'"\"\\\n\r\t"', Span(0, 12), report) == '"\\\n\r\t'
    assert report.recorded == []


@pytest.mark.parametrize("value", ["", "plain", 'a"b', "a\\b", "\n\r\t", "\\n", "é\U0001f600", '\\"'])
def test_a_quoted_string_reads_back_as_the_same_string(value: str) -> None:
    assert unescape(quote(value), Span(0, 0), collector()) == value


def test_a_wrong_escape_is_reported_at_its_place() -> None:
    text = r'  "ab\qc\zd"'
    report = collector(text)
    unescape(text[2:], Span(2, len(text)), report)
    assert [(item.message, item.column) for item in report.recorded] == [
        (r"unsupported escape sequence: \q", 6),
        (r"unsupported escape sequence: \z", 9),
    ]


def test_a_lone_surrogate_in_a_string_is_refused() -> None:
    report = collector('"\ud800"')
    unescape('"\ud800"', Span(0, 3), report)
    assert [item.message for item in report.recorded] == ["string contains an unpaired surrogate: <U+D800>"]


@pytest.mark.parametrize("text", ["0", "007", "-9223372036854775808", "18446744073709551615"])
def test_an_integer_within_64_bits_is_read(text: str) -> None:
    report = collector()
    assert to_integer(text, Span(0, 0), report) == int(text)
    assert report.recorded == []


@pytest.mark.parametrize("text", ["18446744073709551616", "-9223372036854775809", "9" * 5000])
def test_an_integer_beyond_64_bits_is_reported(text: str) -> None:
    report = collector()
    to_integer(text, Span(0, 0), report)
    assert "is out of range" in report.recorded[0].message


def test_a_caller_may_narrow_the_range_of_integers() -> None:
    report = collector()
    to_integer("9223372036854775808", Span(0, 0), report, high=2**63 - 1)
    assert len(report.recorded) == 1


def test_a_float_that_would_be_infinite_is_reported() -> None:
    report = collector()
    assert to_float("1.5", Span(0, 0), report) == 1.5
    to_float("9" * 400 + ".0", Span(0, 0), report)
    assert "out of range for a 64-bit float" in report.recorded[0].message


def test_nesting_at_the_limit_passes_and_one_more_is_refused() -> None:
    assert check_nesting(Source("(" * MAX_NESTING)) == []
    (found,) = check_nesting(Source("(" * (MAX_NESTING + 1)))
    assert found.message == "nesting exceeds 64 levels"
    assert found.column == MAX_NESTING + 1


@pytest.mark.parametrize("text", ["[]" * 1000, '"' + "(" * 1000 + '"', "// " + "(" * 1000, "/*" + "{" * 1000])
def test_brackets_side_by_side_or_in_strings_and_comments_are_no_nesting(text: str) -> None:
    assert check_nesting(Source(text)) == []


def test_comments_are_found_outside_strings_only() -> None:
    source = Source('a // one \n  /* two\n */ "// no" b /* three */ // four')
    found = scan_comments(source)
    assert [(item.text, item.own_line) for item in found] == [
        ("// one", False),
        ("/* two\n */", True),
        ("/* three */", False),
        ("// four", False),
    ]
    assert [source.text[item.span.start : item.span.end] for item in found] == [item.text for item in found]


def test_a_long_or_unprintable_text_is_made_fit_for_a_message() -> None:
    assert shorten("a\x00b") == "a<U+0000>b"
    assert shorten("x" * 100) == "x" * 39 + "…"


def test_byte_offsets_count_a_lone_surrogate_as_three_bytes() -> None:
    assert Source("é\ud800x").byte_span(Span(1, 3)) == (2, 6)


def test_a_mark_in_a_very_long_line_shows_the_part_around_it() -> None:
    text = "a" * 1000 + "!" + "b" * 1000
    line, caret = diagnose(Source(text), Span(1000, 1001), "parse", "x").marked.split("\n")
    assert len(line) < 200
    assert line[caret.index("^")] == "!"


def test_a_mark_shows_nothing_that_a_terminal_would_act_upon() -> None:
    assert "\x1b" not in diagnose(Source("\x1b[31m"), Span(0, 1), "parse", "x").marked


def test_parse_after_the_deadline_is_given_up() -> None:
    with time_limit(0), pytest.raises(ResourceLimit):
        parse_queries(Source("query q() { match { $p: P } return { $p.name } }"))
