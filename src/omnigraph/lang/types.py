"""Value types of both languages and their names in Arrow, Spark, JSON and descriptors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, TypeAlias

MAX_VECTOR_DIM = 2_147_483_647


class Scalar(Enum):
    """A base type; the value is its name in source text."""

    STRING = "String"
    BLOB = "Blob"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATETIME = "DateTime"
    DATE = "Date"
    VECTOR = "Vector"


@dataclass(frozen=True, slots=True)
class TypeNames:
    """Names of a scalar type outside the languages.

    `arrow` is a pyarrow type name, `spark` a DDL type, `json` the accepted JSON type, `kind` the value kind in
    operation descriptors. Spark has no unsigned types: U32 maps to BIGINT and U64 to DECIMAL(20,0), which hold
    every value.
    """

    arrow: str
    spark: str
    json: str
    kind: str


TYPE_NAMES: dict[Scalar, TypeNames] = {
    Scalar.STRING: TypeNames("string", "STRING", "string", "string"),
    Scalar.BLOB: TypeNames("large_binary", "BINARY", "string", "blob"),
    Scalar.BOOL: TypeNames("bool_", "BOOLEAN", "boolean", "bool"),
    Scalar.I32: TypeNames("int32", "INT", "integer", "int"),
    Scalar.I64: TypeNames("int64", "BIGINT", "integer", "bigint"),
    Scalar.U32: TypeNames("uint32", "BIGINT", "integer", "int"),
    Scalar.U64: TypeNames("uint64", "DECIMAL(20,0)", "integer", "bigint"),
    Scalar.F32: TypeNames("float32", "FLOAT", "number", "float"),
    Scalar.F64: TypeNames("float64", "DOUBLE", "number", "float"),
    Scalar.DATETIME: TypeNames("timestamp[ms]", "TIMESTAMP_NTZ", "string", "datetime"),
    Scalar.DATE: TypeNames("date32", "DATE", "string", "date"),
    Scalar.VECTOR: TypeNames("float32", "FLOAT", "array", "vector"),
}

INT_RANGES: dict[Scalar, tuple[int, int]] = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
F32_MAX = (2 - 2**-23) * 2.0**127
FLOATS = frozenset({Scalar.F32, Scalar.F64})
NUMERIC = frozenset(INT_RANGES) | FLOATS

# Types that a source text can name without arguments; a vector needs its dimension.
BASE_TYPES: dict[str, Scalar] = {scalar.value: scalar for scalar in Scalar if scalar is not Scalar.VECTOR}


@dataclass(frozen=True, slots=True)
class PropType:
    """The type of a property, parameter or expression."""

    scalar: Scalar
    nullable: bool = False
    is_list: bool = False
    dim: int | None = None
    enum_values: tuple[str, ...] | None = None

    @property
    def is_numeric(self) -> bool:
        """Whether values are single numbers."""
        return self.scalar in NUMERIC and not self.is_list

    @property
    def is_enum(self) -> bool:
        """Whether values are limited to a declared set."""
        return self.enum_values is not None

    @property
    def kind(self) -> str:
        """Value kind in operation descriptors."""
        return "list" if self.is_list else TYPE_NAMES[self.scalar].kind

    @property
    def core(self) -> PropType:
        """The same type without `?`."""
        return replace(self, nullable=False) if self.nullable else self

    @property
    def optional(self) -> PropType:
        """The same type with `?`."""
        return self if self.nullable else replace(self, nullable=True)

    @property
    def item(self) -> PropType:
        """Element type of a list."""
        return PropType(self.scalar)

    def __str__(self) -> str:
        """Return the display form used in messages.

        >>> str(PropType(Scalar.I32, is_list=True, nullable=True))
        '[I32]?'
        """
        if self.enum_values is not None:
            text = f"enum({', '.join(self.enum_values)})"
        elif self.scalar is Scalar.VECTOR:
            text = f"Vector({self.dim})"
        else:
            text = self.scalar.value
        if self.is_list:
            text = f"[{text}]"
        return f"{text}?" if self.nullable else text


@dataclass(frozen=True, slots=True)
class ObjectType:
    """The type of a result column with whole nodes or edges: the id, the endpoints of an edge, the properties.

    `endpoints` are the node types at the two ends of an edge type.
    """

    kind: Literal["node", "edge"]
    type_name: str
    fields: tuple[tuple[str, PropType], ...]
    nullable: bool = False
    endpoints: tuple[str, str] | None = None


ColumnType: TypeAlias = PropType | ObjectType

STRING = PropType(Scalar.STRING)
BOOL = PropType(Scalar.BOOL)
I64 = PropType(Scalar.I64)
U64 = PropType(Scalar.U64)
F64 = PropType(Scalar.F64)
DATE = PropType(Scalar.DATE)
DATETIME = PropType(Scalar.DATETIME)


def vector(dim: int) -> PropType:
    """Return the vector type with `dim` dimensions."""
    return PropType(Scalar.VECTOR, dim=dim)


def compatible(left: PropType, right: PropType) -> bool:
    """Return whether two types are comparable: list flags agree, and scalars are equal or both numeric."""
    if left.is_list != right.is_list:
        return False
    if left.scalar is right.scalar:
        return left.dim == right.dim
    return left.scalar in NUMERIC and right.scalar in NUMERIC
