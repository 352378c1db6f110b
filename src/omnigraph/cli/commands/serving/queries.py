"""`omnigraph queries`: list the stored queries of a server configuration, and type-check them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from omnigraph.cli.failures import FAILURE
from omnigraph.cli.render.output import count, escape_unprintable, print_json, print_line
from omnigraph.cli.settings.clusters import find_source, resolve_cluster
from omnigraph.cli.target import EPILOG, JsonOption
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.hosting.stored_queries import QuerySources, StoredQuery
    from omnigraph.lang.ir import CheckedQuery
    from omnigraph.lang.schema import Schema
    from omnigraph.lang.source import Source

query_commands = typer.Typer(
    help="List and validate the stored queries of a server configuration.", no_args_is_help=True
)

NONE = "(no stored queries registered)"


@dataclass(frozen=True)
class Problem:
    """An error or warning about a stored query. `query` is the file name if the file cannot be parsed."""

    query: str
    message: str

    def to_json(self) -> dict[str, str]:
        """Return the entry of the JSON report."""
        return {"query": self.query, "message": self.message}


@dataclass
class CheckedQueries:
    """The stored queries of one graph that type-check, and the errors and warnings of all of them."""

    queries: dict[str, StoredQuery] = field(default_factory=dict)
    breakages: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


@query_commands.command(epilog=EPILOG)
def validate(ctx: typer.Context, json: JsonOption = False) -> None:
    """Type-check every stored query against the current schema of its graph. Fails if there is an error."""
    found = _check(ctx)
    if json:
        breakages = [item.to_json() for item in found.breakages]
        warnings = [item.to_json() for item in found.warnings]
        print_json({"ok": not breakages, "breakages": breakages, "warnings": warnings})
    else:
        for item in found.breakages:
            print_line(f"ERROR  query '{escape_unprintable(item.query)}': {item.message}")
        for item in found.warnings:
            print_line(f"WARN  query '{escape_unprintable(item.query)}': {item.message}")
        if not found.breakages:
            checked = count(len(found.queries), "stored query")
            verb = "checks" if len(found.queries) == 1 else "check"
            print_line(f"OK  {checked} type-{verb} against the schema" if found.queries else NONE)
    if found.breakages:
        raise typer.Exit(FAILURE)


@query_commands.command("list", epilog=EPILOG)
def list_(ctx: typer.Context, json: JsonOption = False) -> None:
    """List the stored queries with their parameters. Fails if one does not type-check."""
    found = _check(ctx)
    for item in found.breakages:
        raise InvalidInput(
            f"stored query '{item.query}': {item.message}",
            hint="`omnigraph queries validate` lists all errors",
        )
    queries = [found.queries[name] for name in sorted(found.queries)]
    if json:
        print_json({"queries": [_describe(item) for item in queries]})
        return
    if not queries:
        print_line(NONE)
    for query in queries:
        for line in _lines(query):
            print_line(line)


def _check(ctx: typer.Context) -> CheckedQueries:
    from omnigraph.api.hosting.stored_queries import read_query_files
    from omnigraph.store.storage_options import s3_options

    hosting, scope = resolve_cluster(ctx)
    source = find_source(hosting, scope)
    if source.queries is None:
        return CheckedQueries()
    options = s3_options(os.environ)
    files = read_query_files(source.queries, options)
    return _check_files(source.queries, files, source.read_schema(options))


def _check_files(where: QuerySources, files: Iterable[Source], schema: Schema) -> CheckedQueries:
    from omnigraph.api.hosting.stored_queries import StoredQuery
    from omnigraph.lang.gq.lint_rules import lint_queries

    found = CheckedQueries()
    seen: set[str] = set()
    for source in files:
        report = lint_queries(source, schema)
        broken = [item for item in report.findings if item.severity == "error"]
        found.breakages += [Problem(source.name.rpartition("/")[2], item.message) for item in broken]
        for result in report.results:
            if not where.includes(source, result.name):
                continue
            seen.add(result.name)
            warnings = [*result.warnings, *_vector_parameters(result.checked)]
            found.warnings += [Problem(result.name, text) for text in warnings]
            found.breakages += [Problem(result.name, item.text) for item in result.diagnostics]
            if result.name in found.queries:
                found.breakages.append(Problem(result.name, "more than one query has this name"))
            elif result.checked is not None:
                found.queries[result.name] = StoredQuery(result.name, source.text, result.checked)
    found.breakages += [Problem(name, text) for name, text in where.missing(seen).items()]
    return found


def _vector_parameters(query: CheckedQuery | None) -> Iterator[str]:
    """Yield a warning for each Vector parameter: stored queries are MCP tools, and agents have no embeddings."""
    from omnigraph.lang.ir import ReadQuery
    from omnigraph.lang.types import Scalar

    # Only `nearest` accepts a text in place of a vector, so that there is no advice for a mutation.
    advice = "; declare it as String to embed the text on the server" if isinstance(query, ReadQuery) else ""
    for item in () if query is None else query.params:
        if item.type.scalar is Scalar.VECTOR:
            yield f"parameter `${item.name}` is a {item.type.core}, which MCP clients cannot supply{advice}"


def _describe(query: StoredQuery) -> dict[str, Any]:
    params = [
        {"name": item.name, "type": str(item.type.core), "nullable": item.type.nullable}
        for item in query.checked.params
    ]
    # Every stored query is an MCP tool of the same name.
    return {
        "name": query.name,
        "mcp_expose": True,
        "tool_name": query.name,
        "mutation": query.mutates,
        **query.annotations,
        "params": params,
    }


def _lines(query: StoredQuery) -> Iterator[str]:
    kind = "mutation" if query.mutates else "read"
    params = ", ".join(f"${item.name}: {item.type}" for item in query.checked.params)
    yield f"{kind}  {query.name}({params}) [mcp: {query.name}]"
    for member, text in query.annotations.items():
        yield f"  {member}: {escape_unprintable(text)}"
