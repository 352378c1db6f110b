"""The typechecker: a query's syntax and a schema in, typed IR or coded diagnostics out."""

from omnigraph.lang.gq.check.checker import check_query

__all__ = ["check_query"]
