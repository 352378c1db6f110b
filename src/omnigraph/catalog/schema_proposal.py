"""A schema text proposed for sample rows: types, nullability, keys and edges, for a person to review."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InvalidInput
from omnigraph.lang.literal_syntax import quote
from omnigraph.lang.pg.schema_properties import ENDPOINT_WORDS, PHYSICAL_COLUMNS
from omnigraph.lang.schema import TypeKind

# The column with the id of a row.
ID = "id"
# Names of the columns with the endpoints of an edge, by pairs.
ENDPOINT_PAIRS = (("from", "to"), ("src", "dst"), ("source", "target"))
_KEY_NAMES = ("key", "uuid", "code", "slug", "email", "name")
_KEY_TYPES = frozenset({"String", "I32", "I64", "U32", "U64"})
_SCALARS: tuple[tuple[pa.DataType, str], ...] = (
    (pa.string(), "String"), (pa.large_string(), "String"), (pa.string_view(), "String"), (pa.bool_(), "Bool"),
    (pa.int8(), "I32"), (pa.int16(), "I32"), (pa.int32(), "I32"), (pa.int64(), "I64"),
    (pa.uint8(), "U32"), (pa.uint16(), "U32"), (pa.uint32(), "U32"), (pa.uint64(), "U64"),
    (pa.float16(), "F32"), (pa.float32(), "F32"), (pa.float64(), "F64"),
    (pa.date32(), "Date"), (pa.date64(), "Date"),
    (pa.binary(), "Blob"), (pa.large_binary(), "Blob"), (pa.null(), "String"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of one type. `is_edge` is true for records that are known to be edges, with ``from`` and ``to``."""

    name: str
    rows: pa.Table
    is_edge: bool = False


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    source: str
    type: str | None
    nullable: bool
    arrow: str


def propose_schema(samples: Sequence[Sample]) -> str:
    """Return the text of a schema for sample rows.

    A column without nulls is required. A text or integer column with distinct values becomes the key of a node
    type; names such as ``code`` or ``email`` come first. A column ``id`` has the ids of the rows and needs no key.
    A sample with two endpoint columns is an edge type between the node types whose keys have those values.

    >>> cities = pa.table({"name": ["Bern", "Chur"], "inhabitants": [134_000, None]})
    >>> print(propose_schema([Sample("City", cities)]), end="")
    node City {
      name: String @key
      inhabitants: I64?
    }
    """
    edges = [sample for sample in samples if _endpoints(sample) is not None]
    nodes = [sample for sample in samples if sample not in edges]
    parts: list[str] = []
    keys: dict[str, pa.ChunkedArray] = {}
    for sample in nodes:
        columns = _columns(sample, "node")
        key = None if ID in sample.rows.column_names else _find_key(sample, columns)
        ids = ID if key is None else key.source
        if ids in sample.rows.column_names:
            keys[sample.name] = sample.rows.column(ids).cast(pa.string())
        parts.append(_declaration(f"node {sample.name}", columns, key))
    for sample in edges:
        source, target = _endpoints(sample) or ("", "")
        ends = " -> ".join(_owner(sample, column, keys) for column in (source, target))
        columns = [item for item in _columns(sample, "edge") if item.source not in (source, target)]
        parts.append(_declaration(f"edge {sample.name}: {ends}", columns, None))
    return "\n".join(parts)


def type_name(text: str) -> str:
    """Return the name of a type for rows from a file or table of this name.

    >>> type_name("order_items"), type_name("customers-2024"), type_name("glass"), type_name("2nd")
    ('OrderItem', 'Customers2024', 'Glass', 'T2nd')
    """
    words = re.findall(r"[A-Za-z0-9]+", text) or ["Type"]
    name = "".join(word[:1].upper() + word[1:] for word in words)
    if name.endswith("s") and not name.endswith(("ss", "us", "is")) and len(name) > 3:
        name = name[:-1]
    return name if name[0].isalpha() else f"T{name}"


