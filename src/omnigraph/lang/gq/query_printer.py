"""Source form of the parts of a query that fit on one line: values, expressions, predicates, traversals."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.literal_syntax import float_literal, quote

# Precedence of predicates, loosest first. A predicate needs parentheses where a tighter one is required.
_OR, _AND, _NOT = range(3)


def print_literal(literal: ast.Literal) -> str:
    """Return a literal in source form."""
    match literal.value:
        case None:
            return "null"
        case bool():
            return "true" if literal.value else "false"
        case int():
            return str(literal.value)
        case float():
            return float_literal(literal.value)
        case tuple():
            return f"[{', '.join(print_literal(item) for item in literal.value)}]"
        case str():
            text = quote(literal.value)
            return text if literal.kind == "string" else f"{literal.kind}({text})"


def print_expr(expr: ast.Expr) -> str:
    """Return an expression in source form."""
    match expr:
        case ast.Literal():
            return print_literal(expr)
        case ast.Variable():
            return f"${expr.name}"
        case ast.PropertyAccess():
            return f"${expr.variable}.{expr.name}"
        case ast.Now():
            return "now()"
        case ast.AliasRef() | ast.ColumnName():
            return expr.name
        case ast.Nearest():
            return _call(expr.fn, expr.field, expr.query, options=expr.options)
        case ast.TextCall():
            return _call(expr.fn, print_fields(expr.field), expr.query, expr.max_edits)
        case ast.Bm25():
            return _call("bm25", print_fields(expr.field), expr.query)
        case ast.Snippet():
            return _call("snippet", expr.field, expr.query)
        case ast.Rrf():
            return _call(expr.fn, *_with_numbers(expr.ranks, expr.weights), expr.k, options=expr.options)
        case ast.Aggregate():
            return f"{expr.fn}({'distinct ' if expr.distinct else ''}{print_expr(expr.argument)})"


def print_fields(field: ast.Expr | ast.Fields) -> str:
    """Return what a text function searches in source form."""
    if isinstance(field, ast.Fields):
        return f"[{', '.join(_with_numbers(field.items, field.boosts))}]"
    return print_expr(field)


def _with_numbers(items: Sequence[ast.Expr], numbers: Sequence[ast.Literal | None]) -> list[str]:
    return [
        print_expr(item) if number is None else f"{print_expr(item)} ^ {print_literal(number)}"
        for item, number in zip(items, numbers, strict=True)
    ]


def print_predicate(predicate: ast.Predicate, place: int = _OR) -> str:
    """Return a predicate in source form, with parentheses only where precedence requires them.

    >>> test = ast.IsNull(ast.ColumnName("a"))
    >>> print_predicate(ast.And((ast.Or((test, test)), ast.Not(test))))
    '(a is null or a is null) and not a is null'
    """
    match predicate:
        case ast.Or():
            text = " or ".join(print_predicate(item, _AND) for item in predicate.items)
            return f"({text})" if place > _OR else text
        case ast.And():
            text = " and ".join(print_predicate(item, _NOT) for item in predicate.items)
            return f"({text})" if place > _AND else text
        case ast.Not():
            return f"not {print_predicate(predicate.item, _NOT)}"
        case ast.Compare():
            return f"{print_expr(predicate.left)} {predicate.op} {print_expr(predicate.right)}"
        case ast.InList():
            word = "not in" if predicate.negated else "in"
            return f"{print_expr(predicate.operand)} {word} {print_expr(predicate.items)}"
        case ast.IsNull():
            return f"{print_expr(predicate.operand)} is {'not ' if predicate.negated else ''}null"
        case ast.TextCall():
            return print_expr(predicate)


def split_predicate(predicate: ast.Predicate) -> list[str]:
    """Return the operands of the outermost `or` or `and`; all but the first start with the operator."""
    match predicate:
        case ast.Or():
            word, place = "or", _AND
        case ast.And():
            word, place = "and", _NOT
        case _:
            return [print_predicate(predicate)]
    first, *rest = (print_predicate(item, place) for item in predicate.items)
    return [first, *(f"{word} {item}" for item in rest)]


def print_traversal(traversal: ast.Traversal) -> str:
    """Return a traversal in source form."""
    edge = f"<{traversal.edge}>" if traversal.undirected else traversal.edge
    if traversal.edge_variable is not None:
        edge = f"${traversal.edge_variable.name}:{edge}"
    if traversal.min is not None:
        edge += f"{{{traversal.min},{'' if traversal.max is None else traversal.max}}}"
    return f"${traversal.source.name} {edge} ${traversal.target.name}"


def print_param(param: ast.Param) -> str:
    """Return a declared parameter in source form."""
    return f"${param.name}: {param.type}"


def print_projection(projection: ast.Projection) -> str:
    """Return a column of a `return` in source form."""
    alias = "" if projection.alias is None else f" as {projection.alias}"
    if isinstance(projection.expr, ast.AllProperties):
        return f"${projection.expr.variable}.*{alias}"
    return f"{print_expr(projection.expr)}{alias}"


def print_ordering(ordering: ast.Ordering) -> str:
    """Return an item of an `order` in source form."""
    direction = {None: "", True: " desc", False: " asc"}[ordering.descending]
    return f"{print_expr(ordering.expr)}{direction}"


def print_assign(assign: ast.Assign | ast.InlineMatch) -> str:
    """Return a `name: value` pair in source form."""
    return f"{assign.name}: {print_expr(assign.value)}"


def _call(name: str, *arguments: ast.Expr | str | None, options: Sequence[ast.SearchOption] = ()) -> str:
    printed = [
        argument if isinstance(argument, str) else print_expr(argument)
        for argument in arguments
        if argument is not None
    ]
    printed += [f"{option.name}: {print_expr(option.value)}" for option in options]
    return f"{name}({', '.join(printed)})"
