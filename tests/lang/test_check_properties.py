"""Properties of the type checker over generated queries and schemas, and over sources with changed tokens."""

from __future__ import annotations

import dataclasses
import re
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.lint_rules import lint_queries
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.schema import Schema
from omnigraph.lang.source import Source
from tests.catalog.strategies import PROPERTY_NAMES, schemas
from tests.golden.corpus import cases, input_text
from tests.lang.ir_laws import assert_lawful
from tests.strategies.queries import queries

SOCIAL = load_schema(input_text("queries", "social.pg"))
GOLDEN = [input_text("queries", f"{case}.gq") for case in cases("queries", ".gq")]
TOKEN = re.compile(r'\s+|//[^\n]*|"(?:[^"\\]|\\.)*"|[$@]?\w+|[<>!]=|.', flags=re.DOTALL)
VARIABLES = ("a", "b", "c", "d", "_")


def check_lawfully(query: ast.Query, schema: Schema, source: Source) -> bool:
    """Return whether the query passes the check; any exception other than `LanguageError` propagates."""
    try:
        checked = check_query(query, schema, source)
    except LanguageError as error:
        found = error
    else:
        assert_lawful(query, checked)
        return True
    assert str(found)
    starts = [item.start for item in found.diagnostics]
    assert starts == sorted(starts)
    assert all(item.phase == "type" for item in found.diagnostics)
    return False


def named_for(schema: Schema, node: Any) -> Any:
    """Return the AST with names replaced, mostly by names of the schema."""

    def pick(name: str, known: tuple[str, ...]) -> str:
        # A name is always replaced by the same name, so that uses still match declarations.
        return known[crc32(name.encode("utf-8", "surrogatepass")) % len(known)] if known else name

    nodes = tuple(item.name for item in schema.nodes)
    edges = tuple(item.name for item in schema.edges)
    pools: dict[tuple[type, str], tuple[str, ...]] = {
        (ast.Variable, "name"): VARIABLES,
        (ast.Param, "name"): VARIABLES,
        (ast.PropertyAccess, "variable"): VARIABLES,
        (ast.AllProperties, "variable"): VARIABLES,
        (ast.PropertyAccess, "name"): PROPERTY_NAMES,
        (ast.InlineMatch, "name"): PROPERTY_NAMES,
        (ast.Assign, "name"): (*PROPERTY_NAMES, "from", "to"),
        (ast.ColumnName, "name"): (*PROPERTY_NAMES, "from", "to"),
        (ast.Binding, "type_name"): nodes,
        (ast.Insert, "type_name"): (*nodes, *edges),
        (ast.Update, "type_name"): (*nodes, *edges),
        (ast.Delete, "type_name"): (*nodes, *edges),
        (ast.Traversal, "edge"): edges,
        (ast.AliasRef, "name"): VARIABLES,
        (ast.Projection, "alias"): VARIABLES,
    }

    def walk(item: Any) -> Any:
        if isinstance(item, tuple):
            return tuple(walk(part) for part in item)
        if not dataclasses.is_dataclass(item) or isinstance(item, type):
            return item
        changes = {}
        for field in dataclasses.fields(item):
            value = getattr(item, field.name)
            pool = pools.get((type(item), field.name))
            changes[field.name] = pick(value, pool) if pool and isinstance(value, str) else walk(value)
        return dataclasses.replace(item, **changes)

    return walk(node)


@given(queries, schemas())
@settings(deadline=None, max_examples=80)
def test_any_query_against_any_schema_gives_ir_or_a_language_error(query: ast.Query, schema: Schema) -> None:
    check_lawfully(query, schema, Source("query"))
    check_lawfully(named_for(schema, query), schema, Source("query"))


@pytest.mark.parametrize("text", GOLDEN, ids=cases("queries", ".gq"))
def test_the_corpus_is_lawful(text: str) -> None:
    source = Source(text)
    try:
        parsed = parse_queries(source).queries
    except LanguageError:
        return
    for query in parsed:
        check_lawfully(query, SOCIAL, source)


def kind_of(token: str) -> str:
    """Return the kind of a token; replacing a token by another of its kind usually still parses."""
    if token[0] == "$" or token[0] == '"':
        return token[0]
    return "number" if token[0].isdigit() else "name" if token[0].isalpha() else token


@given(st.sampled_from(GOLDEN), st.data())
@settings(deadline=None, max_examples=400)
def test_a_source_with_tokens_astray_gives_ir_or_language_errors(text: str, data: st.DataObject) -> None:
    tokens = TOKEN.findall(text)
    assert "".join(tokens) == text
    solid = [i for i, token in enumerate(tokens) if not token.isspace() and not token.startswith("//")]
    for _ in range(data.draw(st.integers(1, 3), label="edits")):
        place = data.draw(st.sampled_from([i for i in solid if tokens[i]]))
        alike = [i for i in solid if tokens[i] and kind_of(tokens[i]) == kind_of(tokens[place])]
        other = data.draw(st.sampled_from(alike))
        match data.draw(st.sampled_from(["delete", "repeat", "swap", "copy"]), label="edit"):
            case "delete":
                tokens[place] = ""
            case "repeat":
                tokens[place] = f"{tokens[place]} {tokens[place]}"
            case "swap":
                tokens[place], tokens[other] = tokens[other], tokens[place]
            case "copy":
                tokens[place] = tokens[other]
    source = Source("".join(tokens))
    try:
        parsed = parse_queries(source).queries
    except LanguageError:
        return
    for query in parsed:
        check_lawfully(query, SOCIAL, source)


@given(st.sampled_from(GOLDEN), st.sampled_from(GOLDEN), schemas())
@settings(deadline=None, max_examples=30)
def test_lint_never_raises(text: str, other: str, schema: Schema) -> None:
    report = lint_queries(Source(text + other), schema)
    assert report.ok == (report.to_json({})["status"] == "ok")


def test_a_pattern_nested_as_deep_as_the_parser_allows_is_checked() -> None:
    depth = 60
    text = (
        "query q() { match { $p: Person "
        + "not { $p knows $p " * depth
        + "}" * depth
        + " } return { $p.name } }"
    )
    source = Source(text)
    assert check_lawfully(parse_queries(source).queries[0], SOCIAL, source)


def test_a_predicate_nested_as_deep_as_the_parser_allows_is_checked() -> None:
    depth = 60
    text = (
        "query q() { match { $p: Person "
        + "not (" * depth
        + "$p.age = 1"
        + ")" * depth
        + " } return { $p.name } }"
    )
    source = Source(text)
    assert check_lawfully(parse_queries(source).queries[0], SOCIAL, source)
