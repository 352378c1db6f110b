"""From `.gq` text to its AST. All syntax errors of a text are reported together."""

from __future__ import annotations

from functools import cache

from lark import Lark, Tree

from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.query_builder import QueryBuilder
from omnigraph.lang.parser_tables import QUERY_GRAMMAR, make_parser
from omnigraph.lang.parsing import MAX_NESTING, ParseTree, meta_span, parse_with_recovery
from omnigraph.lang.source import Diagnostics, Source

_STARTS = frozenset({"query"})

# What each terminal is called in messages, in the order in which a message lists them.
_WORDS = {
    "QUERY": "`query`",
    "MATCH": "`match`",
    "RETURN": "`return`",
    "ORDER": "`order`",
    "SKIP": "`skip`",
    "LIMIT": "`limit`",
    "INSERT": "`insert`",
    "UPDATE": "`update`",
    "DELETE": "`delete`",
    "SET": "`set`",
    "WHERE": "`where`",
    "IDENT": "a name",
    "TYPE": "a type name",
    "VARIABLE": "a variable",
    "ANNOTATION": "`@description` or `@instruction`",
    "STRING": "a string",
    "INTEGER": "a number",
    "FLOAT": "a number",
    "DATE": "a date",
    "DATETIME": "a date",
    "TRUE": "a boolean",
    "FALSE": "a boolean",
    "NULL": "`null`",
    "NOW": "a function call",
    "NEAREST": "a function call",
    "BM25": "a function call",
    "RRF": "a function call",
    "SEARCH": "a function call",
    "FUZZY": "a function call",
    "MATCH_TEXT": "a function call",
    "COUNT": "a function call",
    "COLLECT": "a function call",
    "SUM": "a function call",
    "AVG": "a function call",
    "MIN": "a function call",
    "MAX": "a function call",
    "EQ": "a comparison",
    "NE": "a comparison",
    "LT": "a comparison",
    "LE": "a comparison",
    "GT": "a comparison",
    "GE": "a comparison",
    "CONTAINS": "`contains`",
    "STARTS_WITH": "`starts_with`",
    "IN": "`in`",
    "IS": "`is`",
    "AND": "`and`",
    "OR": "`or`",
    "NOT": "`not`",
    "OPTIONAL": "`optional`",
    "DISTINCT": "`distinct`",
    "AS": "`as`",
    "ASC": "`asc`",
    "DESC": "`desc`",
    "VECTOR": "`Vector`",
    "NULLABLE": "`?`",
    "DOT": "`.`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "$END": "the end of the file",
}

# Every rule through which the AST gets deeper. Brackets are counted in the text already, but a chain of `not`
# needs none, and two of these may share one pair.
_DEEPENING = frozenset(
    {
        "aggregate",
        "aggregate_distinct",
        "and_",
        "bm25",
        "list_literal",
        "nearest",
        "negation",
        "not_",
        "optional",
        "or_",
        "rrf",
        "text_call",
    }
)


def parse_queries(source: Source) -> ast.QueryFile:
    """Parse a text of any number of queries; no name is resolved yet.

    Raises `LanguageError` with everything that is wrong: one syntax error for each query that has any, and
    every literal, parameter type or annotation that cannot stand. Time is linear in the length of the text;
    no input raises anything else.

    >>> parse_queries(Source("query all() { match { $p: Person } return { $p.name } }")).queries[0].name
    'all'
    """
    tree, found = parse_with_recovery(_parser(), source, _STARTS, _WORDS)
    diagnostics = Diagnostics(source, "parse")
    diagnostics.found.extend(found)
    parsed = ast.QueryFile()
    if tree is not None and not _too_deep(tree, diagnostics):
        parsed = QueryBuilder(diagnostics).transform(tree)
    diagnostics.raise_if_any()
    return parsed


@cache
def _parser() -> Lark:
    return make_parser(QUERY_GRAMMAR)


def _too_deep(tree: ParseTree, diagnostics: Diagnostics) -> bool:
    """Report the first construct that is nested too deep; later phases may then recurse over the AST."""
    left = [(tree, 0)]
    while left:
        node, depth = left.pop()
        if node.data in _DEEPENING:
            depth += 1
            if depth > MAX_NESTING:
                diagnostics.add(meta_span(node.meta), f"nesting deeper than {MAX_NESTING} levels")
                return True
        left.extend((child, depth) for child in reversed(node.children) if isinstance(child, Tree))
    return False
