"""The outcome of each `NAME.gq` of the corpus is `NAME.expected`: the IR of every query, or diagnostics.

The schema is `social.pg` unless the file begins with ``// schema: other.pg``.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.schema import Schema
from omnigraph.lang.source import Source
from tests.golden.corpus import cases, expected_text, input_text
from tests.golden.ir_rendering import render_ir

CASES = cases("queries", ".gq")
OTHER_SCHEMA = re.compile(r"// schema: (\S+)\n")
CODE = re.compile(r"^\S+:\d+:\d+: type error: (T\d+): ", flags=re.MULTILINE)


@cache
def schema(file: str) -> Schema:
    return load_schema(input_text("queries", file), file)


def outcome(case: str) -> str:
    text = input_text("queries", f"{case}.gq")
    other = OTHER_SCHEMA.match(text)
    known = schema(other.group(1) if other else "social.pg")
    source = Source(text, f"{case}.gq")
    try:
        queries = parse_queries(source).queries
    except LanguageError as error:
        return f"{error}\n"
    found = []
    for query in queries:
        try:
            found.append(render_ir(check_query(query, known, source)))
        except LanguageError as error:
            found.append(f"{error}\n")
    return "\n".join(found)


@pytest.mark.parametrize("case", CASES)
def test_a_query_of_the_corpus_gives_its_expected_outcome(case: str) -> None:
    actual = outcome(case)
    assert actual == expected_text("queries", case, actual)


@pytest.mark.parametrize("case", CASES)
def test_every_query_file_begins_by_saying_what_it_shows(case: str) -> None:
    text = OTHER_SCHEMA.sub("", input_text("queries", f"{case}.gq"), count=1)
    assert re.match(r"(// .+\n)+\n", text)


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_named_after_what_it_gives(case: str) -> None:
    """`read_`, `mutate_`: no errors. `error_t07_`: errors of that code only. `error_`: any error."""
    found = outcome(case)
    codes = set(CODE.findall(found))
    wanted = re.match(r"error_t(\d+)_", case)
    if wanted:
        assert codes == {f"T{int(wanted.group(1))}"}
    elif case.startswith("error_"):
        assert " error: " in found
    elif not case.startswith("example_"):
        assert " error: " not in found


def test_every_expected_file_belongs_to_a_query_file() -> None:
    assert cases("queries", ".expected") == CASES


def test_the_corpus_shows_every_code() -> None:
    found = {code for case in CASES for code in CODE.findall(outcome(case))}
    assert found == {f"T{number}" for number in range(1, 26)}


def test_the_corpora_are_large_enough_to_be_documentation() -> None:
    assert len(CASES) >= 95
    assert len(CASES) + len(cases("schema", ".pg")) + len(cases("migrate", ".migrate")) >= 120
