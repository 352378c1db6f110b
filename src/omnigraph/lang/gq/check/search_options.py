"""Checks of the options of a vector search, ``exact``, ``nprobes`` and ``refine``, and of a fusion, ``depth``."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check.scope import Context
from omnigraph.lang.types import I64, INT_RANGES, Scalar

_NAMES = ("exact", "nprobes", "refine")


def check_search_options(
    ctx: Context, call: ast.Nearest, check: Callable[[ast.Expr], ir.Expr]
) -> ir.SearchOptions:
    """Return the options of a call of ``nearest``. `check` checks the expression of a value."""
    found: dict[str, ir.Expr] = {}
    for option in call.options:
        if option.name not in _NAMES:
            ctx.reject(
                option.span,
                "T15",
                f"unknown option `{option.name}` of `{call.fn}`",
                f"use {', '.join(_NAMES)}",
            )
        if option.name in found:
            ctx.reject(option.span, "T15", f"option `{option.name}` is given twice")
        value = check(option.value)
        is_constant = isinstance(value, ir.Const | ir.ParamRef) and not value.type.is_list
        if option.name == "exact":
            if not is_constant or value.type.scalar is not Scalar.BOOL:
                ctx.reject(option.span, "T15", "`exact` must be true or false")
        elif not is_constant or value.type.scalar not in INT_RANGES or _is_below_one(value):
            ctx.reject(option.span, "T15", f"`{option.name}` must be a positive integer")
        found[option.name] = value
    return ir.SearchOptions(**found)


def check_depth(ctx: Context, call: ast.Rrf, check: Callable[[ast.Expr], ir.Expr]) -> ir.Expr:
    """Return the number of candidates of each ranking of a fusion. `check` checks the expression of a value."""
    found: ir.Expr | None = None
    for option in call.options:
        if option.name != "depth":
            ctx.reject(option.span, "T21", f"unknown option `{option.name}` of `{call.fn}`", "use depth")
        if found is not None:
            ctx.reject(option.span, "T21", "option `depth` is given twice")
        found = check(option.value)
        is_number = isinstance(found, ir.Const | ir.ParamRef) and not found.type.is_list
        value = found.value if isinstance(found, ir.Const) else 1
        is_allowed = isinstance(value, int) and 1 <= value <= ir.MAX_FUSION_DEPTH
        if not is_number or found.type.scalar not in INT_RANGES or not is_allowed:
            message = f"`depth` must be an integer from 1 to {ir.MAX_FUSION_DEPTH:,}"
            ctx.reject(option.span, "T21", message)
    return ir.Const(ctx.fusion_depth, I64) if found is None else found


def _is_below_one(value: ir.Expr) -> bool:
    return isinstance(value, ir.Const) and isinstance(value.value, int) and value.value < 1
