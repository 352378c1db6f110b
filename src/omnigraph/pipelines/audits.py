"""Audits of a review branch, before it is merged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.catalog.table_lookup import find_table
from omnigraph.pipelines.audit_expressions import evaluate, parse_expectation
from omnigraph.pipelines.definition import Audit
from omnigraph.pipelines.pipeline_file import Pipeline
from omnigraph.pipelines.reports import AuditResult
from omnigraph.sources.mapping.document import read_text
from omnigraph.store.storage_options import resolve_options

_OPS = {
    "inserted": ("insert",),
    "updated": ("update",),
    "deleted": ("delete",),
    "changed": ("insert", "update", "delete"),
}


def run_audits(pipeline: Pipeline, graph: LocalGraph, branch: str) -> Iterator[AuditResult]:
    """Run the audits of a pipeline on a branch, in the order of the file."""
    for number, audit in enumerate(pipeline.definition.audits):
        yield pipeline.document.located(
            ("audits", str(number)), partial(_run, pipeline, graph, branch, audit)
        )


def _run(pipeline: Pipeline, graph: LocalGraph, branch: str, audit: Audit) -> AuditResult:
    expression = parse_expectation(audit.expect)
    if audit.query is not None:
        values = _query_values(pipeline, graph, branch, audit.query, audit.params)
        passed = bool(evaluate(expression, values))
        return AuditResult(audit.name or audit.query, audit.expect, passed, values)
    assert audit.diff is not None
    stats = graph.diff(audit.diff, branch).stats()

    def count_of(function: str, type_name: str | None) -> int:
        if type_name is not None:
            # A misspelled type would always count 0.
            find_table(graph.runs.catalog(branch), type_name)
        chosen = stats.values() if type_name is None else [stats.get(type_name, {})]
        return sum(counts.get(op, 0) for counts in chosen for op in _OPS[function])

    passed = bool(evaluate(expression, {}, count_of))
    counted = {name: dict(counts) for name, counts in stats.items()}
    return AuditResult(audit.name or f"changes since {audit.diff}", audit.expect, passed, counted)


def _query_values(
    pipeline: Pipeline, graph: LocalGraph, branch: str, reference: str, params: dict[str, Any]
) -> dict[str, Any]:
    path, _, name = reference.rpartition("#")
    text = read_text(pipeline.resolve(path), resolve_options(None))
    result = graph.query(text, params, name=name, branch=branch)
    values: dict[str, Any] = {"count": len(result)}
    if len(result) == 1:
        # A column `count` of an aggregate is meant rather than the number of rows, which is 1.
        values |= result.rows()[0]
    return values
