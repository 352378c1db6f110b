"""Recognize a Cypher or SQL text, and find the query in `.gq` that does the same."""

from __future__ import annotations

import re
from typing import Final

from omnigraph.lang.foreign.cypher import CypherQuery
from omnigraph.lang.foreign.known_names import KnownNames
from omnigraph.lang.foreign.sql import SqlStatement
from omnigraph.lang.foreign.tokens import Untranslatable, read_tokens
from omnigraph.lang.schema import Schema

# A longer text is not translated: the equivalent is for a message.
_LONGEST: Final = 2_000
_COMMENTS: Final = r"(?:\s|--[^\n]*+|//[^\n]*+|/\*.*?\*/)*+"
_CYPHER: Final = re.compile(rf"{_COMMENTS}(?:optional\s+)?(?:match|create|merge)\s*\(", re.I | re.S)
_SQL: Final = re.compile(
    rf"{_COMMENTS}(?:select\b|insert\s+into\b|delete\s+from\b|update\s+\w+\s+set\s+(?!\{{)|with\s+\w+\s+as\b)",
    re.I | re.S,
)


def foreign_language(text: str) -> str | None:
    """Return the language of a text that is no `.gq`: Cypher, SQL, or None if it is neither.

    >>> foreign_language("MATCH (p:Person) RETURN p"), foreign_language("select * from Person")
    ('Cypher', 'SQL')
    >>> foreign_language("match { $p: Person } return { $p.name }") is None
    True
    """
    if _CYPHER.match(text):
        return "Cypher"
    return "SQL" if _SQL.match(text) else None


def equivalent_query(text: str, language: str, schema: Schema) -> str | None:
    """Return the query in `.gq` that does the same, with the names of the schema.

    Returns None for a text that is long or that has a shape that is not known. The caller checks the types.
    """
    if len(text) > _LONGEST:
        return None
    translation = CypherQuery if language == "Cypher" else SqlStatement
    try:
        return translation(read_tokens(text), KnownNames.of(schema)).translate()
    except Untranslatable:
        return None
