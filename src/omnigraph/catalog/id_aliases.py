"""Alternative forms of the ids of keyed nodes, for the permissive loader.

A record may contain the id of a keyed node as its key value in another form (the ISO form of a Date, ``1.0`` for
``1``) or as one member of a composite key. Edges of the same input may use the same form for their endpoints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from omnigraph.catalog.keys import TypeKey, canonical_text, derive_id, join_texts
from omnigraph.errors import InvalidInput
from omnigraph.lang.temporal import parse_date, parse_datetime
from omnigraph.lang.types import FLOATS, PropType, Scalar

_INTEGER = re.compile(r"[+-]?\d+\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)


def typed_text(text: str, prop_type: PropType) -> str | None:
    """Return the canonical string of a value that is given as text, or None when it does not match the type.

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
    # Python raises ValueError for very long digit strings; no integer type needs more than 20 digits.
    return int(text) if _INTEGER.match(text) and len(text) < 100 else None


def typed_id(key: TypeKey, text: str) -> str | None:
    """Return the id of the node whose key value is given as text, or None when the text does not match the type.

    A composite key is given as a JSON array of its members in the order of the id.
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


def accepts_id(key: TypeKey, values: Mapping[str, Any], explicit: str) -> bool:
    """Return whether the permissive loader accepts an explicit id for a node with these values.

    The strict loader accepts only ``derive_id(key, values)``.
    """
    derived = derive_id(key, values)
    if explicit == derived or typed_id(key, explicit) == derived:
        return True
    members = {column.name: canonical_text(values[column.name], column.type) for column in key.columns}
    return any(
        explicit == members[column.name] or typed_text(explicit, column.type) == members[column.name]
        for column in key.columns
    )


class IdAliases:
    """Explicit ids of the nodes of one input that differ from the derived ids, to rewrite edge endpoints.

    An alias belongs to a node type, so that one text may mean different nodes at the two endpoints of an edge.
    """

    def __init__(self) -> None:
        self._ids: set[tuple[str, str]] = set()
        self._aliases: dict[tuple[str, str], set[str]] = {}

    def add(self, type_name: str, derived: str, explicit: str | None) -> None:
        """Add a node of the input with the explicit id of its record, if any."""
        self._ids.add((type_name, derived))
        if explicit is not None and explicit != derived:
            self._aliases.setdefault((type_name, explicit), set()).add(derived)

    def resolve(self, type_name: str, endpoint: str) -> str:
        """Return the id of an endpoint of that type; an unknown text is returned unchanged.

        Derived ids of the input are never rewritten. Raises `InvalidInput` for an alias of several nodes.
        """
        ids = self._aliases.get((type_name, endpoint), set())
        if not ids or (type_name, endpoint) in self._ids:
            return endpoint
        if len(ids) > 1:
            names = ", ".join(f"'{item}'" for item in sorted(ids))
            raise InvalidInput(f"ambiguous endpoint '{endpoint}' of type {type_name}: matches {names}")
        return next(iter(ids))
