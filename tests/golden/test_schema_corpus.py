"""The outcome of each `NAME.pg` of the corpus is `NAME.expected`: a compiled schema or diagnostics."""

from __future__ import annotations

import pytest

from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.pg.schema_compiler import load_schema
from tests.golden.corpus import cases, expected_text, input_text
from tests.golden.schema_rendering import render_schema

CASES = cases("schema", ".pg")


def outcome(case: str) -> str:
    text = input_text("schema", f"{case}.pg")
    try:
        return render_schema(load_schema(text, f"{case}.pg"))
    except LanguageError as error:
        return f"{error}\n"


@pytest.mark.parametrize("case", CASES)
def test_a_schema_of_the_corpus_gives_its_expected_outcome(case: str) -> None:
    actual = outcome(case)
    assert actual == expected_text("schema", case, actual)


def test_every_expected_file_belongs_to_a_schema() -> None:
    assert cases("schema", ".expected") == CASES


@pytest.mark.parametrize("case", CASES)
def test_every_schema_of_the_corpus_begins_by_saying_what_it_shows(case: str) -> None:
    assert input_text("schema", f"{case}.pg").startswith("// ")
