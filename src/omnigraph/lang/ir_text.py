"""Expressions and predicates of the IR as text, for `explain`."""

from __future__ import annotations

import json

from omnigraph.lang import ir
from omnigraph.lang.schema import TextAnalysis
from omnigraph.lang.temporal import format_date, format_datetime
from omnigraph.lang.types import PropType, Scalar


def render_expr(expr: ir.Expr) -> str:
    """Render an expression.

    >>> render_expr(ir.Const(19723, PropType(Scalar.DATE)))
    'date("2024-01-01")'
    """
    match expr:
        case ir.Const():
            return _const(expr.value, expr.type)
        case ir.ParamRef():
            return f"param {expr.name}" + (" as enum" if expr.type.is_enum else "")
        case ir.Now():
            return "now()"
        case ir.PropertyRef():
            return f"${expr.variable}.{expr.property}"
        case ir.EntityRef():
            return f"id(${expr.variable})"
        case ir.OutputRef():
            return f"output {expr.name}"
        case ir.ColumnRef():
            return f"column {expr.name}"
        case ir.EmbedText():
            model = f", model={expr.embed.model}" if expr.embed is not None and expr.embed.model else ""
            return f"embed({render_expr(expr.text)} as {expr.type}{model})"
        case ir.Nearest():
            metric = "" if expr.metric == "l2" else f", metric={expr.metric}"
            return f"nearest({render_expr(expr.field)}, {render_expr(expr.query)}{metric}{_options(expr.options)})"
        case ir.Bm25():
            return f"bm25({_fields(expr.fields)}, {render_expr(expr.query)}{_analysis(expr.analysis)})"
        case ir.Snippet():
            return f"snippet({render_expr(expr.field)}, {render_expr(expr.query)}{_analysis(expr.analysis)})"
        case ir.Rrf():
            ranks = ", ".join(
                render_expr(rank) + _factor(weight)
                for rank, weight in zip(expr.ranks, expr.weights, strict=True)
            )
            k = f", k={render_expr(expr.k)}" if expr.fn == "rrf" else ""
            is_default = isinstance(expr.depth, ir.Const) and expr.depth.value == ir.FUSION_DEPTH
            depth = "" if is_default else f", depth={render_expr(expr.depth)}"
            return f"{expr.fn}({ranks}{k}{depth})"
        case ir.TextMatch():
            edits = f", max_edits={render_expr(expr.max_edits)}" if expr.max_edits else ""
            options = edits + _analysis(expr.analysis)
            return f"{expr.fn}({_fields(expr.fields)}, {render_expr(expr.query)}{options})"
        case ir.Aggregate():
            return f"{expr.fn}({'distinct ' if expr.distinct else ''}{render_expr(expr.argument)})"


def render_predicate(predicate: ir.Predicate) -> str:
    """Render a predicate, compound ones in parentheses."""
    match predicate:
        case ir.Compare():
            return f"{render_expr(predicate.left)} {predicate.op} {render_expr(predicate.right)}"
        case ir.ListContains():
            return f"{render_expr(predicate.items)} has {render_expr(predicate.item)}"
        case ir.Substring():
            return f"{render_expr(predicate.text)} contains {render_expr(predicate.part)}"
        case ir.StartsWith():
            return f"{render_expr(predicate.text)} starts_with {render_expr(predicate.prefix)}"
        case ir.InSet():
            word = "not in" if predicate.negated else "in"
            return f"{render_expr(predicate.operand)} {word} {render_expr(predicate.items)}"
        case ir.IsNull():
            return f"{render_expr(predicate.operand)} is {'not ' if predicate.negated else ''}null"
        case ir.And():
            return "(" + " and ".join(render_predicate(item) for item in predicate.items) + ")"
        case ir.Or():
            return "(" + " or ".join(render_predicate(item) for item in predicate.items) + ")"
        case ir.Not():
            return f"not ({render_predicate(predicate.item)})"
        case ir.TextMatch():
            return render_expr(predicate)


def _fields(fields: tuple[ir.TextField, ...]) -> str:
    if fields == (ir.TextField(fields[0].ref, fields[0].analysis),):
        return render_expr(fields[0].ref)
    return "[" + ", ".join(render_expr(field.ref) + _factor(field.boost) for field in fields) + "]"


def _factor(number: float) -> str:
    return "" if number == 1.0 else f" ^ {number:g}"


def _analysis(analysis: TextAnalysis) -> str:
    """Return the options of an analysis, nothing for the simple one.

    >>> _analysis(TextAnalysis("german", ascii_fold=True))
    ', text=german+ascii_fold'
    """
    parts = [
        analysis.language,
        "stop_words" if analysis.stop_words else None,
        "ascii_fold" if analysis.ascii_fold else None,
        f"ngram{analysis.ngram}" if analysis.ngram else None,
    ]
    named = "+".join(part for part in parts if part)
    return f", text={named}" if named else ""


def _const(value: ir.Value, type_: PropType) -> str:
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return "[" + ", ".join(_const(item, type_) for item in value) + "]"
    if type_.scalar is Scalar.DATE and isinstance(value, int):
        return f'date("{format_date(value)}")'
    if type_.scalar is Scalar.DATETIME and isinstance(value, int):
        return f'datetime("{format_datetime(value)}")'
    return json.dumps(value, ensure_ascii=False)


def _options(options: ir.SearchOptions) -> str:
    """Return the options of a search that are set."""
    found = {"exact": options.exact, "nprobes": options.nprobes, "refine": options.refine}
    return "".join(f", {name}={render_expr(value)}" for name, value in found.items() if value is not None)
