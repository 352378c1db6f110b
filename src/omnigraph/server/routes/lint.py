"""The route that checks query and schema texts without running them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.api.hosting.stored_queries import describe_param
from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.lang.diagnostics import Diagnostic, LanguageError
from omnigraph.lang.gq.lint_rules import LintReport, QueryResult, describe_operation, lint_queries
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.source import Source
from omnigraph.protocol import language_responses as responses
from omnigraph.protocol.requests import LintRequest
from omnigraph.server.http.request_context import Context
from omnigraph.server.http.routing import BODY_ERRORS, SUCCESS, error_responses, graph_router
from omnigraph.server.routes.reads import SnapshotReference

router = graph_router("reads")


@router.post(
    "/lint",
    operation_id="cluster_lint",
    response_model=responses.LintOutput,
    responses={**SUCCESS, **error_responses(*BODY_ERRORS)},
)
async def lint(context: Context, body: LintRequest) -> Response:
    """Check a query text against the schema of a snapshot, or a schema text. Errors are part of the response."""
    snapshot = SnapshotReference.of(body).authorize(context)
    if (body.query is None) == (body.schema_source is None):
        raise InvalidInput("expected exactly one of `query` and `schema_source`")
    context.check_text(
        "query" if body.schema_source is None else "schema", body.query or body.schema_source or ""
    )

    def work(graph: Graph) -> dict[str, Any]:
        if body.schema_source is not None:
            return _check_schema(body.schema_source)
        schema = graph.snapshot(**snapshot.arguments).catalog.schema
        return _report(lint_queries(Source(body.query or "", "<query>"), schema))

    return await context.read(work)


def _check_schema(text: str) -> dict[str, Any]:
    found: tuple[Diagnostic, ...] = ()
    try:
        load_schema(text)
    except LanguageError as error:
        found = error.diagnostics
    return {"ok": not found, "diagnostics": [_diagnostic(item) for item in found], "queries": []}


def _report(report: LintReport) -> dict[str, Any]:
    results = chain.from_iterable(_query_diagnostics(item) for item in report.results)
    findings = (
        {**_whole(item.severity, item.code, item.message)}
        if item.diagnostic is None
        else _diagnostic(item.diagnostic)
        for item in report.findings
    )
    queries = [_query(item.checked) for item in report.results if item.checked is not None]
    return {"ok": report.ok, "diagnostics": [*results, *findings], "queries": queries}


def _query_diagnostics(result: QueryResult) -> Iterator[dict[str, Any]]:
    yield from (_diagnostic(item) for item in result.diagnostics)
    yield from (_whole("warning", None, f"query `{result.name}`: {text}") for text in result.warnings)


def _query(query: ir.CheckedQuery) -> dict[str, Any]:
    return {
        "name": query.name,
        "mutation": isinstance(query, ir.MutationQuery),
        "description": query.description,
        "params": [describe_param(param) for param in query.params],
        "operation": describe_operation(query),
    }


def _diagnostic(item: Diagnostic) -> dict[str, Any]:
    return {
        "severity": item.severity,
        "code": item.code,
        "message": item.text,
        "line": item.line,
        "column": item.column,
        "start": item.start,
        "end": item.end,
        "hint": item.hint,
    }


def _whole(severity: str, code: str | None, message: str) -> dict[str, Any]:
    """Return a diagnostic about the whole text."""
    position = dict.fromkeys(("line", "column", "start", "end", "hint"))
    return {"severity": severity, "code": code, "message": message, **position}
