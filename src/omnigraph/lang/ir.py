"""The typed intermediate representation (IR) of a checked query: immutable nodes, all names resolved.

Node classes share names with the AST (`lang.gq.query_ast`). Import both as modules, `ir` and `ast`.

Consumers can rely on these invariants:

- the steps of a pattern are ordered so that earlier steps bind the inputs of every step;
- an `Expand` starts from a bound variable; its target is new, or with `target_bound` the step is a filter;
- `type` of an expression is its exact type, nullable when the value may be missing in any row;
- dates are days and datetimes milliseconds since the epoch, as `int`;
- `Output` names are unique and in projection order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from omnigraph.lang.schema import SIMPLE_TEXT, Embed, Metric, TextAnalysis
from omnigraph.lang.types import BOOL, DATETIME, F64, I64, STRING, PropType

Value: TypeAlias = str | int | float | bool | tuple["Value", ...] | None
CompareOp: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
Direction: TypeAlias = Literal["out", "in", "both"]
EntityKind: TypeAlias = Literal["node", "edge"]
AggregateFn: TypeAlias = Literal["count", "sum", "avg", "min", "max", "collect"]
FusionFn: TypeAlias = Literal["rrf", "fuse"]
NearestFn: TypeAlias = Literal["nearest", "l2", "cosine", "dot"]
TextFn: TypeAlias = Literal["search", "fuzzy", "match_text"]

FUSION_DEPTH = 1_000
"""The best entities of a ranking that a fusion considers, unless the query says otherwise or returns more rows."""
MAX_FUSION_DEPTH = 10_000

# --- expressions -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Const:
    """A literal, converted to its type."""

    value: Value
    type: PropType


@dataclass(frozen=True, slots=True)
class ParamRef:
    """A parameter. When it is used with an enum property, its type has the enum values and its value is checked."""

    name: str
    type: PropType


@dataclass(frozen=True, slots=True)
class Now:
    """The timestamp of the operation, the same for all rows."""

    type: PropType = DATETIME


@dataclass(frozen=True, slots=True)
class PropertyRef:
    """A property of a bound node or edge."""

    variable: str
    property: str
    type: PropType


@dataclass(frozen=True, slots=True)
class EntityRef:
    """The id of a bound node. Nullable when the node is bound in an optional pattern."""

    variable: str
    type_name: str
    type: PropType = STRING


@dataclass(frozen=True, slots=True)
class OutputRef:
    """A result column, by name."""

    name: str
    type: PropType


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of the row that a mutation predicate tests; `from` and `to` are the endpoints of an edge."""

    name: str
    type: PropType


@dataclass(frozen=True, slots=True)
class EmbedText:
    """A text that the embedding provider of the graph converts to a vector when the query runs.

    `embed` is the declaration of the property `name` of the node type `owner` that the vector is compared with.
    """

    text: Expr
    embed: Embed | None
    type: PropType
    owner: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How a vector index is searched: constants, or None for the default. They never change a distance.

    With `exact` no index is used. `nprobes` is the number of partitions that are searched, and `refine` the number
    of rows for each result whose exact distance is computed.
    """

    exact: Expr | None = None
    nprobes: Expr | None = None
    refine: Expr | None = None


@dataclass(frozen=True, slots=True)
class Nearest:
    """Distance of a vector property to a query vector, lower is nearer; null vectors never match.

    The distance is the squared L2 distance, 1 - cosine, or 1 - dot product.
    """

    field: PropertyRef
    query: Expr
    type: PropType = F64
    metric: Metric = "l2"
    options: SearchOptions = SearchOptions()


@dataclass(frozen=True, slots=True)
class TextField:
    """A text property that is searched, how its words become tokens, and the factor of its scores."""

    ref: PropertyRef
    analysis: TextAnalysis = SIMPLE_TEXT
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Bm25:
    """BM25 score of one or more text properties of a node; rows without any of the terms are excluded."""

    field: PropertyRef
    query: Expr
    type: PropType = F64
    analysis: TextAnalysis = SIMPLE_TEXT
    boost: float = 1.0
    others: tuple[TextField, ...] = ()

    @property
    def fields(self) -> tuple[TextField, ...]:
        """All searched properties."""
        return (TextField(self.field, self.analysis, self.boost), *self.others)


@dataclass(frozen=True, slots=True)
class Rrf:
    """Fusion of rankings, each with a weight: by reciprocal ranks (``rrf``) or by normalized scores (``fuse``).

    Only the best `depth` entities of each ranking count.
    """

    ranks: tuple[Nearest | Bm25, ...]
    weights: tuple[float, ...]
    k: Expr
    fn: FusionFn = "rrf"
    type: PropType = F64
    depth: Expr = Const(FUSION_DEPTH, I64)


@dataclass(frozen=True, slots=True)
class Snippet:
    """The part of a text with most words of a query, which are highlighted. Only in ``return``."""

    field: PropertyRef
    query: Expr
    analysis: TextAnalysis
    type: PropType = STRING


@dataclass(frozen=True, slots=True)
class TextMatch:
    """True when a text property matches the query. The properties in `others` belong to the same variable."""

    fn: TextFn
    field: PropertyRef
    query: Expr
    max_edits: Expr | None = None
    type: PropType = BOOL
    analysis: TextAnalysis = SIMPLE_TEXT
    boost: float = 1.0
    others: tuple[TextField, ...] = ()

    @property
    def fields(self) -> tuple[TextField, ...]:
        """All searched properties."""
        return (TextField(self.field, self.analysis, self.boost), *self.others)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over the rows of a group. ``count`` of an entity counts rows."""

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
    | Snippet
    | Aggregate
)

