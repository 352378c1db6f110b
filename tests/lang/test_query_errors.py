"""Syntax errors of queries, for texts of any length and nesting."""

from __future__ import annotations

import pytest

from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.source import Source
from tests.lang.query_reading import error, errors, predicate, read

# --- errors ----------------------------------------------------------------------------------------------


def test_every_query_that_is_wrong_is_reported() -> None:
    text = (
        "query a() { match { $a } return { $a } }\n"
        "query b() { match { $b: T } return { $b } }\n"
        "query c() { match { $c: T } retrun { $c } }\n"
        "query d($x: Strin) { match { $d: T } return { $d } limit -1 }\n"
    )
    assert [marked for _, marked in errors(text)] == ["}", "retrun", "Strin", "-1"]


def test_a_misspelt_keyword_gets_a_hint() -> None:
    with pytest.raises(LanguageError) as caught:
        read(tail="retrun { $a }")
    assert caught.value.diagnostics[0].hint == "did you mean `return`?"


def test_an_unknown_parameter_type_suggests_the_nearest() -> None:
    text = "query q($x: [Sting]) { delete T where x = 1 }"
    assert error(text) == ("unknown parameter type `Sting`; did you mean `String`?", "Sting")


@pytest.mark.parametrize("dim", ["0", "-3", "000"])
def test_a_vector_has_a_dimension(dim: str) -> None:
    text = f"query q($x: Vector({dim})) {{ delete T where x = 1 }}"
    assert error(text) == ("Vector dimension must be greater than zero", dim)


@pytest.mark.parametrize("dim", ["2147483648", "9" * 5000])
def test_the_dimension_of_a_vector_is_bounded(dim: str) -> None:
    message, marked = error(f"query q($x: Vector({dim})) {{ delete T where x = 1 }}")
    assert message.endswith("exceeds maximum supported 2147483647")
    assert marked == dim


def test_an_annotation_is_known_and_given_once() -> None:
    text = 'query q() @description("a") @descripton("b") @description("c") { delete T where x = 1 }'
    assert errors(text) == [
        ("unknown query annotation `@descripton`; did you mean `@description`?", "@descripton"),
        ("duplicate query annotation `@description`", "@description"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "query q() { match { $a.x = null } return { $a } }",
        "query q() { match { null != $a.x } return { $a } }",
        "query q() { match { $a: T { x: null } } return { $a } }",
        "query q() { match { null is null } return { $a } }",
        "query q() { delete T where x = null }",
    ],
)
def test_null_is_only_assigned(text: str) -> None:
    assert error(text) == ("`null` cannot be compared", "null")


@pytest.mark.parametrize(
    "text",
    [
        "query q() { }",
        "query q() { match { } return { $a } }",
        "query q() { match { $a: T } return { } }",
        "query q() { match { $a: T } }",
        "query q() { match { $a: T } return { $a } order { } }",
        "query q() { match { $a: T } return { $a } order { $a.x, } }",
        "query q() { match { $a: T } return { $a } order { nearest($a.x, $q) desc } }",
        "query q() { match { $a: T } return { $a } limit 1 limit 2 }",
        "query q() { match { $a: T } return { $a } limit 1.5 }",
        "query q() { match { $a: T } return { sum(distinct $a.x) } }",
        "query q() { match { $a: T } return { $a,, $a } }",
        "query q() { match { $a: t } return { $a } }",
        "query q() { match { $a Knows $b } return { $a } }",
        "query q() { match { $a: T { x: 1 y: 2 } } return { $a } }",
        "query q() { match { $a.x = 1 and $a contains $b } return { $a } }",
        "query q() { match { $a.x = 1 or not { $a: T } } return { $a } }",
        "query q() { match { $a.x = (1) } return { $a } }",
        "query q() { match { $a.x = .5 } return { $a } }",
        "query q() { match { $a.x = - 5 } return { $a } }",
        "query q() { match { $a.x = [1,] } return { $a } }",
        "query q() { match { $A: T } return { $A } }",
        "query q() { insert T { } }",
        "query q() { insert T { x: y } }",
        "query q() { insert T { x: [null] } }",
        "query q() { update T set { x: 1 } }",
        "query q() { delete T }",
        "query q() { delete T where $x = 1 }",
        "query q() { delete T where x = y }",
        "query q($a: String,) { delete T where x = 1 }",
        "query Q() { delete T where x = 1 }",
        'query q() { delete T where x = "open }',
        "query q() { delete T where x = 1 } /* open",
        "query q() { delete T where x = 1 } }",
        "quary q() { delete T where x = 1 }",
        "query q() { delete T where x = 1; }",
    ],
)
def test_what_the_grammar_does_not_allow_is_one_parse_error(text: str) -> None:
    with pytest.raises(LanguageError) as caught:
        parse_queries(Source(text))
    (found,) = caught.value.diagnostics
    assert found.text.startswith("parse error: ")
    assert found.code is None


# --- hostile input ---------------------------------------------------------------------------------------


def nested(opening: str, core: str, closing: str, levels: int) -> str:
    return f"query q() {{ match {{ {opening * levels}{core}{closing * levels} }} return {{ $a }} }}"


NESTINGS = [
    ("not ", "$a.x = 1", ""),
    ("(", "$a.x = 1", ")"),
    ("not (", "$a.x = 1", ")"),
    ("not { ", "$a: T", " }"),
    ("optional { ", "$a: T", " }"),
    ("$a.x = 1 and ($a.x = 1 or ", "$a.x = 1", ")"),
]


@pytest.mark.parametrize(("opening", "core", "closing"), NESTINGS)
def test_deep_nesting_is_refused(opening: str, core: str, closing: str) -> None:
    for levels in (65, 2_000):
        message, _ = error(nested(opening, core, closing, levels))
        assert message == "nesting exceeds 64 levels"


@pytest.mark.parametrize(("opening", "core", "closing"), NESTINGS)
def test_moderate_nesting_is_fine(opening: str, core: str, closing: str) -> None:
    assert len(parse_queries(Source(nested(opening, core, closing, 30))).queries) == 1


def test_nested_calls_and_lists_are_refused_too() -> None:
    for text in ("search(" * 70 + "x", "[" * 70):
        assert error(f"query q() {{ match {{ $a.x = {text} }} return {{ $a }} }}")[0].startswith("nesting")


@pytest.mark.parametrize(
    "text",
    [
        "not " * 25_000,
        "(" * 100_000,
        "$a.x = 1 and " * 8_000,
        "$a.x = " + "9" * 100_000,
        "$a.x = 0." + "9" * 100_000,
        '$a.x = "' + "\\x" * 50_000 + '"',
        '"' * 100_000,
        "/*" * 50_000,
        "/" * 100_000,
        "$" * 100_000,
        "a" * 100_000,
        "query " * 16_000,
        "query q() { " * 8_000,
        "}" * 100_000,
        "\x00" * 100_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_long_hostile_input_gives_a_language_error(text: str) -> None:
    # The time limit of the test fails for an algorithm of quadratic time.
    for whole in (text, f"query q() {{ match {{ {text} }} return {{ $a }} }}"):
        try:
            parse_queries(Source(whole))
        except LanguageError as caught:
            found = caught
            assert str(found)


def test_long_queries_parse() -> None:
    test = " and ".join(["$a.x = 1"] * 5_000)
    found = predicate(test)
    assert isinstance(found, ast.And)
    assert len(found.items) == 5_000
