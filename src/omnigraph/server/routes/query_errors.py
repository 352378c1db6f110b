"""Errors about the choice of a query, with the messages of the HTTP API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from omnigraph.api.local.checked_queries import SELECTION
from omnigraph.errors import InvalidInput
from omnigraph.lang.gq.bare_query import query_source
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.server.http.request_context import RequestContext

# By the reason in the details of the library's error.
_MESSAGES: Mapping[str, str] = {
    "ambiguous": "query file contains multiple queries; pass --name",
    "mutation": "query '{query}' contains mutations (insert/update/delete);"
    " use POST /mutate for write queries",
    "read": "mutation execution called on a read query; use query instead",
}


@contextmanager
def http_query_errors(context: RequestContext) -> Iterator[None]:
    """Replace the library's messages, which name Python methods. The exact encoding keeps them."""
    try:
        yield
    except InvalidInput as error:
        message = _MESSAGES.get(str(error.details.get(SELECTION)))
        if message is None or context.exact:
            raise
        query = error.details.get("query")
        raise InvalidInput(message.format(query=query), details=error.details) from error


def only_query_name(text: str) -> str:
    """Return the name of the only query of a text.

    >>> only_query_name("query all() { match { $p: Person } return { $p.name } }")
    'all'
    """
    return parse_queries(query_source(text)).queries[0].name
