"""The examples of the query language guide parse, check and are formatted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.lang.gq.check.checker import check_query
from omnigraph.lang.gq.format_query import format_queries
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.source import Source

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "query-language.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
SCHEMAS = [text for language, text in BLOCKS if language == "pg"]
EXAMPLES = [text for language, text in BLOCKS if language == "gq"]


def first_line(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("query"))


def test_the_page_has_one_schema_and_many_examples() -> None:
    assert len(SCHEMAS) == 1
    assert len(EXAMPLES) > 10


@pytest.mark.parametrize("text", EXAMPLES, ids=first_line)
def test_every_example_checks_against_the_schema_of_the_page(text: str) -> None:
    source = Source(text, PAGE.name)
    schema = load_schema(SCHEMAS[0])
    for query in parse_queries(source).queries:
        assert check_query(query, schema, source).name == query.name


@pytest.mark.parametrize("text", EXAMPLES, ids=first_line)
def test_every_example_is_formatted(text: str) -> None:
    assert format_queries(text) == text
