"""Each `NAME.pg` of the corpus gives what `NAME.expected` says: a compiled schema or diagnostics.

With OMNIGRAPH_UPDATE_GOLDEN=1 the expected files are written anew. Read every difference before keeping it: the
language definition decides what is right, not the code.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph.lang.compile import load_schema
from omnigraph.lang.schema_text import render_schema
from omnigraph.lang.source import LanguageError

CORPUS = Path(__file__).parent / "schema"
CASES = sorted(path.stem for path in CORPUS.glob("*.pg"))


def outcome(case: str) -> str:
    text = (CORPUS / f"{case}.pg").read_text(encoding="utf-8")
    try:
        return render_schema(load_schema(text, f"{case}.pg"))
    except LanguageError as error:
        return f"{error}\n"


@pytest.mark.parametrize("case", CASES)
def test_a_schema_of_the_corpus_gives_its_expected_outcome(case: str) -> None:
    expected = CORPUS / f"{case}.expected"
    actual = outcome(case)
    if os.environ.get("OMNIGRAPH_UPDATE_GOLDEN") == "1":
        expected.write_text(actual, encoding="utf-8")
    assert actual == expected.read_text(encoding="utf-8")


def test_every_expected_file_belongs_to_a_schema() -> None:
    assert sorted(path.stem for path in CORPUS.glob("*.expected")) == CASES


@pytest.mark.parametrize("case", CASES)
def test_every_schema_of_the_corpus_begins_by_saying_what_it_shows(case: str) -> None:
    assert (CORPUS / f"{case}.pg").read_text(encoding="utf-8").startswith("// ")
