"""The typed IR of a checked query: frozen data, every semantic a node, every name resolved.

Invariants that a consumer may rely on:

- steps of a pattern stand in an order in which every step's inputs are bound by earlier steps;
- an `Expand` starts from a bound variable; its target is either new or, with `target_bound`, a filter;
- `type` on an expression is its exact type, nullable when any row may lack the value;
- dates are days and datetimes milliseconds since the epoch, as `int`;
- `Output` names are unique and in projection order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from omnigraph.lang.types import BOOL, DATETIME, F64, STRING, PropType

Value: TypeAlias = str | int | float | bool | tuple["Value", ...] | None
CompareOp: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
Direction: TypeAlias = Literal["out", "in", "both"]
EntityKind: TypeAlias = Literal["node", "edge"]
AggregateFn: TypeAlias = Literal["count", "sum", "avg", "min", "max", "collect"]
TextFn: TypeAlias = Literal["search", "fuzzy", "match_text"]

# --- expressions -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Const:
    """A literal, already in the form of its type."""

    value: Value
    type: PropType


@dataclass(frozen=True, slots=True)
class ParamRef:
    """A parameter. Where it meets an enum property its type carries the enum: the value is checked on use."""

    name: str
    type: PropType


@dataclass(frozen=True, slots=True)
class Now:
    """The operation's one point in time."""

    type: PropType = DATETIME


@dataclass(frozen=True, slots=True)
class PropertyRef:
    """A property of a bound node or edge."""

    variable: str
    property: str
    type: PropType


@dataclass(frozen=True, slots=True)
class EntityRef:
    """A bound node as a value: its id. Nullable when bound inside an optional pattern."""

    variable: str
    type_name: str
    type: PropType = STRING


@dataclass(frozen=True, slots=True)
class OutputRef:
    """A column of the result, by name."""

    name: str
    type: PropType


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of the row that a mutation's predicate looks at; `from` and `to` are an edge's endpoints."""

    name: str
    type: PropType


@dataclass(frozen=True, slots=True)
class EmbedText:
    """A text turned into a vector by the graph's embedding provider when the query runs."""

    text: Expr
    model: str | None
    type: PropType


@dataclass(frozen=True, slots=True)
class Nearest:
    """Squared L2 distance of a vector property to a query vector; null vectors never match."""

    field: PropertyRef
    query: Expr
    type: PropType = F64


@dataclass(frozen=True, slots=True)
class Bm25:
    """BM25 score of a text property; rows without any term are out."""

    field: PropertyRef
    query: Expr
    type: PropType = F64


@dataclass(frozen=True, slots=True)
class Rrf:
    """Reciprocal rank fusion of two rankings."""

    first: Nearest | Bm25
    second: Nearest | Bm25
    k: Expr
    type: PropType = F64


@dataclass(frozen=True, slots=True)
class TextMatch:
    """True when the text property matches the query's tokens."""

    fn: TextFn
    field: PropertyRef
    query: Expr
    max_edits: Expr | None = None
    type: PropType = BOOL


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A value over the rows of a group. ``count`` of an entity counts rows."""

    fn: AggregateFn
    argument: Expr
    distinct: bool
    type: PropType


Rank: TypeAlias = Nearest | Bm25 | Rrf
Expr: TypeAlias = (
    Const
    | ParamRef
    | Now
    | PropertyRef
    | EntityRef
    | OutputRef
    | ColumnRef
    | EmbedText
    | Nearest
    | Bm25
    | Rrf
    | TextMatch
    | Aggregate
)

# --- predicates: three-valued, a row passes on true alone ------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison by value across numeric widths; strings by code point; false before true."""

    op: CompareOp
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class ListContains:
    """The list has the item among its elements."""

    items: Expr
    item: Expr


