"""The abstract syntax tree (AST) of a `.gq` text, before names are resolved. Equality ignores spans.

Node classes share names with the IR (`lang.ir`). Import both as modules, `ast` and `ir`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal as OneOf
from typing import TypeAlias

from omnigraph.lang.ir import AggregateFn, FusionFn, NearestFn, TextFn
from omnigraph.lang.source import NOWHERE, Span
from omnigraph.lang.types import PropType

CompareOp: TypeAlias = OneOf["=", "!=", "<", "<=", ">", ">=", "contains", "starts_with"]
ANONYMOUS = "_"


def _span() -> Span:
    return field(default=NOWHERE, compare=False, repr=False)


# --- values and expressions ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal. `value` is a str, int, float, bool, None, or for a list a tuple of literals.

    A date or datetime keeps its text in `value`; the type checker validates it.
    """

    kind: OneOf["string", "integer", "float", "bool", "date", "datetime", "list", "null"]
    value: str | int | float | bool | tuple[Literal, ...] | None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Variable:
    """``$name``, a bound variable or a parameter. `name` omits the ``$``; ``_`` is anonymous."""

    name: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class PropertyAccess:
    """``$variable.name``."""

    variable: str
    name: str
    span: Span = _span()
    name_span: Span = _span()


@dataclass(frozen=True, slots=True)
class AllProperties:
    """``$variable.*`` in a `return`."""

    variable: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Now:
    """``now()``."""

    span: Span = _span()


@dataclass(frozen=True, slots=True)
class AliasRef:
    """A bare identifier: the alias of a projection."""

    name: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A bare property name in the ``where`` of a mutation."""

    name: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class SearchOption:
    """``name: value`` in a call of a search."""

    name: str
    value: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Nearest:
    """``nearest($v.vector, query, options)``; ``cosine``, ``dot`` and ``l2`` name their metric."""

    field: PropertyAccess
    query: Expr
    fn: NearestFn = "nearest"
    options: tuple[SearchOption, ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Fields:
    """``[$v.a ^ 2, $v.b]``: the properties that a text function searches, each with an optional boost."""

    items: tuple[PropertyAccess, ...]
    boosts: tuple[Literal | None, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class TextCall:
    """``search(field, query)``, ``match_text(field, query)`` or ``fuzzy(field, query[, max_edits])``."""

    fn: TextFn
    field: Expr | Fields
    query: Expr
    max_edits: Expr | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Bm25:
    """``bm25(field, query)``."""

    field: Expr | Fields
    query: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Snippet:
    """``snippet($v.text, query)``."""

    field: PropertyAccess
    query: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Rrf:
    """``rrf(rank, …[, k], options)`` or ``fuse(rank ^ weight, …, options)``; a rank is `nearest` or `bm25`."""

    ranks: tuple[Nearest | Bm25, ...]
    weights: tuple[Literal | None, ...]
    k: Expr | None = None
    fn: FusionFn = "rrf"
    options: tuple[SearchOption, ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """``count(x)``, ``count(distinct x)``, ``sum(x)``, …, ``collect(x)``, ``collect(distinct x)``."""

    fn: AggregateFn
    argument: Expr
    distinct: bool = False
    span: Span = _span()


Expr: TypeAlias = (
    Literal
    | Variable
    | PropertyAccess
    | Now
    | AliasRef
    | ColumnName
    | Nearest
    | TextCall
    | Snippet
    | Bm25
    | Rrf
    | Aggregate
)

# --- predicates ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compare:
    """``left op right``. In the ``where`` of a mutation `left` is a `ColumnName` and `right` a value."""

    left: Expr
    op: CompareOp
    right: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class InList:
    """``x in [a, b]`` or ``x in $list``; `negated` for ``not in``."""

    operand: Expr
    items: Expr
    negated: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class IsNull:
    """``x is null``; `negated` for ``x is not null``."""

    operand: Expr
    negated: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class And:
    """``a and b and c``: two items or more, none of them an `And`."""

    items: tuple[Predicate, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Or:
    """``a or b or c``: two items or more, none of them an `Or`."""

    items: tuple[Predicate, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Not:
    """``not p``."""

    item: Predicate
    span: Span = _span()


# A text call used as a predicate tests that the call is true.
Predicate: TypeAlias = Compare | InList | IsNull | And | Or | Not | TextCall

# --- clauses of a match ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InlineMatch:
    """``name: value`` in a binding."""

    name: str
    value: Literal | Variable | Now
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Binding:
    """``$v: Type { … }``."""

    variable: Variable
    type_name: str
    matches: tuple[InlineMatch, ...] = ()
    span: Span = _span()
    type_span: Span = _span()


@dataclass(frozen=True, slots=True)
class Traversal:
    """``$a $w:edge{min,max} $b``, undirected with ``<edge>``.

    Without bounds `min` and `max` are None; ``{2,}`` has only a `min`.
    """

    source: Variable
    edge: str
    target: Variable
    edge_variable: Variable | None = None
    undirected: bool = False
    min: int | None = None
    max: int | None = None
    span: Span = _span()
    edge_span: Span = _span()


@dataclass(frozen=True, slots=True)
class Filter:
    """A predicate used as a clause."""

    predicate: Predicate
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Negation:
    """``not { … }``."""

    clauses: tuple[Clause, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Optional:
    """``optional { … }``: a left join; variables bound in it are nullable outside."""

    clauses: tuple[Clause, ...]
    span: Span = _span()


Clause: TypeAlias = Binding | Traversal | Filter | Negation | Optional

# --- queries ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Param:
    """``$name: Type`` or ``$name: Type?``."""

    name: str
    type: PropType
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Projection:
    """``expr as alias``."""

    expr: Expr | AllProperties
    alias: str | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Ordering:
    """``expr asc|desc``; `descending` is None without a direction."""

    expr: Expr
    descending: bool | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ReadBody:
    """``match { … } return [distinct] { … } order { … } skip n limit n``."""

    clauses: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    distinct: bool = False
    order: tuple[Ordering, ...] = ()
    skip: int | None = None
    limit: int | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Assign:
    """``name: value``."""

    name: str
    value: Literal | Variable | Now
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Insert:
    """``insert Type { … }``."""

    type_name: str
    assigns: tuple[Assign, ...]
    span: Span = _span()
    type_span: Span = _span()


@dataclass(frozen=True, slots=True)
class Update:
    """``update Type set { … } where …``."""

    type_name: str
    assigns: tuple[Assign, ...]
    where: Predicate
    span: Span = _span()
    type_span: Span = _span()


@dataclass(frozen=True, slots=True)
class Delete:
    """``delete Type where …``."""

    type_name: str
    where: Predicate
    span: Span = _span()
    type_span: Span = _span()


Statement: TypeAlias = Insert | Update | Delete


@dataclass(frozen=True, slots=True)
class MutationBody:
    """Statements that run in order and form one commit."""

    statements: tuple[Statement, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Query:
    """``query name(params) @description("…") { … }``; `span` covers the name only."""

    name: str
    params: tuple[Param, ...]
    body: ReadBody | MutationBody
    description: str | None = None
    instruction: str | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class QueryFile:
    """All queries of a text, in source order."""

    queries: tuple[Query, ...] = ()
