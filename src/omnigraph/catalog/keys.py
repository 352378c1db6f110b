"""Derivation of ids from key values: a canonical string per value, a compact JSON array for several values.

The id of a keyed node or edge depends on its key alone. Independent writers therefore assign the same id to one
entity, and an edge can refer to a node without a lookup. The canonical strings must never change.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_HALF_EVEN, ROUND_UP, Context, Decimal
from typing import Any

from omnigraph.catalog.catalog import Catalog, Column, Table
from omnigraph.errors import ErrorLocation, InvalidInput, NotFound
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.temporal import days_of, millis_of
from omnigraph.lang.types import FLOATS, INT_RANGES, PropType, Scalar

# Nine significant digits distinguish any two float32 values.
_F32_DIGITS = 9

# Ranges of the stored integers; dates and datetimes are stored as integers.
_WIDTHS = {**INT_RANGES, Scalar.DATE: INT_RANGES[Scalar.I32], Scalar.DATETIME: INT_RANGES[Scalar.I64]}


@dataclass(frozen=True, slots=True)
class TypeKey:
    """The key of a node or edge type; its columns are ordered as in ids, not as declared.

    The endpoints of an edge come first, the source before the target. The properties follow by their ids.
    """

    kind: TypeKind
    type_name: str
    columns: tuple[Column, ...]

    @property
    def is_pair(self) -> bool:
        """Whether the endpoints of an edge are its key."""
        return self.kind == "edge" and [column.name for column in self.columns] == ["src", "dst"]


def node_key(catalog: Catalog, type_name: str) -> TypeKey | None:
    """Return the key of a node type, or None for a keyless type."""
    return table_id_key(catalog, catalog.table("node", type_name))


def table_id_key(catalog: Catalog, table: Table) -> TypeKey | None:
    """Return the key that the ids of a table are derived from, or None for a type without a key."""
    schema = catalog.schema
    entity = schema.node(table.name) if table.kind == "node" else schema.edge(table.name)
    if entity is None:
        raise NotFound(f"unknown {table.kind} type '{table.name}'")
    if entity.key is None:
        return None
    members = [column for column in table.columns if column.name in entity.key]
    # Property ids survive renames, so that a rename does not change ids. Endpoint columns have none and stay first.
    columns = sorted(members, key=lambda column: column.property_id or 0)
    return TypeKey(table.kind, table.name, tuple(columns))


def endpoint_key(catalog: Catalog, edge_name: str, end: str) -> TypeKey | None:
    """Return the key of the nodes at the endpoint ``src`` or ``dst`` of an edge type; None for keyless nodes."""
    edge = catalog.schema.edge(edge_name)
    if edge is None:
        raise NotFound(f"unknown edge type '{edge_name}'")
    return node_key(catalog, edge.source if end == "src" else edge.target)


def integer_key(key: TypeKey | None) -> Column | None:
    """Return the column of a key that is a single integer, or None. Such an integer is accepted as an id."""
    if key is None or len(key.columns) != 1 or key.columns[0].type.scalar not in INT_RANGES:
        return None
    return key.columns[0]


def derive_id(key: TypeKey, values: Mapping[str, Any]) -> str:
    """Return the id of a node or edge with these values; the endpoints of an edge are ``src`` and ``dst``.

    Raises `InvalidInput` for a missing or null key value, a wrong type, a value out of range, NaN and infinity.
    """
    texts = []
    for column in key.columns:
        value = values.get(column.name)
        if value is None:
            raise InvalidInput(missing_key(key))
        try:
            texts.append(canonical_text(value, column.type, column.name))
        except InvalidInput as error:
            raise error.located(ErrorLocation(type=key.type_name)) from None
    return texts[0] if len(texts) == 1 else join_texts(texts)


def id_text(value: Any) -> str:
    """Return an id that a caller passes as text or as the integer of a key.

    >>> id_text("ana"), id_text(10248)
    ('ana', '10248')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    raise InvalidInput(
        f"expected an id as text, got {type(value).__name__}",
        hint="the id of a keyed node is derived from its key",
    )


