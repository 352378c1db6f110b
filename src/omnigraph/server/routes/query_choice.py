"""Texts of queries that clients send: which of the queries in one is meant."""

from __future__ import annotations

from functools import lru_cache

from omnigraph.errors import InvalidInput
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.source import Source
from omnigraph.lang.suggestions import did_you_mean

SEVERAL = "query file contains multiple queries; pass --name"
IS_READ = "mutation execution called on a read query; use query instead"


def choose_query(text: str, name: str | None, *, mutation: bool) -> str:
    """The name of the query that a text of a client means, when it is of the right kind, else `InvalidInput`.

    >>> choose_query("query all() { match { $p: Person } return { $p.name } }", None, mutation=False)
    'all'
    """
    queries = _outline(text)
    if not queries:
        raise InvalidInput("the text holds no query")
    if name is None and len(queries) > 1:
        raise InvalidInput(SEVERAL, details={"queries": [found for found, _ in queries]})
    chosen = next((item for item in queries if name is None or item[0] == name), None)
    if chosen is None:
        raise InvalidInput(
            f"no query is called `{name}`{did_you_mean(str(name), [found for found, _ in queries])}"
        )
    found, mutates = chosen
    if mutates and not mutation:
        raise InvalidInput(
            f"query '{found}' contains mutations (insert/update/delete); use POST /mutate for write queries"
        )
    if mutation and not mutates:
        raise InvalidInput(IS_READ)
    return found


@lru_cache(maxsize=512)
def _outline(text: str) -> tuple[tuple[str, bool], ...]:
    queries = parse_queries(Source(text, "<query>")).queries
    return tuple((query.name, isinstance(query.body, ast.MutationBody)) for query in queries)