def _columns(sample: Sample, kind: TypeKind) -> list[_Column]:
    columns: list[_Column] = []
    taken: set[str] = set()
    for field, values in zip(sample.rows.schema, sample.rows.columns, strict=True):
        if field.name == ID:
            # It is the id of the row, which is not a property.
            continue
        name = _property_name(field.name, kind)
        while name in taken:
            name += "_"
        taken.add(name)
        nullable = values.null_count > 0 or len(values) == 0
        type_ = _property_type(field.type)
        if pa.types.is_decimal(field.type) and _are_integers(values):
            # Databases without integers, such as Oracle, have wide decimals in their place.
            type_ = "I64"
        columns.append(_Column(name, field.name, type_, nullable, str(field.type)))
    return columns


def _property_name(text: str, kind: TypeKind) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
    name = name[:1].lower() + name[1:] if not name.isupper() else name.lower()
    if not name or name[0].isdigit():
        name = f"p_{name}"
    return f"{name}_" if name in {*PHYSICAL_COLUMNS[kind], *ENDPOINT_WORDS} else name


def _property_type(type_: pa.DataType) -> str | None:
    """Return the type of the property for a column, or None if no property type holds its values."""
    if pa.types.is_dictionary(type_):
        return _property_type(type_.value_type)
    if pa.types.is_timestamp(type_):
        return "DateTime"
    if pa.types.is_decimal(type_):
        return "I64" if type_.scale <= 0 and type_.precision <= 18 else "F64"
    if pa.types.is_fixed_size_list(type_) and pa.types.is_floating(type_.value_type):
        return f"Vector({type_.list_size})"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        item = _property_type(type_.value_type)
        return None if item is None or item.startswith(("[", "Vector", "Blob")) else f"[{item}]"
    return next((name for known, name in _SCALARS if known == type_), None)


def _are_integers(decimals: pa.ChunkedArray) -> bool:
    """Return whether decimals without digits after the point are integers of 64 bits. There must be one."""
    if decimals.type.scale > 0 or decimals.null_count == len(decimals):
        return False
    try:
        decimals.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True


def _find_key(sample: Sample, columns: Sequence[_Column]) -> _Column | None:
    def rank(column: _Column) -> tuple[bool, int]:
        owned = {f"{sample.name.lower()}{suffix}" for suffix in ("id", "_id", "key", "_key", "code", "_code")}
        if column.name.lower() in owned:
            return False, 0
        lowered = column.name.lower().removesuffix("_")
        return (False, 1 + _KEY_NAMES.index(lowered)) if lowered in _KEY_NAMES else (True, 0)

    for column in sorted(columns, key=rank):
        if column.type in _KEY_TYPES and not column.nullable:
            values = sample.rows.column(column.source)
            if pc.count_distinct(values).as_py() == len(values):
                return column
    return None


def _endpoints(sample: Sample) -> tuple[str, str] | None:
    """Return the columns with the endpoints of an edge, or None for nodes."""
    names = {name.lower(): name for name in sample.rows.column_names}
    pairs = ENDPOINT_PAIRS[:1] if sample.is_edge else ENDPOINT_PAIRS
    return next(((names[one], names[two]) for one, two in pairs if one in names and two in names), None)


def _owner(sample: Sample, column: str, keys: Mapping[str, pa.ChunkedArray]) -> str:
    """Return the node type whose key has most of the values of an endpoint column."""
    values = pc.unique(sample.rows.column(column).cast(pa.string()))
    found = {
        name: pc.sum(pc.is_in(values, known.combine_chunks())).as_py() or 0 for name, known in keys.items()
    }
    best = max(found, key=lambda name: found[name], default=None)
    if best is None or not found[best]:
        raise InvalidInput(
            f"the column '{column}' of {sample.name} has no values that are keys of a node type",
            hint="give the rows of the node types at both ends too, and a larger sample",
        )
    return best


def _declaration(head: str, columns: Sequence[_Column], key: _Column | None) -> str:
    lines = list(_property_lines(columns, key))
    return "\n".join([f"{head} {{", *(f"  {line}" for line in lines), "}", ""]) if lines else f"{head}\n"


def _property_lines(columns: Sequence[_Column], key: _Column | None) -> Iterator[str]:
    ordered = sorted(columns, key=lambda item: item != key)
    for column in ordered:
        if column.type is None:
            yield f"// column {quote(column.source)} has type {column.arrow}, which no property holds"
            continue
        text = (
            f"{column.name}: {column.type}{'?' if column.nullable else ''}{' @key' if column == key else ''}"
        )
        yield text if column.name == column.source else f"{text}  // column {quote(column.source)}"
