"""Construction of the AST from the parse tree of a `.gq` text: one method per rule of the grammar."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from lark import Token, Transformer_NonRecursive, v_args
from lark.tree import Meta

from omnigraph.lang import ir
from omnigraph.lang.diagnostics import Diagnostics
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.literal_syntax import shorten, to_float, to_integer, unescape
from omnigraph.lang.parsing import meta_span, token_span
from omnigraph.lang.source import Span
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.lang.types import BASE_TYPES, MAX_VECTOR_DIM, STRING, PropType, vector

_MAX_COUNT = 2**63 - 1
_ANNOTATIONS = ("description", "instruction")

Node = TypeVar("Node")


def _variable(token: Token) -> ast.Variable:
    return ast.Variable(token[1:], token_span(token))


def _operand(item: ast.Expr | Token) -> ast.Expr:
    """Return an operand; the grammar leaves a variable and the column name `not` as bare tokens."""
    if not isinstance(item, Token):
        return item
    return _variable(item) if item.type == "VARIABLE" else ast.ColumnName(str(item), token_span(item))


def _of(kind: type[Node], children: list[Any]) -> tuple[Node, ...]:
    return tuple(child for child in children if isinstance(child, kind))


@v_args(meta=True)
class QueryBuilder(Transformer_NonRecursive[Token, Any]):
    """Builds the AST bottom-up and without recursion; errors are added to the diagnostics."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        super().__init__(visit_tokens=False)
        self._diagnostics = diagnostics

    # --- queries -----------------------------------------------------------------------------------------

    def start(self, _: Meta, children: list[ast.Query]) -> ast.QueryFile:
        return ast.QueryFile(tuple(children))

    def query(self, _: Meta, children: list[Any]) -> ast.Query:
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
            span=token_span(name),
        )

    def annotation(self, _: Meta, children: list[Token]) -> tuple[Token, str]:
        name, text = children
        return name, self._text(text)

    def param(self, meta: Meta, children: list[Any]) -> ast.Param:
        variable, kind, nullable = children
        return ast.Param(variable[1:], kind.optional if nullable else kind, meta_span(meta))

    def scalar_type(self, _: Meta, children: list[Token]) -> PropType:
        return self._base(children[0])

    def list_type(self, _: Meta, children: list[Token]) -> PropType:
        return PropType(self._base(children[0]).scalar, is_list=True)

    def vector_type(self, _: Meta, children: list[Token]) -> PropType:
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

    def read(self, meta: Meta, children: list[Any]) -> ast.ReadBody:
        clauses, (distinct, projections), order, *page = children
        paging = dict(page)
        return ast.ReadBody(
            clauses=clauses,
            projections=projections,
            distinct=distinct,
            order=order or (),
            skip=paging.get("skip"),
            limit=paging.get("limit"),
            span=meta_span(meta),
        )

    def block(self, _: Meta, children: list[ast.Clause]) -> tuple[ast.Clause, ...]:
        return tuple(children)

    def return_(self, _: Meta, children: list[Any]) -> tuple[bool, tuple[ast.Projection, ...]]:
        distinct, *projections = children
        return distinct is not None, tuple(projections)

    def projection(self, meta: Meta, children: list[Any]) -> ast.Projection:
        expr, alias = children
        # The comma is part of the rule but not of the projection.
        end = expr.span if alias is None else token_span(alias)
        return ast.Projection(expr, alias and str(alias), Span(meta.start_pos, end.end))

    def order(self, _: Meta, children: list[ast.Ordering]) -> tuple[ast.Ordering, ...]:
        return tuple(children)

    def ordering(self, meta: Meta, children: list[Any]) -> ast.Ordering:
        expr, *rest = children
        direction = rest[0] if rest else None
        return ast.Ordering(expr, None if direction is None else direction == "desc", meta_span(meta))

    def skip(self, _: Meta, children: list[Token]) -> tuple[str, int]:
        return "skip", self._count(children[0])

    def limit(self, _: Meta, children: list[Token]) -> tuple[str, int]:
        return "limit", self._count(children[0])

    # --- clauses -----------------------------------------------------------------------------------------

    def negation(self, meta: Meta, children: list[tuple[ast.Clause, ...]]) -> ast.Negation:
        return ast.Negation(children[0], meta_span(meta))

    def optional(self, meta: Meta, children: list[tuple[ast.Clause, ...]]) -> ast.Optional:
        return ast.Optional(children[0], meta_span(meta))

    def binding(self, meta: Meta, children: list[Any]) -> ast.Binding:
        variable, kind, matches = children
        return ast.Binding(_variable(variable), str(kind), matches or (), meta_span(meta), token_span(kind))

    def inlines(self, _: Meta, children: list[ast.InlineMatch]) -> tuple[ast.InlineMatch, ...]:
        return tuple(children)

    def inline(self, meta: Meta, children: list[Any]) -> ast.InlineMatch:
        name, value = children
        self._refuse_null(value)
        return ast.InlineMatch(str(name), value, meta_span(meta))

    def directed(self, meta: Meta, children: list[Any]) -> ast.Traversal:
        source, edge, hops, target = children
        return self._traversal(meta, source, None, edge, hops, target)

    def undirected(self, meta: Meta, children: list[Any]) -> ast.Traversal:
        source, edge, hops, target = children
        return self._traversal(meta, source, None, edge, hops, target, undirected=True)

    def directed_bound(self, meta: Meta, children: list[Any]) -> ast.Traversal:
        return self._traversal(meta, *children)

    def undirected_bound(self, meta: Meta, children: list[Any]) -> ast.Traversal:
        return self._traversal(meta, *children, undirected=True)

    def hops(self, _: Meta, children: list[Any]) -> tuple[int, int | None]:
        low, high = children
        return self._count(low), None if high is None else self._count(high)

    def filter(self, meta: Meta, children: list[ast.Predicate]) -> ast.Filter:
        return ast.Filter(children[0], meta_span(meta))

    # --- predicates --------------------------------------------------------------------------------------

    def or_(self, meta: Meta, children: list[ast.Predicate]) -> ast.Or:
        flat = [part for item in children for part in (item.items if isinstance(item, ast.Or) else (item,))]
        return ast.Or(tuple(flat), meta_span(meta))

    def and_(self, meta: Meta, children: list[ast.Predicate]) -> ast.And:
        flat = [part for item in children for part in (item.items if isinstance(item, ast.And) else (item,))]
        return ast.And(tuple(flat), meta_span(meta))

    def not_(self, meta: Meta, children: list[ast.Predicate]) -> ast.Not:
        return ast.Not(children[0], meta_span(meta))

    def compare(self, meta: Meta, children: list[Any]) -> ast.Compare:
        left, operator, right = children
        self._refuse_null(left)
        self._refuse_null(right)
        return ast.Compare(_operand(left), cast(Any, str(operator)), _operand(right), meta_span(meta))

    def in_(self, meta: Meta, children: list[Any]) -> ast.InList:
        return self._membership(meta, children, negated=False)

    def not_in(self, meta: Meta, children: list[Any]) -> ast.InList:
        return self._membership(meta, children, negated=True)

    def is_null(self, meta: Meta, children: list[Any]) -> ast.IsNull:
        return self._null_test(meta, children[0], negated=False)

    def is_not_null(self, meta: Meta, children: list[Any]) -> ast.IsNull:
        return self._null_test(meta, children[0], negated=True)

    # --- mutations ---------------------------------------------------------------------------------------

    def mutation(self, meta: Meta, children: list[ast.Insert | ast.Update | ast.Delete]) -> ast.MutationBody:
        return ast.MutationBody(tuple(children), meta_span(meta))

    def insert(self, meta: Meta, children: list[Any]) -> ast.Insert:
        kind, *assigns = children
        return ast.Insert(str(kind), tuple(assigns), meta_span(meta), token_span(kind))

    def update(self, meta: Meta, children: list[Any]) -> ast.Update:
        kind, *assigns, where = children
        return ast.Update(str(kind), tuple(assigns), where, meta_span(meta), token_span(kind))

    def delete(self, meta: Meta, children: list[Any]) -> ast.Delete:
        kind, where = children
        return ast.Delete(str(kind), where, meta_span(meta), token_span(kind))

    def assign(self, meta: Meta, children: list[Any]) -> ast.Assign:
        name, value = children
        return ast.Assign(str(name), value, Span(meta.start_pos, value.span.end))

    def column(self, _: Meta, children: list[Token]) -> ast.ColumnName:
        return ast.ColumnName(str(children[0]), token_span(children[0]))

    # --- expressions -------------------------------------------------------------------------------------

    def alias(self, _: Meta, children: list[Token]) -> ast.AliasRef:
        return ast.AliasRef(str(children[0]), token_span(children[0]))

    alias_of_function = alias
    alias_of_keyword = alias

    def property(self, meta: Meta, children: list[Token]) -> ast.PropertyAccess:
        variable, name = children
        return ast.PropertyAccess(variable[1:], str(name), meta_span(meta), token_span(name))

    def variable(self, _: Meta, children: list[Token]) -> ast.Variable:
        return _variable(children[0])

    def now(self, meta: Meta, _: list[Token]) -> ast.Now:
        return ast.Now(meta_span(meta))

    def nearest(self, meta: Meta, children: list[Any]) -> ast.Nearest:
        field, query = children
        return ast.Nearest(field, query, meta_span(meta))

    def text_call(self, meta: Meta, children: list[Any]) -> ast.TextCall:
        fn, field, query, *rest = children
        return ast.TextCall(cast(Any, str(fn)), field, query, rest[0] if rest else None, meta_span(meta))

    def bm25(self, meta: Meta, children: list[Any]) -> ast.Bm25:
        field, query = children
        return ast.Bm25(field, query, meta_span(meta))

    def rrf(self, meta: Meta, children: list[Any]) -> ast.Rrf:
        first, second, *rest = children
        return ast.Rrf(first, second, rest[0] if rest else None, meta_span(meta))

    def aggregate(self, meta: Meta, children: list[Any]) -> ast.Aggregate:
        fn, argument = children
        if isinstance(argument, Token):
            # In `count(distinct)`, `distinct` is the name of an alias.
            argument = ast.AliasRef(str(argument), token_span(argument))
        return ast.Aggregate(cast(ir.AggregateFn, str(fn)), argument, span=meta_span(meta))

    def aggregate_distinct(self, meta: Meta, children: list[Any]) -> ast.Aggregate:
        fn, _, argument = children
        return ast.Aggregate(cast(ir.AggregateFn, str(fn)), argument, distinct=True, span=meta_span(meta))

    # --- literals ----------------------------------------------------------------------------------------

    def string(self, meta: Meta, children: list[Token]) -> ast.Literal:
        return ast.Literal("string", self._text(children[0]), meta_span(meta))

    def integer(self, meta: Meta, children: list[Token]) -> ast.Literal:
        return ast.Literal("integer", self._integer(children[0]), meta_span(meta))

    def float_(self, meta: Meta, children: list[Token]) -> ast.Literal:
        value = to_float(children[0], token_span(children[0]), self._diagnostics)
        return ast.Literal("float", value, meta_span(meta))

    def bool_(self, meta: Meta, children: list[Token]) -> ast.Literal:
        return ast.Literal("bool", children[0] == "true", meta_span(meta))

    def date(self, meta: Meta, children: list[Token]) -> ast.Literal:
        return ast.Literal("date", self._text(children[0]), meta_span(meta))

    def datetime(self, meta: Meta, children: list[Token]) -> ast.Literal:
        return ast.Literal("datetime", self._text(children[0]), meta_span(meta))

    def list_literal(self, meta: Meta, children: list[ast.Literal]) -> ast.Literal:
        return ast.Literal("list", tuple(children), meta_span(meta))

    def null(self, meta: Meta, _: list[Token]) -> ast.Literal:
        return ast.Literal("null", None, meta_span(meta))

    # --- shared ------------------------------------------------------------------------------------------

    def _traversal(
        self,
        meta: Meta,
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
            span=meta_span(meta),
            edge_span=token_span(edge),
        )

    def _membership(self, meta: Meta, children: list[Any], *, negated: bool) -> ast.InList:
        operand, items = children
        self._refuse_null(operand)
        return ast.InList(_operand(operand), items, negated, meta_span(meta))

    def _null_test(self, meta: Meta, operand: Any, *, negated: bool) -> ast.IsNull:
        self._refuse_null(operand)
        return ast.IsNull(_operand(operand), negated, meta_span(meta))

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
        return unescape(token, token_span(token), self._diagnostics)

    def _integer(self, token: Token) -> int:
        return to_integer(token, token_span(token), self._diagnostics)

    def _count(self, token: Token) -> int:
        return to_integer(token, token_span(token), self._diagnostics, low=0, high=_MAX_COUNT)

    def _report(self, token: Token, message: str) -> None:
        self._diagnostics.add(token_span(token), message)