# --- predicates: three-valued logic, only true keeps a row -----------------------------------------------


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison: numbers by value across widths, strings by code point, false before true."""

    op: CompareOp
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class ListContains:
    """True when the list contains the item."""

    items: Expr
    item: Expr


@dataclass(frozen=True, slots=True)
class Substring:
    """True when the text contains the part; case-sensitive, without wildcards."""

    text: Expr
    part: Expr


@dataclass(frozen=True, slots=True)
class StartsWith:
    """True when the text starts with the prefix; case-sensitive, without wildcards."""

    text: Expr
    prefix: Expr


@dataclass(frozen=True, slots=True)
class InSet:
    """True when the operand equals one of the items: a list of constants, a list parameter or a list property."""

    operand: Expr
    items: Expr
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """True when the operand is null; never unknown."""

    operand: Expr
    negated: bool = False


@dataclass(frozen=True, slots=True)
class And:
    """True when all items are true."""

    items: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True when at least one item is true."""

    items: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True when the item is false."""

    item: Predicate


Predicate: TypeAlias = (
    Compare | ListContains | Substring | StartsWith | InSet | IsNull | And | Or | Not | TextMatch
)

# --- patterns --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeScan:
    """Bind a variable to every node of a type that satisfies `where`.

    `bound` is true when an earlier step binds the variable; the step then only filters.
    `implicit` is true when the query has no binding and the type is inferred from a traversal.
    """

    variable: str
    type_name: str
    where: tuple[Predicate, ...] = ()
    bound: bool = False
    implicit: bool = False


@dataclass(frozen=True, slots=True)
class Expand:
    """Follow an edge type from a bound node.

    Without `edge_variable` each target occurs at most once per incoming row, when its shortest distance is
    within `min` to `max`; the source counts as visited at distance 0. With `edge_variable` there is one row per
    edge.
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
    """Keep the rows for which the predicate is true."""

    predicate: Predicate


@dataclass(frozen=True, slots=True)
class AntiJoin:
    """Keep the rows for which the pattern has no match with the outer bindings fixed."""

    pattern: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class OptionalMatch:
    """Left join: extend each row by the matches of the pattern, or by nulls for `introduces` without a match."""

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
    """A variable of the pattern and the type it is bound to."""

    name: str
    kind: EntityKind
    type_name: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Entity:
    """A result column with whole nodes or edges. Nullable when the variable is bound in an optional pattern.

    `endpoints` are the node types at the two ends of an edge type.
    """

    name: str
    kind: EntityKind
    type_name: str
    nullable: bool = False
    endpoints: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """A result column. `label` and `kind` are its name and value kind in operation descriptors.

    An output of an entity is a field of the result column of that name; the outputs of one entity are adjacent, and
    the first is its id.
    """

    name: str
    expr: Expr
    label: str
    kind: str
    entity: Entity | None = None

    @property
    def type(self) -> PropType:
        """Type of the column."""
        return self.expr.type


@dataclass(frozen=True, slots=True)
class Order:
    """A sort key; nulls come first ascending, last descending."""

    expr: Expr
    descending: bool = False


@dataclass(frozen=True, slots=True)
class EntityType:
    """A type that an operation reads or writes."""

    kind: EntityKind
    type_name: str


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """A checked read query.

    `aggregated` is true when rows are grouped by the outputs that are not aggregates. When the read is neither
    aggregated nor distinct, ties in the ordering are broken by the ids of `variables` in alphabetical order.
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
    """Assignment of a value to a property of type `type`."""

    property: str
    value: Expr
    type: PropType


@dataclass(frozen=True, slots=True)
class InsertNode:
    """Insert a node. With a key this is an upsert of the whole row; unassigned properties become null."""

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
    """Set properties of every matching node."""

    type_name: str
    assigns: tuple[Assign, ...]
    where: Predicate


@dataclass(frozen=True, slots=True)
class UpdateEdge:
    """Set properties of every matching edge of a type with a key."""

    type_name: str
    assigns: tuple[Assign, ...]
    where: Predicate


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Delete every matching node and all edges of the types in `cascades` that are incident to one."""

    type_name: str
    where: Predicate
    cascades: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteEdge:
    """Delete every matching edge."""

    type_name: str
    where: Predicate


Statement: TypeAlias = InsertNode | InsertEdge | UpdateNode | UpdateEdge | DeleteNode | DeleteEdge


@dataclass(frozen=True, slots=True)
class MutationQuery:
    """A checked mutation query; its statements run in order and form one commit."""

    name: str
    params: tuple[Param, ...]
    statements: tuple[Statement, ...]
    reads: tuple[EntityType, ...]
    writes: tuple[EntityType, ...]
    description: str | None = None
    instruction: str | None = None


CheckedQuery: TypeAlias = ReadQuery | MutationQuery
