"""`omnigraph lint`: check query files against the schema of a graph, or of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.failures import FAILURE
from omnigraph.cli.options import GlobalOptions, no_graph_error, refuse_graph_options
from omnigraph.cli.render.output import (
    count,
    diagnostic_lines,
    indented,
    print_json,
    print_line,
    print_status,
)
from omnigraph.cli.settings.graph_address import NoGraphAddressed
from omnigraph.cli.source_files import STDIN, find_sources, read_source, refuse_stdin_twice, source_name
from omnigraph.cli.target import JsonOption, open_graph, resolve_target
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.lang.gq.lint_rules import Finding, LintReport, QueryResult
    from omnigraph.lang.schema import Schema

SUFFIX = ".gq"
# A folder with this entry is a graph, not a folder of query files.
MANIFEST = "__manifest"
LABELS = {"error": "ERROR", "warning": "WARN", "info": "INFO"}


def lint(
    ctx: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="URI|FILE|DIR", help="Storage URI of the graph; or query files, or directories of them."
        ),
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option("--query", metavar="FILE", help="Query file; - is stdin. Repeatable."),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="FILE", help="Check against this schema file, without a graph."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check query files against the current schema of a graph, or against a schema file.

    Warnings do not change the exit code. With --json, one file gives one document; several files, or a directory,
    give an array.
    """
    from omnigraph.lang.gq.lint_rules import lint_queries
    from omnigraph.lang.source import Source

    uris = [path for path in paths or () if _is_graph(path)]
    named = [*(query or ()), *(path for path in paths or () if path not in uris)]
    refuse_stdin_twice([*named, schema or ""])
    if not named:
        raise typer.BadParameter("pass at least one query file", param_hint="'--query'")
    compiled, origin = _graph_schema(ctx, uris) if schema is None else _file_schema(ctx, schema, uris)
    reports = [
        lint_queries(Source(read_source(path), source_name(path)), compiled)
        for path in find_sources(named, (SUFFIX,))
    ]
    if json:
        documents = [report.to_json(origin) for report in reports]
        alone = len(named) == 1 and not Path(named[0]).is_dir()
        print_json(documents[0] if alone else documents)
    else:
        _print_reports(reports)
    if not all(report.ok for report in reports):
        raise typer.Exit(FAILURE)


def _is_graph(path: str) -> bool:
    """Whether a positional argument is the address of a graph and not a query file or a folder of them."""
    if path == STDIN or path.endswith(SUFFIX):
        return False
    return not Path(path).is_dir() or Path(path, MANIFEST).is_dir()


def _graph_schema(ctx: typer.Context, uris: list[str]) -> tuple[Schema, dict[str, str]]:
    """Return the schema of the addressed graph, and its origin for the report."""
    if len(uris) > 1:
        raise InvalidInput(
            f"two graphs addressed: {uris[0]} and {uris[1]}; pass exactly one.",
            hint=f"query files end in {SUFFIX}, or are passed as --query <file>",
        )
    try:
        target = resolve_target(ctx, uris[0] if uris else None)
    except NoGraphAddressed as error:
        hint = "or pass --schema <file> to check without a graph"
        raise NoGraphAddressed(error.reason, hint=hint) from error
    with open_graph(target, "r") as graph:
        return graph.snapshot().catalog.schema, {"kind": "graph", "uri": target.uri}


def _file_schema(ctx: typer.Context, schema: str, uris: list[str]) -> tuple[Schema, dict[str, str]]:
    from omnigraph.lang.pg.schema_compiler import load_schema

    refuse_graph_options("lint --schema", ctx.find_object(GlobalOptions) or GlobalOptions())
    for uri in uris:
        raise InvalidInput(no_graph_error("lint --schema", uri))
    compiled = load_schema(read_source(schema), source_name(schema))
    return compiled, {"kind": "file", "path": source_name(schema)}


def _print_reports(reports: list[LintReport]) -> None:
    for report in reports:
        if len(reports) > 1:
            print_status("FILE", report.query_path)
        for result in report.results:
            _print_result(result)
        for finding in report.findings:
            _print_finding(finding)
    queries = sum(len(report.results) for report in reports)
    where = f" in {count(len(reports), 'file')}" if len(reports) > 1 else ""
    errors, warnings, infos = (
        sum(report.count(severity) for report in reports) for severity in ("error", "warning", "info")
    )
    print_status(
        "INFO",
        f"Lint complete: {queries} queries processed{where} "
        f"({errors} error(s), {warnings} warning(s), {infos} info item(s))",
    )


def _print_result(result: QueryResult) -> None:
    if result.checked is not None:
        print_status("OK", f"query `{result.name}` ({result.kind})")
    else:
        first, *others = result.diagnostics
        print_status("ERROR", f"query `{result.name}`: {first.text}")
        print_line(indented(diagnostic_lines(first)))
        for item in others:
            # Errors are counted by query: only the first error of a query gets a status word.
            print_line(indented([f"also: {item.text}", *diagnostic_lines(item)]))
    for warning in result.warnings:
        print_status("WARN", f"query `{result.name}`: {warning}")


def _print_finding(finding: Finding) -> None:
    print_status(LABELS[finding.severity], f"{finding.code}: {finding.message}")
    if finding.diagnostic is not None:
        print_line(indented(diagnostic_lines(finding.diagnostic)))