def missing_key(key: TypeKey) -> str:
    """Return the message for a missing key value."""
    return f"{key.kind} {key.type_name} is missing a non-null @key value"


def join_texts(texts: list[str]) -> str:
    """Return the id of a composite key from its canonical strings.

    >>> join_texts(["7", "acme"])
    '["7","acme"]'
    """
    return json.dumps(texts, separators=(",", ":"), ensure_ascii=False)


def canonical_text(value: Any, prop_type: PropType, name: str = "value") -> str:
    """Return the canonical string of a key value; `name` is the property in messages.

    A Date may be a `date` or days since the epoch, a DateTime a `datetime` or milliseconds since the epoch.

    >>> canonical_text(-0.0, PropType(Scalar.F64)), canonical_text(date(1969, 12, 31), PropType(Scalar.DATE))
    ('0', '-1')
    """
    scalar = prop_type.scalar
    if scalar is Scalar.STRING and isinstance(value, str):
        return _unicode(value, name)
    if scalar is Scalar.BOOL and isinstance(value, bool):
        return "true" if value else "false"
    if scalar in FLOATS and isinstance(value, int | float) and not isinstance(value, bool):
        return float_text(value, scalar, name)
    if scalar is Scalar.DATETIME and isinstance(value, datetime):
        try:
            return str(millis_of(value))
        except InvalidInput as error:
            raise error.located(ErrorLocation(property=name)) from None
    if scalar is Scalar.DATE and isinstance(value, date) and not isinstance(value, datetime):
        return str(days_of(value))
    if scalar in _WIDTHS and isinstance(value, int) and not isinstance(value, bool):
        low, high = _WIDTHS[scalar]
        if not low <= value <= high:
            raise InvalidInput(f"key property '{name}': {value} is out of range for {prop_type}")
        return str(value)
    raise InvalidInput(f"key property '{name}' expects {prop_type}, got {value!r}")


def _unicode(value: str, name: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"key property '{name}' is not valid Unicode text") from error
    return value


def float_text(value: int | float, scalar: Scalar, name: str = "value") -> str:
    """Return the shortest decimal without exponent that reads back as the same float of the stored width.

    >>> float_text(0.1, Scalar.F32), float_text(1e22, Scalar.F64), float_text(2.0, Scalar.F64)
    ('0.1', '10000000000000000000000', '2')
    """
    try:
        stored = _as_f32(value) if scalar is Scalar.F32 else float(value)
    except OverflowError:
        stored = math.inf
    if not math.isfinite(stored):
        raise InvalidInput(f"key property '{name}' must be a finite {scalar.value}, got {value!r}")
    if stored == 0:
        return "0"
    text = format(_shortest_f32(stored) if scalar is Scalar.F32 else Decimal(repr(stored)), "f")
    return text.rstrip("0").removesuffix(".") if "." in text else text


def _as_f32(value: int | float) -> float:
    packed: tuple[float] = struct.unpack("f", struct.pack("f", value))
    return packed[0]


def _shortest_f32(stored: float) -> Decimal:
    exact = Decimal(stored)
    for digits in range(1, _F32_DIGITS):
        # The nearest decimal is not always sufficient: floats above a power of two are twice as far apart as
        # below it, so that a decimal rounded up can read back when the nearer one, below, does not.
        for rounding in (ROUND_HALF_EVEN, ROUND_UP):
            candidate = Context(prec=digits, rounding=rounding).plus(exact)
            if _reads_back(candidate, stored):
                return candidate
    return Context(prec=_F32_DIGITS).plus(exact)


def _reads_back(candidate: Decimal, stored: float) -> bool:
    try:
        return _as_f32(float(candidate)) == stored
    except OverflowError:
        return False
