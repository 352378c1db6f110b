"""Construction of the AST of a `.gq` text: one method per rule of the grammar."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from omnigraph.lang import ir
from omnigraph.lang.diagnostics import Diagnostics
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.lalr_parser import Token
from omnigraph.lang.literal_syntax import shorten, to_float, to_integer, unescape
from omnigraph.lang.source import Span
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.lang.types import BASE_TYPES, MAX_VECTOR_DIM, STRING, PropType, vector

_MAX_COUNT = 2**63 - 1
_ANNOTATIONS = ("description", "instruction")

Node = TypeVar("Node")


def _variable(token: Token) -> ast.Variable:
    return ast.Variable(token[1:], token.span)


def _operand(item: ast.Expr | Token) -> ast.Expr:
    """Return an operand; the grammar leaves a variable and the column name `not` as bare tokens."""
    if not isinstance(item, Token):
        return item
    return _variable(item) if item.type == "VARIABLE" else ast.ColumnName(str(item), item.span)


def _of(kind: type[Node], children: list[Any]) -> tuple[Node, ...]:
    return tuple(child for child in children if isinstance(child, kind))


class QueryBuilder:
    """Builds the AST bottom-up and without recursion; errors are added to the diagnostics."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics

    # --- queries -----------------------------------------------------------------------------------------

    def start(self, _: Span, children: list[ast.Query]) -> ast.QueryFile:
        return ast.QueryFile(tuple(children))

    def query(self, _: Span, children: list[Any]) -> ast.Query:
        name, body = children[0], children[-1]
        texts: dict[str, str] = {}
        for annotation, text in _of(tuple, children):
            kind = annotation[1:]
            if kind not in _ANNOTATIONS:
                known = [f"@{item}" for item in _ANNOTATIONS]
                near = did_you_mean(str(annotation), known)
                self._report(annotation, f"unknown query annotation `{shorten(annotation)}`{near}")
            elif kind in texts:
                self._report(annotation, f"duplicate query annotation `@{kind}`")
            else:
                texts[kind] = text
        return ast.Query(
            name=str(name),
            params=_of(ast.Param, children),
            body=body,
            description=texts.get("description"),
            instruction=texts.get("instruction"),
            span=name.span,
        )

    def annotation(self, _: Span, children: list[Token]) -> tuple[Token, str]:
        name, text = children
        return name, self._text(text)

    def param(self, span: Span, children: list[Any]) -> ast.Param:
        variable, kind, nullable = children
        return ast.Param(variable[1:], kind.optional if nullable else kind, span)

    def scalar_type(self, _: Span, children: list[Token]) -> PropType:
        return self._base(children[0])

    def list_type(self, _: Span, children: list[Token]) -> PropType:
        return PropType(self._base(children[0]).scalar, is_list=True)

    def vector_type(self, _: Span, children: list[Token]) -> PropType:
        token = children[0]
        digits = token.lstrip("0")
        if not digits or digits.startswith("-"):
            self._report(token, "Vector dimension must be greater than zero")
        # The length is checked first, because Python refuses to convert very long texts.
        elif len(digits) > len(str(MAX_VECTOR_DIM)) or int(digits) > MAX_VECTOR_DIM:
            limit = f"exceeds maximum supported {MAX_VECTOR_DIM}"
            self._report(token, f"Vector dimension {shorten(digits)} {limit}")
        else:
            return vector(int(digits))
        return vector(1)

    # --- reads -------------------------------------------------------------------------------------------

    def read(self, span: Span, children: list[Any]) -> ast.ReadBody:
        clauses, (distinct, projections), order, *page = children
        paging = dict(page)
        return ast.ReadBody(
            clauses=clauses,
            projections=projections,
            distinct=distinct,
            order=order or (),
            skip=paging.get("skip"),
            limit=paging.get("limit"),
            span=span,
        )

    def block(self, _: Span, children: list[ast.Clause]) -> tuple[ast.Clause, ...]:
        return tuple(children)

    def return_(self, _: Span, children: list[Any]) -> tuple[bool, tuple[ast.Projection, ...]]:
        distinct, *projections = children
        return distinct is not None, tuple(projections)

    def projection(self, span: Span, children: list[Any]) -> ast.Projection:
        expr, alias = children
        # The comma is part of the rule but not of the projection.
        end = expr.span if alias is None else alias.span
        return ast.Projection(expr, alias and str(alias), Span(span.start, end.end))

    def order(self, _: Span, children: list[ast.Ordering]) -> tuple[ast.Ordering, ...]:
        return tuple(children)

    def ordering(self, span: Span, children: list[Any]) -> ast.Ordering:
        expr, *rest = children
        direction = rest[0] if rest else None
        return ast.Ordering(expr, None if direction is None else direction == "desc", span)

    def skip(self, _: Span, children: list[Token]) -> tuple[str, int]:
        return "skip", self._count(children[0])

    def limit(self, _: Span, children: list[Token]) -> tuple[str, int]:
        return "limit", self._count(children[0])

    # --- clauses -----------------------------------------------------------------------------------------

    def negation(self, span: Span, children: list[tuple[ast.Clause, ...]]) -> ast.Negation:
        return ast.Negation(children[0], span)

    def optional(self, span: Span, children: list[tuple[ast.Clause, ...]]) -> ast.Optional:
        return ast.Optional(children[0], span)

    def binding(self, span: Span, children: list[Any]) -> ast.Binding:
        variable, kind, matches = children
        return ast.Binding(_variable(variable), str(kind), matches or (), span, kind.span)

    def inlines(self, _: Span, children: list[ast.InlineMatch]) -> tuple[ast.InlineMatch, ...]:
        return tuple(children)

    def inline(self, span: Span, children: list[Any]) -> ast.InlineMatch:
        name, value = children
        self._refuse_null(value)
        return ast.InlineMatch(str(name), value, span)

    def directed(self, span: Span, children: list[Any]) -> ast.Traversal:
        source, edge, hops, target = children
        return self._traversal(span, source, None, edge, hops, target)

    def undirected(self, span: Span, children: list[Any]) -> ast.Traversal:
        source, edge, hops, target = children
        return self._traversal(span, source, None, edge, hops, target, undirected=True)

    def directed_bound(self, span: Span, children: list[Any]) -> ast.Traversal:
        return self._traversal(span, *children)

    def undirected_bound(self, span: Span, children: list[Any]) -> ast.Traversal:
        return self._traversal(span, *children, undirected=True)

    def hops(self, _: Span, children: list[Any]) -> tuple[int, int | None]:
        low, high = children
        return self._count(low), None if high is None else self._count(high)

    def filter(self, span: Span, children: list[ast.Predicate]) -> ast.Filter:
        return ast.Filter(children[0], span)

    # --- predicates --------------------------------------------------------------------------------------

    def or_(self, span: Span, children: list[ast.Predicate]) -> ast.Or:
        flat = [part for item in children for part in (item.items if isinstance(item, ast.Or) else (item,))]
        return ast.Or(tuple(flat), span)

    def and_(self, span: Span, children: list[ast.Predicate]) -> ast.And:
        flat = [part for item in children for part in (item.items if isinstance(item, ast.And) else (item,))]
        return ast.And(tuple(flat), span)

    def not_(self, span: Span, children: list[ast.Predicate]) -> ast.Not:
        return ast.Not(children[0], span)

    def compare(self, span: Span, children: list[Any]) -> ast.Compare:
        left, operator, right = children
        self._refuse_null(left)
        self._refuse_null(right)
        return ast.Compare(_operand(left), cast(Any, str(operator)), _operand(right), span)

    def in_(self, span: Span, children: list[Any]) -> ast.InList:
        return self._membership(span, children, negated=False)

    def not_in(self, span: Span, children: list[Any]) -> ast.InList:
        return self._membership(span, children, negated=True)

    def is_null(self, span: Span, children: list[Any]) -> ast.IsNull:
        return self._null_test(span, children[0], negated=False)

    def is_not_null(self, span: Span, children: list[Any]) -> ast.IsNull:
        return self._null_test(span, children[0], negated=True)

    # --- mutations ---------------------------------------------------------------------------------------

    def mutation(self, span: Span, children: list[ast.Insert | ast.Update | ast.Delete]) -> ast.MutationBody:
        return ast.MutationBody(tuple(children), span)

    def insert(self, span: Span, children: list[Any]) -> ast.Insert:
        kind, *assigns = children
        return ast.Insert(str(kind), tuple(assigns), span, kind.span)

    def update(self, span: Span, children: list[Any]) -> ast.Update:
        kind, *assigns, where = children
        return ast.Update(str(kind), tuple(assigns), where, span, kind.span)

    def delete(self, span: Span, children: list[Any]) -> ast.Delete:
        kind, where = children
        return ast.Delete(str(kind), where, span, kind.span)

    def assign(self, span: Span, children: list[Any]) -> ast.Assign:
        name, value = children
        return ast.Assign(str(name), value, Span(span.start, value.span.end))

    def column(self, _: Span, children: list[Token]) -> ast.ColumnName:
        return ast.ColumnName(str(children[0]), children[0].span)

    # --- expressions -------------------------------------------------------------------------------------

    def alias(self, _: Span, children: list[Token]) -> ast.AliasRef:
        return ast.AliasRef(str(children[0]), children[0].span)

    alias_of_function = alias
    alias_of_keyword = alias

    def property(self, span: Span, children: list[Token]) -> ast.PropertyAccess:
        variable, name = children
        return ast.PropertyAccess(variable[1:], str(name), span, name.span)

    def all_properties(self, span: Span, children: list[Token]) -> ast.AllProperties:
        return ast.AllProperties(children[0][1:], span)

    def variable(self, _: Span, children: list[Token]) -> ast.Variable:
        return _variable(children[0])

    def now(self, span: Span, _: list[Token]) -> ast.Now:
        return ast.Now(span)

    def nearest(self, span: Span, children: list[Any]) -> ast.Nearest:
        fn, field, query, *options = children
        return ast.Nearest(field, query, cast(Any, str(fn)), tuple(options), span)

    def search_option(self, span: Span, children: list[Any]) -> ast.SearchOption:
        name, value = children
        return ast.SearchOption(str(name), value, span)

    def text_call(self, span: Span, children: list[Any]) -> ast.TextCall:
        fn, field, query, *rest = children
        return ast.TextCall(cast(Any, str(fn)), field, query, rest[0] if rest else None, span)

    def snippet(self, span: Span, children: list[Any]) -> ast.Snippet:
        field, query = children
        return ast.Snippet(field, query, span)

    def boosted(self, _: Span, children: list[Any]) -> tuple[Any, ast.Literal | None]:
        item, *number = children
        return item, number[0] if number else None

    ranked = boosted

    def fields(self, span: Span, children: list[tuple[Any, ast.Literal | None]]) -> ast.Fields:
        return ast.Fields(tuple(item for item, _ in children), tuple(number for _, number in children), span)

    def bm25(self, span: Span, children: list[Any]) -> ast.Bm25:
        field, query = children
        return ast.Bm25(field, query, span)

    def rrf(self, span: Span, children: list[Any]) -> ast.Rrf:
        fn, *arguments = children
        options = tuple(item for item in arguments if isinstance(item, ast.SearchOption))
        arguments = arguments[: len(arguments) - len(options)]
        k = None if isinstance(arguments[-1], tuple) else arguments.pop()
        ranks = tuple(rank for rank, _ in arguments)
        weights = tuple(weight for _, weight in arguments)
        return ast.Rrf(ranks, weights, k, cast(Any, str(fn)), options, span)

    def aggregate(self, span: Span, children: list[Any]) -> ast.Aggregate:
        fn, argument = children
        if isinstance(argument, Token):
            # In `count(distinct)`, `distinct` is the name of an alias.
            argument = ast.AliasRef(str(argument), argument.span)
        return ast.Aggregate(cast(ir.AggregateFn, str(fn)), argument, span=span)

    def aggregate_distinct(self, span: Span, children: list[Any]) -> ast.Aggregate:
        fn, _, argument = children
        return ast.Aggregate(cast(ir.AggregateFn, str(fn)), argument, distinct=True, span=span)

    # --- literals ----------------------------------------------------------------------------------------

    def string(self, span: Span, children: list[Token]) -> ast.Literal:
        return ast.Literal("string", self._text(children[0]), span)

    def integer(self, span: Span, children: list[Token]) -> ast.Literal:
        return ast.Literal("integer", self._integer(children[0]), span)

    def float_(self, span: Span, children: list[Token]) -> ast.Literal:
        value = to_float(children[0], children[0].span, self._diagnostics)
        return ast.Literal("float", value, span)

    def bool_(self, span: Span, children: list[Token]) -> ast.Literal:
        return ast.Literal("bool", children[0] == "true", span)

    def date(self, span: Span, children: list[Token]) -> ast.Literal:
        return ast.Literal("date", self._text(children[0]), span)

    def datetime(self, span: Span, children: list[Token]) -> ast.Literal:
        return ast.Literal("datetime", self._text(children[0]), span)

    def list_literal(self, span: Span, children: list[ast.Literal]) -> ast.Literal:
        return ast.Literal("list", tuple(children), span)

    def null(self, span: Span, _: list[Token]) -> ast.Literal:
        return ast.Literal("null", None, span)

    # --- shared ------------------------------------------------------------------------------------------

    def _traversal(
        self,
        span: Span,
        source: Token,
        edge_variable: Token | None,
        edge: Token,
        hops: tuple[int, int | None] | None,
        target: Token,
        *,
        undirected: bool = False,
    ) -> ast.Traversal:
        if edge == "not":
            self._report(edge, "`not` cannot be used as an edge name")
        low, high = hops or (None, None)
        return ast.Traversal(
            source=_variable(source),
            edge=str(edge),
            target=_variable(target),
            edge_variable=None if edge_variable is None else _variable(edge_variable),
            undirected=undirected,
            min=low,
            max=high,
            span=span,
            edge_span=edge.span,
        )

    def _membership(self, span: Span, children: list[Any], *, negated: bool) -> ast.InList:
        operand, items = children
        self._refuse_null(operand)
        return ast.InList(_operand(operand), items, negated, span)

    def _null_test(self, span: Span, operand: Any, *, negated: bool) -> ast.IsNull:
        self._refuse_null(operand)
        return ast.IsNull(_operand(operand), negated, span)

    def _refuse_null(self, value: object) -> None:
        if isinstance(value, ast.Literal) and value.kind == "null":
            hint = "use `is null` or `is not null`"
            self._diagnostics.add(value.span, "`null` cannot be compared", hint=hint)

    def _base(self, token: Token) -> PropType:
        scalar = BASE_TYPES.get(token)
        if scalar is None:
            near = did_you_mean(token, (*BASE_TYPES, "Vector"))
            self._report(token, f"unknown parameter type `{shorten(token)}`{near}")
            return STRING
        return PropType(scalar)

    def _text(self, token: Token) -> str:
        return unescape(token, token.span, self._diagnostics)

    def _integer(self, token: Token) -> int:
        return to_integer(token, token.span, self._diagnostics)

    def _count(self, token: Token) -> int:
        return to_integer(token, token.span, self._diagnostics, low=0, high=_MAX_COUNT)

    def _report(self, token: Token, message: str) -> None:
        self._diagnostics.add(token.span, message)
