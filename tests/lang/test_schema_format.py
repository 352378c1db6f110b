"""Formatter of schemas: layout and comments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.pg.format_schema import format_schema
from omnigraph.lang.pg.schema_parser import parse_schema
from omnigraph.lang.pg.schema_printer import print_schema
from omnigraph.lang.scanner import scan_comments
from omnigraph.lang.source import Source

CORPUS = sorted((Path(__file__).parents[1] / "golden" / "schema").glob("*.pg"))


def laid_out(text: str) -> str:
    """Format a text and assert the properties of every formatted text."""
    found = format_schema(text)
    assert format_schema(found) == found
    assert parse_schema(Source(found)) == parse_schema(Source(text))
    comments = Counter(item.text for item in scan_comments(Source(text.replace("\r\n", "\n"))))
    assert Counter(item.text for item in scan_comments(Source(found))) == comments
    return found


def test_members_stand_one_a_line_and_declarations_apart() -> None:
    text = 'node A@description("x")implements I,J{x:I32? y:[String]@key@unique(x,y)}edge E:A->A@card(0..)'
    assert laid_out(text) == dedent("""\
        node A @description("x") implements I, J {
          x: I32?
          y: [String] @key
          @unique(x, y)
        }

        edge E: A -> A @card(0..)
        """)


def test_an_empty_body_stays_on_the_line_of_its_header_and_an_edge_needs_none() -> None:
    assert (
        laid_out("node A{\n}\ninterface I{ }edge E:A->A{}")
        == "node A {}\n\ninterface I {}\n\nedge E: A -> A\n"
    )


def test_nothing_gives_nothing() -> None:
    assert laid_out("") == laid_out(" \n\n") == ""


def test_annotations_and_enum_values_keep_their_order() -> None:
    text = 'node A {\n  x: enum(b, a-1, c)? @z @a(true, k=1.5) @description("d")\n}\n'
    assert laid_out(text) == text


def test_strings_and_numbers_are_written_the_short_way() -> None:
    text = 'node A @x("a\tb\nc\\"d\\\\e é") {\n  @range(x, -007..1.50)\n  @range(x, ..-0.0)\n}\n'
    assert laid_out(text) == (
        'node A @x("a\\tb\\nc\\"d\\\\e é") {\n  @range(x, -7..1.5)\n  @range(x, ..-0.0)\n}\n'
    )


def test_comments_stay_above_and_behind_what_they_belong_to() -> None:
    text = dedent("""\
        // People.
        node Person { // a body
          // The name,
          // in full.
          name: String @key // spoken
          /* years */
          age: I32? /* one */ // two
          // Nothing follows.
        } // Person ends

        // Friendship.
        edge Knows: Person -> Person // symmetric
        """)
    assert laid_out(text) == text


def test_a_comment_of_the_file_stays_apart_from_the_first_declaration() -> None:
    text = "// The file.\n\n// The node.\nnode A {}\n\n// The end.\n\n// Really.\n"
    assert laid_out(text) == text


def test_a_file_of_comments_alone_stays_as_it_is() -> None:
    assert laid_out("  // one\n\n\n\n/* two */") == "// one\n\n/* two */\n"


def test_a_comment_inside_a_member_or_header_moves_above_it() -> None:
    text = "node /* 1 */ A // 2\n{ x: /* 3 */ I32\n@unique(x, // 4\n x) }"
    assert laid_out(text) == dedent("""\
        /* 1 */
        // 2
        node A {
          /* 3 */
          x: I32
          // 4
          @unique(x, x)
        }
        """)


def test_a_comment_in_an_otherwise_empty_body_keeps_the_body_open() -> None:
    assert laid_out("edge E: A -> A { /* later */ }") == "edge E: A -> A { /* later */\n}\n"
    assert laid_out("node A {\n// later\n}") == "node A {\n  // later\n}\n"


def test_one_blank_line_between_members_stays_and_more_become_one() -> None:
    text = "node A {\n\n  x: I32\n\n\n\n  y: I32\n  z: I32\n\n}\n\n\n\nnode B {}"
    assert laid_out(text) == "node A {\n  x: I32\n\n  y: I32\n  z: I32\n}\n\nnode B {}\n"


def test_a_blank_line_above_a_member_goes_above_the_comment_taken_out_of_it() -> None:
    assert (
        laid_out("node A {\nx: I32\n\ny: /* c */ I32 }") == "node A {\n  x: I32\n\n  /* c */\n  y: I32\n}\n"
    )


def test_windows_line_ends_and_a_byte_order_mark_go_away() -> None:
    text = "\ufeff// a\r\nnode A {\r\n  /* b\r\n  c */\r\n  x: I32\r\n}\r\n"
    assert laid_out(text) == "// a\nnode A {\n  /* b\n  c */\n  x: I32\n}\n"


def test_text_that_looks_like_a_comment_inside_a_string_is_none() -> None:
    text = 'node A @x("// a /* b") {}\n'
    assert laid_out(text) == text


def test_a_schema_that_breaks_rules_can_be_formatted_but_one_that_does_not_parse_cannot() -> None:
    assert laid_out("edge E:X->Y") == "edge E: X -> Y\n"
    with pytest.raises(LanguageError):
        format_schema("node {")


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_golden_corpus_keeps_its_meaning_and_comments(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    try:
        file = parse_schema(Source(text))
    except LanguageError:
        with pytest.raises(LanguageError):
            format_schema(text)
        return
    laid_out(text)
    assert parse_schema(Source(print_schema(file))) == file


def test_the_example_schema_is_formatted() -> None:
    text = (Path(__file__).parents[2] / "examples" / "social" / "schema.pg").read_text(encoding="utf-8")
    assert laid_out(text) == text
