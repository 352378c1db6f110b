"""Type checker of queries: AST and schema to typed IR, or to diagnostics with codes."""

from omnigraph.lang.gq.check.checker import check_query

__all__ = ["check_query"]
