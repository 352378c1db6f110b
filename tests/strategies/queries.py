"""Strategies for whole queries: every construct of the language, including names that equal keywords."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.literal_syntax import MAX_INTEGER, MIN_INTEGER
from omnigraph.lang.types import BASE_TYPES, PropType, vector

T = TypeVar("T")

FUNCTIONS = (
    "now", "nearest", "cosine", "dot", "l2", "search", "fuzzy", "match_text", "snippet", "bm25", "rrf", "fuse",
    "date", "datetime", "count", "collect", "sum", "avg", "min", "max",
)  # fmt: skip
KEYWORDS = (
    *FUNCTIONS,
    "query", "match", "return", "distinct", "order", "asc", "desc", "skip", "limit", "as",
    "not", "optional", "and", "or", "in", "is", "null", "contains", "starts_with", "true", "false",
    "insert", "update", "delete", "set", "where",
)  # fmt: skip
SYMBOLS = ("=", "!=", "<", "<=", ">", ">=")
WORD_OPERATORS = ("contains", "starts_with")


def opaque(items: SearchStrategy[T]) -> SearchStrategy[T]:
    """Return the strategy with a short repr; hypothesis prints a strategy with all its parts."""

    @st.composite
    def drawn(draw: st.DrawFn) -> T:
        return draw(items)

    return drawn()


def tuples(items: SearchStrategy[T], low: int, high: int) -> SearchStrategy[tuple[T, ...]]:
    return st.lists(items, min_size=low, max_size=high).map(tuple)


def none_or(items: SearchStrategy[T]) -> SearchStrategy[T | None]:
    return st.none() | items


plain_names = st.from_regex(r"[a-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(
    lambda name: name not in KEYWORDS
)
names = opaque(plain_names | st.sampled_from(KEYWORDS))
type_names = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,5}", fullmatch=True) | st.sampled_from(["String", "Vector"])
edge_names = names.filter(lambda name: name != "not")
counts = st.integers(0, 2**63 - 1)

# --- values and expressions ------------------------------------------------------------------------------

texts = st.text(max_size=8) | st.text('"\\\n\r\t/*{}', max_size=6)
scalar_literals = st.one_of(
    st.builds(ast.Literal, st.just("string"), texts),
    st.builds(ast.Literal, st.just("integer"), st.integers(MIN_INTEGER, MAX_INTEGER)),
    st.builds(ast.Literal, st.just("float"), st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(ast.Literal, st.just("bool"), st.booleans()),
    st.builds(ast.Literal, st.sampled_from(["date", "datetime"]), st.just("2024-01-31") | texts),
)
list_literals = st.builds(
    ast.Literal,
    st.just("list"),
    tuples(scalar_literals | st.builds(ast.Literal, st.just("list"), tuples(scalar_literals, 0, 2)), 0, 3),
)
literals = opaque(scalar_literals | list_literals)
null = st.just(ast.Literal("null", None))
variables = st.builds(ast.Variable, names)
properties = st.builds(ast.PropertyAccess, names, names)
values = st.one_of(literals, variables, st.just(ast.Now()))


def _calls(expr: SearchStrategy[ast.Expr]) -> SearchStrategy[ast.Expr]:
    options = tuples(st.builds(ast.SearchOption, names, values), 0, 2)
    functions = st.sampled_from(["nearest", "l2", "cosine", "dot"])
    nearest = st.builds(ast.Nearest, properties, expr, functions, options)
    bm25 = st.builds(ast.Bm25, _fields(expr), expr)
    rank = nearest | bm25
    number = none_or(st.builds(ast.Literal, st.just("integer"), st.integers(1, 9)))
    ranks = st.tuples(rank, rank), st.tuples(number, number)
    # A ranking there would be one more.
    k = expr.filter(lambda item: not isinstance(item, ast.Nearest | ast.Bm25 | ast.Rrf))
    return st.one_of(
        *(nearest, bm25, st.builds(ast.Rrf, *ranks, none_or(k)), _texts(expr), _aggregates(expr)),
        st.builds(ast.Rrf, *ranks, st.none(), st.just("fuse")),
        st.builds(ast.Snippet, properties, expr),
    )


def _fields(expr: SearchStrategy[ast.Expr]) -> SearchStrategy[ast.Expr | ast.Fields]:
    boost = none_or(st.builds(ast.Literal, st.just("float"), st.floats(0.5, 9)))
    pairs = st.lists(st.tuples(properties, boost), min_size=1, max_size=3)
    return expr | pairs.map(
        lambda items: ast.Fields(tuple(item for item, _ in items), tuple(number for _, number in items))
    )


def _texts(expr: SearchStrategy[ast.Expr]) -> SearchStrategy[ast.TextCall]:
    return st.builds(
        ast.TextCall, st.sampled_from(["search", "match_text"]), _fields(expr), expr
    ) | st.builds(ast.TextCall, st.just("fuzzy"), _fields(expr), expr, none_or(expr))


def _aggregates(expr: SearchStrategy[ast.Expr]) -> SearchStrategy[ast.Aggregate]:
    return st.builds(ast.Aggregate, st.sampled_from(["sum", "avg", "min", "max"]), expr) | st.builds(
        ast.Aggregate, st.sampled_from(["count", "collect"]), expr, st.booleans()
    )


# `true` and `false` are literals wherever an alias is allowed.
aliases = st.builds(ast.AliasRef, names.filter(lambda name: name not in ("true", "false")))
simple_exprs: SearchStrategy[ast.Expr] = opaque(st.one_of(values, properties, aliases))
simple_calls = opaque(_calls(simple_exprs))
exprs = opaque(simple_exprs | _calls(simple_exprs | simple_calls))

# --- predicates ------------------------------------------------------------------------------------------

text_calls = opaque(_texts(simple_exprs))
# In a match a keyword is not an alias.
match_aliases = st.builds(ast.AliasRef, plain_names)
nonvariables: SearchStrategy[ast.Expr] = opaque(
    st.one_of(
        properties,
        literals,
        match_aliases,
        st.just(ast.Now()),
        simple_calls.filter(lambda expr: not isinstance(expr, ast.TextCall)),
    )
)
operands = st.one_of(variables, nonvariables, text_calls)
symbols = st.sampled_from(SYMBOLS)
word_operators = st.sampled_from(WORD_OPERATORS)
lists = st.one_of(list_literals, variables, properties)

comparisons: SearchStrategy[ast.Predicate] = st.one_of(
    st.builds(ast.Compare, nonvariables, symbols | word_operators, operands),
    st.builds(ast.Compare, variables | text_calls, symbols, operands),
    # A word between two bare variables is an edge name.
    st.builds(ast.Compare, variables, word_operators, nonvariables | text_calls),
    st.builds(ast.InList, nonvariables, lists, st.booleans()),
    st.builds(ast.InList, variables, list_literals | properties, st.booleans()),
    st.builds(ast.InList, variables, variables, st.just(True)),
    st.builds(ast.IsNull, nonvariables | variables, st.booleans()),
    text_calls,
)

columns = st.builds(ast.ColumnName, names.filter(lambda name: name != "not"))
column_tests: SearchStrategy[ast.Predicate] = st.one_of(
    st.builds(ast.Compare, columns, symbols | word_operators, values),
    st.builds(ast.Compare, st.just(ast.ColumnName("not")), symbols, values),
    st.builds(ast.InList, columns, list_literals | variables, st.booleans()),
    st.builds(ast.IsNull, columns, st.booleans()),
)


def predicates(leaves: SearchStrategy[ast.Predicate]) -> SearchStrategy[ast.Predicate]:
    """Draw Boolean combinations of the leaves; `and` and `or` are flat, as the parser builds them."""
    return st.recursive(
        opaque(leaves),
        lambda inner: st.one_of(
            st.builds(ast.Not, inner),
            st.builds(ast.And, tuples(inner.filter(lambda item: not isinstance(item, ast.And)), 2, 3)),
            st.builds(ast.Or, tuples(inner.filter(lambda item: not isinstance(item, ast.Or)), 2, 3)),
        ),
        max_leaves=6,
    )


# --- clauses ---------------------------------------------------------------------------------------------

bindings = st.builds(
    ast.Binding, variables, type_names, tuples(st.builds(ast.InlineMatch, names, values), 0, 3)
)


@st.composite
def _traversals(draw: st.DrawFn) -> ast.Traversal:
    low, high = draw(st.just((None, None)) | st.tuples(counts, none_or(counts)))
    return ast.Traversal(
        source=draw(variables),
        edge=draw(edge_names),
        target=draw(variables),
        edge_variable=draw(none_or(variables)),
        undirected=draw(st.booleans()),
        min=low,
        max=high,
    )


traversals = _traversals()
filters = st.builds(ast.Filter, predicates(comparisons))
simple_clauses: SearchStrategy[ast.Clause] = st.one_of(bindings, traversals, filters)
clauses: SearchStrategy[ast.Clause] = st.recursive(
    opaque(simple_clauses),
    lambda inner: st.builds(ast.Negation, tuples(inner, 1, 3)) | st.builds(ast.Optional, tuples(inner, 1, 3)),
    max_leaves=4,
)

# --- queries ---------------------------------------------------------------------------------------------

param_types = st.builds(
    PropType, st.sampled_from(list(BASE_TYPES.values())), nullable=st.booleans(), is_list=st.booleans()
) | st.integers(1, 4096).map(vector)
params = st.builds(ast.Param, names, param_types | param_types.map(lambda kind: kind.optional))
orderings = st.one_of(
    st.builds(
        ast.Ordering, exprs.filter(lambda expr: not isinstance(expr, ast.Nearest)), none_or(st.booleans())
    ),
    st.builds(ast.Ordering, st.builds(ast.Nearest, properties, simple_exprs), st.none()),
)
reads = st.builds(
    ast.ReadBody,
    clauses=tuples(clauses, 1, 4),
    projections=tuples(
        st.builds(ast.Projection, exprs | st.builds(ast.AllProperties, names), none_or(names)), 1, 4
    ),
    distinct=st.booleans(),
    order=tuples(orderings, 0, 2),
    skip=none_or(counts),
    limit=none_or(counts),
)
assigns = tuples(st.builds(ast.Assign, names, values | null), 1, 4)
wheres = predicates(column_tests)
statements = st.one_of(
    st.builds(ast.Insert, type_names, assigns),
    st.builds(ast.Update, type_names, assigns, wheres),
    st.builds(ast.Delete, type_names, wheres),
)
mutations = st.builds(ast.MutationBody, tuples(statements, 1, 3))
queries = st.builds(
    ast.Query,
    name=names,
    params=tuples(params, 0, 3),
    body=reads | mutations,
    description=none_or(texts),
    instruction=none_or(texts),
)
query_files = st.builds(ast.QueryFile, tuples(queries, 0, 2))
