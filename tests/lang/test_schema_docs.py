"""The examples of the schema guide compile or fail as the guide says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.pg.schema_properties import PHYSICAL_COLUMNS, SYSTEM_COLUMNS
from omnigraph.lang.types import BASE_TYPES

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "schema-language.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```pg( error)?\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
GOOD = [text for marked, text in BLOCKS if not marked]
BAD = [text for marked, text in BLOCKS if marked]


@pytest.mark.parametrize("text", GOOD, ids=range(len(GOOD)))
def test_an_example_compiles(text: str) -> None:
    assert load_schema(text).nodes


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_an_example_of_a_mistake_is_refused(text: str) -> None:
    with pytest.raises(LanguageError):
        load_schema(text)


def test_the_page_has_examples_of_both_kinds() -> None:
    assert len(GOOD) >= 8
    assert len(BAD) >= 4


@pytest.mark.parametrize("name", sorted([*BASE_TYPES, *SYSTEM_COLUMNS, *PHYSICAL_COLUMNS["edge"]]))
def test_the_page_names_every_type_and_reserved_name(name: str) -> None:
    assert f"`{name}`" in PAGE