@dataclass(frozen=True, slots=True)
class Substring:
    """The text has the part in it, case-sensitively and literally."""

    text: Expr
    part: Expr


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The text begins with the prefix, case-sensitively and literally."""

    text: Expr
    prefix: Expr


@dataclass(frozen=True, slots=True)
class InSet:
    """The operand equals one of the items: constants, or one list-valued parameter or property."""

    operand: Expr
    items: Expr
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """The operand is null; never unknown itself."""

    operand: Expr
    negated: bool = False


@dataclass(frozen=True, slots=True)
class And:
    """All items are true."""

    items: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one item is true."""

    items: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The item is false."""

    item: Predicate


Predicate: TypeAlias = (
    Compare | ListContains | Substring | StartsWith | InSet | IsNull | And | Or | Not | TextMatch
)

# --- patterns --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeScan:
    """Bind a variable to every node of a type that satisfies `where`.

    `bound` is true when an earlier step bound the variable: the step then only filters.
    `implicit` is true when no binding was written and the type follows from a traversal.
    """

    variable: str
    type_name: str
    where: tuple[Predicate, ...] = ()
    bound: bool = False
    implicit: bool = False


@dataclass(frozen=True, slots=True)
class Expand:
    """Follow an edge type from a bound node.

    Without `edge_variable` each target appears at most once per incoming row, at a shortest distance within
    `min` to `max`, the source counting as visited at distance 0. With it there is one row per edge.
    """

    source: str
    edge_type: str
    direction: Direction
    target: str
    target_type: str
    min: int = 1
    max: int = 1
    edge_variable: str | None = None
    target_bound: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the rows on which the predicate is true."""

    predicate: Predicate


@dataclass(frozen=True, slots=True)
class AntiJoin:
    """Keep the rows for which the pattern, with the outer bindings fixed, has no match."""

    pattern: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class OptionalMatch:
    """Extend each row by the matches of the pattern, or by nulls for `introduces` when it has none."""

    pattern: tuple[Step, ...]
    introduces: tuple[str, ...]


Step: TypeAlias = NodeScan | Expand | Filter | AntiJoin | OptionalMatch

# --- queries ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Param:
    """A declared parameter."""

    name: str
    type: PropType


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the pattern with what it ranges over."""

    name: str
    kind: EntityKind
    type_name: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """One result column. `kind` and `label` are what a descriptor says of it."""

    name: str
    expr: Expr
    label: str
    kind: str

    @property
    def type(self) -> PropType:
        """The column's type."""
        return self.expr.type


@dataclass(frozen=True, slots=True)
class Order:
    """One ordering item: nulls first ascending, last descending."""

    expr: Expr
    descending: bool = False


@dataclass(frozen=True, slots=True)
class EntityType:
    """A type that an operation touches."""

    kind: EntityKind
    type_name: str


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """A checked read.

    `aggregated` says that rows are grouped by the outputs that are not aggregates. Ordering is made total by the
    ids of `variables` in alphabetical order when the read is neither aggregated nor distinct.
    """

    name: str
    params: tuple[Param, ...]
    variables: tuple[Variable, ...]
    pattern: tuple[Step, ...]
    outputs: tuple[Output, ...]
    aggregated: bool
    distinct: bool
    order: tuple[Order, ...]
    skip: int | None
    limit: int | None
    reads: tuple[EntityType, ...]
    description: str | None = None
    instruction: str | None = None


@dataclass(frozen=True, slots=True)
class Assign:
    """A property gets a value that must fit `type`, the property's own."""

    property: str
    value: Expr
    type: PropType


@dataclass(frozen=True, slots=True)
class InsertNode:
    """Insert a node; with a key an upsert of the whole row, unassigned properties null."""

    type_name: str
    assigns: tuple[Assign, ...]


@dataclass(frozen=True, slots=True)
class InsertEdge:
    """Insert a new edge between two node ids."""

    type_name: str
    source: Expr
    target: Expr
    assigns: tuple[Assign, ...]


@dataclass(frozen=True, slots=True)
class UpdateNode:
    """Set properties on every node that matches."""

    type_name: str
    assigns: tuple[Assign, ...]
    where: Predicate


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Delete every node that matches, and all edges of `cascades` that touch one of them."""

    type_name: str
    where: Predicate
    cascades: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteEdge:
    """Delete every edge that matches."""

    type_name: str
    where: Predicate


Statement: TypeAlias = InsertNode | InsertEdge | UpdateNode | DeleteNode | DeleteEdge


@dataclass(frozen=True, slots=True)
class MutationQuery:
    """A checked mutation: statements in order, one commit."""

    name: str
    params: tuple[Param, ...]
    statements: tuple[Statement, ...]
    reads: tuple[EntityType, ...]
    writes: tuple[EntityType, ...]
    description: str | None = None
    instruction: str | None = None


CheckedQuery: TypeAlias = ReadQuery | MutationQuery
