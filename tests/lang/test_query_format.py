"""Formatter of queries."""

from __future__ import annotations

from textwrap import dedent

import pytest

from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.gq.format_query import format_queries
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.source import Source
from tests.lang.query_reading import print_queries


def check(text: str, expected: str) -> None:
    """Assert the formatted text, that it parses to the same queries, and that formatting is idempotent."""
    expected = dedent(expected).lstrip("\n")
    assert format_queries(dedent(text)) == expected
    assert format_queries(expected) == expected
    assert parse_queries(Source(expected)) == parse_queries(Source(dedent(text)))


def in_match(text: str) -> list[str]:
    """Return the formatted lines of a match block, without indent."""
    lines = format_queries(f"query q() {{ match {{ {text} }} return {{ $a }} }}").splitlines()
    return [line[4:] for line in lines[2 : lines.index("  }")]]


def test_a_read_has_one_clause_a_line() -> None:
    check(
        """
        query friends ( $name:String,$max : I64? ){match{$p:Person{name:$name,}$p $w:knows{1,2}$f
        $f.age<=$max not{$f worksAt $c}optional{$f livesIn $city $city.name!="X"}}
        return distinct{$f.name as name count(distinct $w)as n}order{n desc,name}limit 10 skip 5}
        """,
        """
        query friends($name: String, $max: I64?) {
          match {
            $p: Person { name: $name }
            $p $w:knows{1,2} $f
            $f.age <= $max
            not { $f worksAt $c }
            optional {
              $f livesIn $city
              $city.name != "X"
            }
          }
          return distinct { $f.name as name, count(distinct $w) as n }
          order { n desc, name }
          skip 5
          limit 10
        }
        """,
    )


def test_a_mutation_has_one_statement_a_line() -> None:
    check(
        """
        query m($n: String) { insert Person { name: $n age: null }
        update Person set { age: -1, seen: now() } where (name = $n) and (age is null or (age in [1,2]))
        delete Person where not (name starts_with "x") }
        """,
        """
        query m($n: String) {
          insert Person { name: $n, age: null }
          update Person set { age: -1, seen: now() } where name = $n and (age is null or age in [1, 2])
          delete Person where not name starts_with "x"
        }
        """,
    )


def test_annotations_stand_below_the_name() -> None:
    check(
        'query q()@instruction("Use it.")@description("Say \\"hi\\".\\n"){delete T where x=1}',
        """
        query q()
          @description("Say \\"hi\\".\\n")
          @instruction("Use it.")
        {
          delete T where x = 1
        }
        """,
    )


def test_queries_stand_one_blank_line_apart() -> None:
    one = "query q() {\n  delete T where x = 1\n}\n"
    assert format_queries(one.replace("\n", " ") * 3) == "\n".join([one] * 3)
    assert format_queries("\n\n\n".join([one] * 3)) == "\n".join([one] * 3)


def test_what_is_too_long_for_a_line_is_broken() -> None:
    names = [f"a_rather_long_property_name_{n}" for n in range(4)]
    check(
        f"""
        query q({", ".join(f"${name}: String" for name in names)}) {{
          match {{
            $p: Person {{ {", ".join(f"{name}: 1" for name in names)} }}
            {" or ".join(f"$p.{name} = 1" for name in names)}
          }}
          return {{ {", ".join(f"$p.{name}" for name in names)} }}
        }}
        query m() {{
          update Person set {{ {", ".join(f"{name}: 1" for name in names)} }}
            where {" and ".join(f"{name} = 1" for name in names)}
        }}
        """,
        """
        query q(
          $a_rather_long_property_name_0: String,
          $a_rather_long_property_name_1: String,
          $a_rather_long_property_name_2: String,
          $a_rather_long_property_name_3: String
        ) {
          match {
            $p: Person {
              a_rather_long_property_name_0: 1,
              a_rather_long_property_name_1: 1,
              a_rather_long_property_name_2: 1,
              a_rather_long_property_name_3: 1
            }
            $p.a_rather_long_property_name_0 = 1
              or $p.a_rather_long_property_name_1 = 1
              or $p.a_rather_long_property_name_2 = 1
              or $p.a_rather_long_property_name_3 = 1
          }
          return {
            $p.a_rather_long_property_name_0,
            $p.a_rather_long_property_name_1,
            $p.a_rather_long_property_name_2,
            $p.a_rather_long_property_name_3
          }
        }

        query m() {
          update Person set {
            a_rather_long_property_name_0: 1,
            a_rather_long_property_name_1: 1,
            a_rather_long_property_name_2: 1,
            a_rather_long_property_name_3: 1
          } where a_rather_long_property_name_0 = 1
            and a_rather_long_property_name_1 = 1
            and a_rather_long_property_name_2 = 1
            and a_rather_long_property_name_3 = 1
        }
        """,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(($a.x = 1))", "$a.x = 1"),
        ("($a.x = 1 and $a.x = 2) or $a.x = 3", "$a.x = 1 and $a.x = 2 or $a.x = 3"),
        ("($a.x = 1 or $a.x = 2) and $a.x = 3", "($a.x = 1 or $a.x = 2) and $a.x = 3"),
        ("not (not ($a.x = 1))", "not not $a.x = 1"),
        ("not ($a.x = 1 and $a.x = 2)", "not ($a.x = 1 and $a.x = 2)"),
        ("(not $a.x = 1) and $a.x = 2", "not $a.x = 1 and $a.x = 2"),
        ("$a.x = 1 or ($a.x = 2 or $a.x = 3)", "$a.x = 1 or $a.x = 2 or $a.x = 3"),
    ],
)
def test_parentheses_stay_only_where_precedence_asks_for_them(text: str, expected: str) -> None:
    assert in_match(text) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.50", "1.5"),
        ("0.00000000000000000000000012", "0.00000000000000000000000012"),
        ("123456789012345678901234567890.0", "123456789012345680000000000000.0"),
        ("-0.0", "-0.0"),
        ("007", "7"),
        ('"a\nb"', '"a\\nb"'),
        ('[ 1 , "x" ]', '[1, "x"]'),
    ],
)
def test_literals_have_one_spelling(text: str, expected: str) -> None:
    assert in_match(f"$a.x = {text}") == [f"$a.x = {expected}"]


