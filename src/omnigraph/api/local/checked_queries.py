"""A cache of parsed and type-checked query texts."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from omnigraph.errors import InvalidInput
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.foreign.equivalent import equivalent_query, foreign_language
from omnigraph.lang.gq.bare_query import query_source
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.suggestions import did_you_mean

if TYPE_CHECKING:
    from omnigraph.catalog.catalog import Catalog
    from omnigraph.lang import ir
    from omnigraph.lang.schema import Schema

_KEPT = 512
# Member of an error's details that says why the query of a call cannot be run: `ambiguous`, `read` or `mutation`.
SELECTION: Final = "query_selection"


class CheckedQueries:
    """A thread-safe LRU cache of checked queries by schema, text and name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: LRUCache[tuple[str, str, str | None], ir.CheckedQuery] = LRUCache(_KEPT)

    def get(self, text: str, name: str | None, catalog: Catalog) -> ir.CheckedQuery:
        """Return a checked query of a text. `name` selects it if the text has several.

        Raises `LanguageError` if the query is invalid, and `InvalidInput` if the text has no such query.
        """
        key = (catalog.fingerprint, text, name)
        with self._lock:
            found = self._known.get(key)
        if found is None:
            found = _check(text, name, catalog.schema)
            with self._lock:
                self._known[key] = found
        return found


def _check(text: str, name: str | None, schema: Schema) -> ir.CheckedQuery:
    source = query_source(text)
    try:
        queries = parse_queries(source).queries
    except LanguageError as error:
        raise _with_equivalent(error, text, schema) from error
    if not queries:
        raise InvalidInput("the text holds no query")
    if name is None:
        if len(queries) > 1:
            names = ", ".join(item.name for item in queries)
            raise InvalidInput(
                f"the text holds several queries: {names}",
                details={SELECTION: "ambiguous", "queries": [item.name for item in queries]},
                hint="choose one by name",
            )
        return check_query(queries[0], schema, source)
    chosen = next((item for item in queries if item.name == name), None)
    if chosen is None:
        tail = did_you_mean(name, [item.name for item in queries])
        raise InvalidInput(f"no query is called `{name}`{tail}")
    return check_query(chosen, schema, source)


def _with_equivalent(error: LanguageError, text: str, schema: Schema) -> LanguageError:
    """Return the error with a hint, if the text is in another query language: the equivalent that would run."""
    language = foreign_language(text)
    if language is None:
        return error
    hint = f"this looks like {language}; queries are written in .gq: match {{ $a: Type }} return {{ $a.* }}"
    equivalent = equivalent_query(text, language, schema)
    if equivalent is not None:
        with suppress(LanguageError):
            source = query_source(equivalent)
            check_query(parse_queries(source).queries[0], schema, source)
            hint = f"this looks like {language}; in .gq it is\n    {equivalent}"
    return LanguageError([replace(error.diagnostics[0], hint=hint)])
