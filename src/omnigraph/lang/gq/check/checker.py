"""Entry point of the type checker."""

from __future__ import annotations

from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check.mutation_query import check_mutation
from omnigraph.lang.gq.check.read_query import check_read
from omnigraph.lang.gq.check.scope import Context
from omnigraph.lang.schema import Schema
from omnigraph.lang.source import Source


def check_query(query: ast.Query, schema: Schema, source: Source) -> ir.CheckedQuery:
    """Check a query against a schema and return its typed IR.

    Raises `LanguageError` with all errors of the query in source order.
    """
    ctx = Context(schema, source)
    checked: ir.CheckedQuery
    if isinstance(query.body, ast.ReadBody):
        checked = check_read(ctx, query, query.body)
    else:
        checked = check_mutation(ctx, query, query.body)
    ctx.diagnostics.raise_if_any()
    return checked
