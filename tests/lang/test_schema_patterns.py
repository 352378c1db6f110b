"""Supported regular expressions of `@check`, compared with RE2 itself."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.lang.pg.schema_patterns import pattern_problem

ACCEPTED = [
    "",
    "abc",
    "^[A-Z]{2,5}$",
    r"\d{3}-\d{4}",
    r"[\w.+-]+@[\w-]+\.\w+",
    "(?i)urgent|late",
    "(?i:a)b",
    "(?P<year>[0-9]{4})",
    "(?s-i:a.b)",
    "[]a]",
    "[^]a]",
    r"[a\-z\]]",
    r"\++",
    r"\\+",
    "a{3",
    "é+",
    r"\x41",
    r"\_",
    "(a{10}){100}",
    "a*?b+?c??",
    r"\Aab\b",
]
REFUSED = {
    "(?=x)": "lookahead",
    "(?!x)": "lookahead",
    "(?<=x)": "lookbehind",
    "(?<!x)": "lookbehind",
    r"(a)\1": "backreferences",
    "(?P<q>a)(?P=q)": "backreferences",
    r"[\1]": "backreferences",
    "(a)(?(1)b|c)": "conditional",
    "(?>a)": "atomic",
    "(?#x)": "comments",
    "(?x)a": "group (?x",
    "(?a)a": "group (?a",
    "a*+": "possessive",
    "a++": "possessive",
    "a?+": "possessive",
    "a{2}+": "possessive",
    r"\\++": "possessive",
    "a{1001}": "repetition exceeds 1000",
    "(a{1000}){2}": "repetition exceeds 1000",
    "((a{10}){10}){11}": "repetition exceeds 1000",
    "((a{600})b){2}": "repetition exceeds 1000",
    "a{" + "9" * 5000 + "}": "repetition exceeds 1000",
    "a{,3}": "requires a minimum",
    r"a\Z": "use $",
    r"\u0041": "write the character itself",
    r"\é": "write é",
    r"[\b]": "character class",
    "[[:alpha:]]": "write \\[",
    "[a&&b]": "write \\&",
    "[a--b]": "write \\-",
    "(" * 40 + ")" * 40: "nesting exceeds",
    "(" * 100_000: "nesting exceeds",
    "(": "missing )",
    ")": "unbalanced",
    "[a": "unterminated",
    "*": "nothing to repeat",
    "a**": "multiple repeat",
    "\\": "bad escape",
    "[z-a]": "bad character range",
    "a{2,1}": "min repeat greater",
}


@pytest.mark.parametrize("pattern", ACCEPTED)
def test_a_pattern_that_both_engines_know_is_accepted(pattern: str) -> None:
    assert pattern_problem(pattern) is None
    pc.match_substring_regex(pa.array(["a"]), pattern)


@pytest.mark.parametrize("pattern", REFUSED, ids=range(len(REFUSED)))
def test_any_other_pattern_is_refused_with_a_reason(pattern: str) -> None:
    assert REFUSED[pattern] in (pattern_problem(pattern) or "")


@pytest.mark.parametrize("pattern", [pattern for pattern in ACCEPTED if "\\A" not in pattern])
def test_an_accepted_pattern_matches_the_same_texts_in_both_engines(pattern: str) -> None:
    texts = [
        "",
        "a",
        "abc",
        "AB",
        "ABCDEF",
        "123-4567",
        "x@y.zz",
        "URGENT",
        "aab",
        "]",
        "-",
        "+",
        "\\",
        "é",
        "A_",
    ]
    expected = [re.search(pattern, text, re.ASCII) is not None for text in texts]
    assert pc.match_substring_regex(pa.array(texts), pattern).to_pylist() == expected
