"""`omnigraph schema`: the schema of a graph; and, without one, whether a schema is right and how to get to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.files import find_sources, read_source, refuse_stdin_twice, source_name
from omnigraph.cli.output import count, diagnostic_lines, indented, say, say_exactly, say_json, say_status
from omnigraph.cli.scope import (
    SHARED,
    GlobalOptions,
    JsonOption,
    Uri,
    opened,
    refuse_graph_options,
    resolve,
)
from omnigraph.cli.shell import FAILURE
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.lang.schema import Schema
    from omnigraph.lang.source import Diagnostic

SUFFIX = ".pg"

WITH_GRAPH = frozenset({"show", "get"})

schema_commands = typer.Typer(help="Show or check a schema, or plan a change of one.", no_args_is_help=True)


@schema_commands.callback()
def root(ctx: typer.Context) -> None:
    """Refuse the address of a graph where none is looked at."""
    if ctx.invoked_subcommand not in WITH_GRAPH:
        refuse_graph_options("schema", ctx.find_object(GlobalOptions) or GlobalOptions())


@schema_commands.command("get", hidden=True, epilog=SHARED)
@schema_commands.command(epilog=SHARED)
def show(ctx: typer.Context, uri: Uri = None, json: JsonOption = False) -> None:
    """Print the schema of a graph, as it was written."""
    target = resolve(ctx, uri)
    with opened(target, "r") as repository:
        source = repository.snapshot().catalog.source
    if json:
        say_json({"schema_source": source})
    else:
        say_exactly(source if source.endswith("\n") else f"{source}\n")


@schema_commands.command()
def check(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILE|DIR", help="Schema files, or directories of them; - is stdin."),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compile schemas and report everything that is wrong with them.

    Each file is a schema of its own. One file gives one JSON document; several files, or a directory, give an
    array of them.
    """
    from omnigraph.lang.compile import load_schema
    from omnigraph.lang.source import LanguageError

    documents: list[dict[str, Any]] = []
    for path in find_sources(paths, (SUFFIX,)):
        text = read_source(path)
        try:
            documents.append(_describe(source_name(path), load_schema(text, source_name(path))))
            if not json:
                _print_summary(documents[-1])
        except LanguageError as error:
            documents.append(_describe_errors(source_name(path), error.diagnostics))
            if not json:
                _print_errors(source_name(path), error.diagnostics)
    if json:
        alone = len(paths) == 1 and not Path(paths[0]).is_dir()
        say_json(documents[0] if alone else documents)
    if any(document["status"] == "error" for document in documents):
        raise typer.Exit(FAILURE)


@schema_commands.command()
def plan(
    schema: Annotated[str, typer.Option("--schema", metavar="FILE", help="The schema that is wanted.")],
    uri: Annotated[str | None, typer.Argument(metavar="URI", hidden=True)] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="The schema that is accepted now.")
    ] = None,
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Plan drops that also erase history.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show the steps from one schema to another, refused ones included.

    A plan with refused steps is an answer, not a failure: look at `supported`.
    """
    from omnigraph.catalog import migrate
    from omnigraph.catalog.catalog import accept
    from omnigraph.catalog.step_text import render_plan
    from omnigraph.lang.compile import load_schema

    if uri is not None or from_ is None:
        raise InvalidInput(
            "this version cannot plan against a graph" if uri else "no schema to plan from",
            hint="pass --from <file>, the schema that is accepted now",
        )
    refuse_stdin_twice([from_, schema])
    old_text = read_source(from_)
    accepted = accept(load_schema(old_text, source_name(from_)), old_text)
    desired = load_schema(read_source(schema), source_name(schema))
    found = migrate.plan(accepted, desired, allow_data_loss=allow_data_loss)
    if json:
        steps = [step.to_json() for step in found.steps]
        say_json({"supported": found.supported, "step_count": len(steps), "steps": steps})
        return
    say(f"schema plan for {source_name(from_)}")
    say(f"supported: {'yes' if found.supported else 'no'}")
    say(render_plan(found))


def _describe(path: str, schema: Schema) -> dict[str, Any]:
    from omnigraph.catalog.shape import schema_hash

    return {
        "status": "ok",
        "schema_path": path,
        "hash": schema_hash(schema),
        "interfaces": [item.name for item in schema.interfaces],
        "node_types": [item.name for item in schema.nodes],
        "edge_types": [item.name for item in schema.edges],
        "properties": sum(len(item.properties) for item in (*schema.nodes, *schema.edges)),
        "errors": 0,
        "diagnostics": [],
    }


def _describe_errors(path: str, diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    return {
        "status": "error",
        "schema_path": path,
        "errors": len(diagnostics),
        "diagnostics": [item.to_json() for item in diagnostics],
    }


def _print_summary(document: dict[str, Any]) -> None:
    parts = [
        count(len(document["node_types"]), "node type"),
        count(len(document["edge_types"]), "edge type"),
        count(document["properties"], "property"),
    ]
    if document["interfaces"]:
        parts.insert(0, count(len(document["interfaces"]), "interface"))
    say_status("OK", f"schema {document['schema_path']}: {', '.join(parts)}")
    say(indented([document["hash"]]))


def _print_errors(path: str, diagnostics: Sequence[Diagnostic]) -> None:
    say_status("ERROR", f"schema {path}: {count(len(diagnostics), 'error')}")
    for item in diagnostics:
        say(indented([item.text, *diagnostic_lines(item)]))