def test_comments_stay_where_they_were() -> None:
    text = """
        // Top of the file.

        // About the query.
        query q($a: String) {  // opens
          match {  // the pattern
            // about the binding
            $p: Person {
              // inline
              name: $a  // the key
            }

            /* a block
                 comment */
            $p knows $q  /* one */ // two
            not {
              // why not
              $p likes $q
            }
            // last in the match
          }  // end of the match
          // about the columns
          return {
            $p.name,  // first
            // about the second
            $q.name
            // last of the columns
          }
          order { $p.name }  // sorted
          limit 5  // few
          // last in the query
        }  // end of the query

        // Below.
        """
    check(text, text)


def test_comments_inside_a_line_go_above_it() -> None:
    check(
        """
        query /* a */ q(/* b */) { match { $p /* c */ knows // d
          $q } return /* e */ { $p } limit /* f */ 5 }
        """,
        """
        /* a */
        /* b */
        query q() {
          match {
            /* c */
            // d
            $p knows $q
          }
          /* e */
          return { $p }
          /* f */
          limit 5
        }
        """,
    )


def test_a_comment_that_touches_its_line_stays_at_its_end() -> None:
    check(
        "query q() { delete T where x = 1// touching\n}// too",
        """
        query q() {
          delete T where x = 1  // touching
        }  // too
        """,
    )


def test_comments_follow_skip_and_limit_when_these_change_places() -> None:
    check(
        """
        query q() { match { $p: T } return { $p }
          // about the limit
          limit 5 // five
          // about the skip
          skip 3 // three
        }
        """,
        """
        query q() {
          match {
            $p: T
          }
          return { $p }
          // about the skip
          skip 3  // three
          // about the limit
          limit 5  // five
        }
        """,
    )


def test_blank_lines_group_clauses_but_do_not_pile_up() -> None:
    check(
        """
        query q() {

          match {

            $a: T



            $b: T
            $c: T

          }
          return { $a }

          limit 1

        }
        """,
        """
        query q() {
          match {
            $a: T

            $b: T
            $c: T
          }
          return { $a }

          limit 1
        }
        """,
    )


def test_line_ends_of_other_systems_and_a_byte_order_mark_go() -> None:
    text = "\ufeff// a\r\nquery q() {\r\n  /* b\r\n c */\r\n  delete T where x = 1\r\n}\r\n"
    assert format_queries(text) == "// a\nquery q() {\n  /* b\n c */\n  delete T where x = 1\n}\n"


@pytest.mark.parametrize(("text", "expected"), [("", ""), ("\n\n", ""), ("// only\n", "// only\n")])
def test_a_file_without_queries_keeps_its_comments(text: str, expected: str) -> None:
    assert format_queries(text) == expected


def test_text_that_does_not_parse_is_refused_under_its_name() -> None:
    with pytest.raises(LanguageError) as caught:
        format_queries("query", "some.gq")
    assert caught.value.diagnostics[0].file == "some.gq"


def test_queries_without_a_text_print_like_formatted_ones() -> None:
    text = "query q() {\n  match {\n    not { $a: T }\n  }\n  return { $a }\n}\n"
    assert print_queries(parse_queries(Source(text))) == text
