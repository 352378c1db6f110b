"""Parser of `.gq` texts. It reports all syntax errors of a text together."""

from __future__ import annotations

from functools import cache

from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.query_builder import QueryBuilder
from omnigraph.lang.lalr_parser import LalrParser
from omnigraph.lang.parser_tables import QUERY_GRAMMAR, load_tables
from omnigraph.lang.parsing import parse_with_recovery
from omnigraph.lang.source import Source

STARTS = frozenset({"query"})

# Names of the terminals in messages, in the order in which messages list them.
TERMINAL_NAMES = {
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
    "COSINE": "a function call",
    "DOT_PRODUCT": "a function call",
    "L2": "a function call",
    "BM25": "a function call",
    "RRF": "a function call",
    "FUSE": "a function call",
    "SNIPPET": "a function call",
    "SEARCH": "a function call",
    "FUZZY": "a function call",
    "MATCH_TEXT": "a function call",
    "COUNT": "a function call",
    "COLLECT": "a function call",
    "SUM": "a function call",
    "AVG": "a function call",
    "MIN": "a function call",
    "MAX": "a function call",
    "CIRCUMFLEX": "`^`",
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
    "STAR": "`*`",
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

# Rules that add a level to the AST. `check_nesting` counts brackets, but a chain of `not` has none, and two of
# these rules may share one pair.
_NESTING_RULES = frozenset(
    {
        "aggregate",
        "aggregate_distinct",
        "and_",
        "bm25",
        "fields",
        "list_literal",
        "nearest",
        "negation",
        "not_",
        "optional",
        "or_",
        "rrf",
        "snippet",
        "text_call",
    }
)


def parse_queries(source: Source) -> ast.QueryFile:
    """Parse a text with any number of queries, without resolving names.

    Raises `LanguageError` with all errors: at most one syntax error per query, and every invalid literal,
    parameter type and annotation. No input raises another exception. Time is linear in the length of the text.

    >>> parse_queries(Source("query all() { match { $p: Person } return { $p.name } }")).queries[0].name
    'all'
    """
    parsed: ast.QueryFile | None
    parsed, diagnostics = parse_with_recovery(_parser(), source, QueryBuilder, STARTS, TERMINAL_NAMES)
    diagnostics.raise_if_any()
    return parsed or ast.QueryFile()


@cache
def _parser() -> LalrParser:
    return LalrParser(load_tables(QUERY_GRAMMAR), QueryBuilder, _NESTING_RULES)
