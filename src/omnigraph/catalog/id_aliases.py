"""Other ways to write the id of a keyed node, for the permissive loader.

A record may give the id of a keyed node as its key value in another spelling (the ISO form of a Date,
``1.0`` for ``1``) or as one member of a composite key, and edges of the same input may name the node that
way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from omnigraph.catalog.keys import NodeKey, canonical_text, derive_id, join_texts
from omnigraph.errors import InvalidInput
from omnigraph.lang.temporal import parse_date, parse_datetime
from omnigraph.lang.types import FLOATS, PropType, Scalar

_INTEGER = re.compile(r"[+-]?\d+\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)


def typed_text(text: str, prop_type: PropType) -> str | None:
    """The canonical string of a value that is written as text, or None when it is no such value.

    >>> typed_text("1970-01-31", PropType(Scalar.DATE)), typed_text("1.50", PropType(Scalar.F64))
    ('30', '1.5')
    """
    try:
        value = _typed_value(text, prop_type.scalar)
        return None if value is None else canonical_text(value, prop_type)
    except InvalidInput:
        return None


def _typed_value(text: str, scalar: Scalar) -> Any:
    if scalar is Scalar.STRING:
        return text
    if scalar is Scalar.BOOL:
        return {"true": True, "false": False}.get(text)
    if scalar in FLOATS:
        return float(text) if _NUMBER.match(text) else None
    if scalar is Scalar.DATE and (days := parse_date(text)) is not None:
        return days
    if scalar is Scalar.DATETIME and (millis := parse_datetime(text)) is not None:
        return millis
    # Python refuses absurdly long digit strings with a ValueError; no integer type needs more than 20 digits.
    return int(text) if _INTEGER.match(text) and len(text) < 100 else None


def typed_id(key: NodeKey, text: str) -> str | None:
    """The id that a text stands for when it is read as the typed key value, or None when it cannot be.

    A composite key is read from a JSON array of its members in the order of the id.
    """
    if len(key.columns) == 1:
        return typed_text(text, key.columns[0].type)
    try:
        parts = json.loads(text)
    except ValueError:
        return None
    if not isinstance(parts, list) or len(parts) != len(key.columns):
        return None
    if not all(isinstance(part, str) for part in parts):
        return None
    texts = [typed_text(part, column.type) for part, column in zip(parts, key.columns, strict=True)]
    known = [item for item in texts if item is not None]
    return join_texts(known) if len(known) == len(texts) else None


def accepts_id(key: NodeKey, values: Mapping[str, Any], given: str) -> bool:
    """Whether the permissive loader takes `given` as the id of a node with these values.

    The strict loader takes nothing but ``derive_id(key, values)``.
    """
    derived = derive_id(key, values)
    if given == derived or typed_id(key, given) == derived:
        return True
    members = {column.name: canonical_text(values[column.name], column.type) for column in key.columns}
    return any(
        given == members[column.name] or typed_text(given, column.type) == members[column.name]
        for column in key.columns
    )


class IdAliases:
    """How one input writes the ids of its nodes, to rewrite the endpoints of its edges.

    An alias belongs to a node type, so one text may mean different nodes at the two ends of an edge.
    """

    def __init__(self) -> None:
        self._ids: set[tuple[str, str]] = set()
        self._aliases: dict[tuple[str, str], set[str]] = {}

    def add(self, type_name: str, derived: str, given: str | None) -> None:
        """Remember a node of the input and the id its record gave, if any."""
        self._ids.add((type_name, derived))
        if given is not None and given != derived:
            self._aliases.setdefault((type_name, given), set()).add(derived)

    def resolve(self, type_name: str, endpoint: str) -> str:
        """The id that an endpoint of that type means; a text nothing is known about means itself.

        An id of the input is never rewritten. A text that two nodes were given under is `InvalidInput`.
        """
        found = self._aliases.get((type_name, endpoint), set())
        if not found or (type_name, endpoint) in self._ids:
            return endpoint
        if len(found) > 1:
            names = ", ".join(f"'{item}'" for item in sorted(found))
            raise InvalidInput(f"endpoint '{endpoint}' is ambiguous in {type_name}: it may mean {names}")
        return next(iter(found))
