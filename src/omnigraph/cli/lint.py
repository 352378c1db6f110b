"""`omnigraph lint`: every query of some files against a schema, without a graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.addresses import SERVER_URL
from omnigraph.cli.files import STDIN, find_sources, read_source, refuse_stdin_twice, source_name
from omnigraph.cli.output import count, diagnostic_lines, indented, say, say_json, say_status
from omnigraph.cli.shell import FAILURE
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.lang.lint import Finding, LintReport, QueryResult

SUFFIX = ".gq"
LABELS = {"error": "ERROR", "warning": "WARN", "info": "INFO"}


def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|DIR", help="More query files, or directories of them."),
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option("--query", metavar="FILE", help="A query file; may be repeated; - is stdin."),
    ] = None,
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="FILE", help="The schema to check against.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check query files against a schema, without a graph.

    Fails only for errors, not for warnings. One file gives one JSON document; several files, or a directory,
    give an array of them.
    """
    from omnigraph.lang.compile import load_schema
    from omnigraph.lang.lint import lint_queries
    from omnigraph.lang.source import Source

    named = [*(query or ()), *(paths or ())]
    refuse_stdin_twice([*named, schema or ""])
    for path in paths or ():
        _refuse_graph(path)
    if not named:
        raise typer.BadParameter("name at least one query file", param_hint="'--query'")
    if schema is None:
        raise InvalidInput(
            "no schema to check against", hint="pass --schema <file>: this version checks without a graph"
        )
    compiled = load_schema(read_source(schema), source_name(schema))
    reports = [
        lint_queries(Source(read_source(path), source_name(path)), compiled)
        for path in find_sources(named, (SUFFIX,))
    ]
    if json:
        origin = {"kind": "file", "path": source_name(schema)}
        documents = [report.to_json(origin) for report in reports]
        alone = len(named) == 1 and not Path(named[0]).is_dir()
        say_json(documents[0] if alone else documents)
    else:
        _print_reports(reports)
    if not all(report.ok for report in reports):
        raise typer.Exit(FAILURE)


def _refuse_graph(path: str) -> None:
    """A positional that cannot be a query path is meant as the address of a graph."""
    is_query = path == STDIN or path.endswith(SUFFIX) or Path(path).is_dir()
    if is_query and not path.rstrip("/").endswith(".omni"):
        return
    if path.startswith(("http://", "https://")):
        raise InvalidInput(SERVER_URL)
    raise InvalidInput(
        f"{path} is not a {SUFFIX} file, and this version cannot check against a graph",
        hint="pass --schema <file>, and query files with --query <file>",
        details={"path": path},
    )


def _print_reports(reports: list[LintReport]) -> None:
    for report in reports:
        if len(reports) > 1:
            say_status("FILE", report.query_path)
        for result in report.results:
            _print_result(result)
        for finding in report.findings:
            _print_finding(finding)
    queries = sum(len(report.results) for report in reports)
    where = f" in {count(len(reports), 'file')}" if len(reports) > 1 else ""
    errors, warnings, infos = (
        sum(report.count(severity) for report in reports) for severity in ("error", "warning", "info")
    )
    say_status(
        "INFO",
        f"Lint complete: {queries} queries processed{where} "
        f"({errors} error(s), {warnings} warning(s), {infos} info item(s))",
    )


def _print_result(result: QueryResult) -> None:
    if result.checked is not None:
        say_status("OK", f"query `{result.name}` ({result.kind})")
    else:
        first, *others = result.diagnostics
        say_status("ERROR", f"query `{result.name}`: {first.text}")
        say(indented(diagnostic_lines(first)))
        for item in others:
            # Errors are counted by query, so the further ones of a query get no status word of their own.
            say(indented([f"also: {item.text}", *diagnostic_lines(item)]))
    for warning in result.warnings:
        say_status("WARN", f"query `{result.name}`: {warning}")


def _print_finding(finding: Finding) -> None:
    say_status(LABELS[finding.severity], f"{finding.code}: {finding.message}")
    if finding.diagnostic is not None:
        say(indented(diagnostic_lines(finding.diagnostic)))
