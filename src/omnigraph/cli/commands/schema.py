"""`omnigraph schema`: show, infer, check, plan and apply schemas."""

from __future__ import annotations

from collections.abc import Sequence
from json import loads as parse_json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.commands.init import refuse_cluster
from omnigraph.cli.confirmation import announce
from omnigraph.cli.failures import FAILURE
from omnigraph.cli.options import GlobalOptions, refuse_graph_options
from omnigraph.cli.query_arguments import BranchOption, MessageOption, refuse_local_options
from omnigraph.cli.render.output import (
    count,
    diagnostic_lines,
    indented,
    print_error,
    print_json,
    print_line,
    print_status,
    print_verbatim,
)
from omnigraph.cli.source_files import find_sources, read_source, refuse_stdin_twice, source_name
from omnigraph.cli.target import (
    EPILOG,
    DurabilityOption,
    JsonOption,
    UriArgument,
    open_graph,
    resolve_target,
)
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.catalog.migration.steps import MigrationPlan
    from omnigraph.lang.diagnostics import Diagnostic
    from omnigraph.lang.schema import Schema

SUFFIX = ".pg"

WITH_GRAPH = frozenset({"show", "get", "plan", "apply"})

SchemaOption: TypeAlias = Annotated[
    str, typer.Option("--schema", metavar="FILE", help="Schema file to migrate to; - is stdin.")
]
DataLossOption: TypeAlias = Annotated[
    bool, typer.Option("--allow-data-loss", help="Allow steps that erase dropped data from the history too.")
]
BackfillOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--backfill",
        metavar="TYPE.PROPERTY=JSON",
        help="Value of a new property in existing rows. Repeatable.",
    ),
]
BackfillExprOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--backfill-expr",
        metavar="TYPE.PROPERTY=EXPR",
        help="The same, as an expression over $this, the row. Repeatable.",
    ),
]

schema_commands = typer.Typer(help="Show, infer, check, plan and apply schemas.", no_args_is_help=True)


@schema_commands.callback()
def root(ctx: typer.Context) -> None:
    """Refuse the address of a graph for a subcommand that does not use one."""
    if ctx.invoked_subcommand not in WITH_GRAPH:
        refuse_graph_options("schema", ctx.find_object(GlobalOptions) or GlobalOptions())


@schema_commands.command("get", hidden=True, epilog=EPILOG)
@schema_commands.command(epilog=EPILOG)
def show(ctx: typer.Context, uri: UriArgument = None, json: JsonOption = False) -> None:
    """Print the schema source of a graph."""
    target = resolve_target(ctx, uri)
    with open_graph(target, "r") as graph:
        source = graph.schema.source()
    if json:
        print_json({"schema_source": source})
    else:
        print_verbatim(source if source.endswith("\n") else f"{source}\n")


@schema_commands.command()
def check(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILE|DIR", help="Schema files, or directories of them; - is stdin."),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compile schema files and report all errors.

    Each file is a separate schema. With --json, one file gives one document; several files, or a directory, give an
    array.
    """
    from omnigraph.lang.diagnostics import LanguageError
    from omnigraph.lang.pg.schema_compiler import load_schema

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
        print_json(documents[0] if alone else documents)
    if any(document["status"] == "error" for document in documents):
        raise typer.Exit(FAILURE)


@schema_commands.command()
def infer(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[TYPE=]FILE",
            help="Data files, folders or globs that `load` reads; TYPE names their type.",
        ),
    ],
    sample: Annotated[
        int, typer.Option("--sample", min=1, metavar="ROWS", help="Rows of each file that are read.")
    ] = 10_000,
) -> None:
    """Print a schema proposed for data files. Review it before `init`.

    A column without nulls is required, and a column with distinct values becomes the key. Files with two columns
    from and to, src and dst, or source and target are edges.
    """
    from omnigraph.api.schema_proposals import schema_from
    from omnigraph.catalog.schema_proposal import type_name

    given: dict[str, str] = {}
    for text in files:
        name, separator, path = text.partition("=")
        if not separator or not name.isidentifier():
            name, path = type_name(Path(text).stem), text
        if name in given:
            raise InvalidInput(
                f"two files for type {name}: {given[name]} and {path}", hint="name one as TYPE=FILE"
            )
        given[name] = path
    print_verbatim(schema_from(given, sample=sample))


@schema_commands.command(epilog=EPILOG)
def plan(
    ctx: typer.Context,
    schema: SchemaOption,
    uri: UriArgument = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="Schema file to start from, without a graph.")
    ] = None,
    allow_data_loss: DataLossOption = False,
    branch: BranchOption = None,
    backfill: BackfillOption = None,
    backfill_expr: BackfillExprOption = None,
    json: JsonOption = False,
) -> None:
    """Print the migration steps from the schema of a graph, or of a file, to another schema.

    Unsupported steps are included and do not change the exit code: see `supported`.
    """
    values = _read_backfills(backfill or [], backfill_expr or [])
    if from_ is not None:
        if uri is not None or branch is not None:
            raise InvalidInput("--from excludes a graph URI and --branch")
        refuse_graph_options("schema plan --from", ctx.find_object(GlobalOptions) or GlobalOptions())
        found, named, head = _plan_files(from_, schema, allow_data_loss, values), source_name(from_), {}
    else:
        from omnigraph.graph.branch_names import MAIN

        target = resolve_target(ctx, uri)
        text = _read_schema(schema)
        with open_graph(target, "r") as graph:
            found = graph.schema.plan(
                text,
                allow_data_loss=allow_data_loss,
                branch=MAIN if branch is None else branch,
                backfill=values,
            )
        named, head = target.uri, {"uri": target.uri}
    if json:
        steps = [step.to_json() for step in found.steps]
        print_json({**head, "supported": found.supported, "step_count": len(steps), "steps": steps})
        return
    print_line(f"schema plan for {named}")
    _print_plan(found)


@schema_commands.command(epilog=EPILOG)
def apply(
    ctx: typer.Context,
    schema: SchemaOption,
    uri: UriArgument = None,
    allow_data_loss: DataLossOption = False,
    branch: BranchOption = None,
    backfill: BackfillOption = None,
    backfill_expr: BackfillExprOption = None,
    message: MessageOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Migrate a branch to a schema and convert its data, as one commit.

    If any step is unsupported, nothing is changed. Other branches keep their schema.
    """
    from omnigraph.graph.branch_names import MAIN

    target = resolve_target(ctx, uri)
    refuse_local_options(ctx, target)
    values = _read_backfills(backfill or [], backfill_expr or [])
    text = _read_schema(schema)
    if not target.is_served:
        refuse_cluster(target)
    announce(target)
    name = MAIN if branch is None else branch
    refusal: InvalidInput | None = None
    with open_graph(target, "rw", durability) as graph:
        try:
            done = graph.schema.apply(
                text, allow_data_loss=allow_data_loss, branch=name, backfill=values, message=message
            )
            found, document = done.plan, done.to_json()
        except InvalidInput as error:
            if "steps" not in error.details:
                raise
            refusal = error
            found = graph.schema.plan(text, allow_data_loss=allow_data_loss, branch=name, backfill=values)
            version = graph.snapshot(name).commit.sequence
            steps = error.details["steps"]
            document = {
                "supported": False,
                "applied": False,
                "step_count": len(steps),
                "graph_manifest_version": version,
                "steps": steps,
            }
    if json:
        print_json({"uri": target.uri, **document})
    else:
        print_line(f"schema apply for {target.uri}")
        _print_plan(
            found,
            f"applied: {'yes' if document['applied'] else 'no'}",
            f"graph_manifest_version: {document['graph_manifest_version']}",
        )
    if refusal is not None:
        print_error(refusal)
        raise typer.Exit(FAILURE)


def _plan_files(from_: str, schema: str, allow_data_loss: bool, backfills: dict[str, Any]) -> MigrationPlan:
    from omnigraph.catalog.catalog import accept
    from omnigraph.lang.pg.schema_compiler import load_schema
    from omnigraph.schema.apply_schema import SchemaChange

    refuse_stdin_twice([from_, schema])
    old_text = read_source(from_)
    accepted = accept(load_schema(old_text, source_name(from_)), old_text)
    text = read_source(schema)
    desired = load_schema(text, source_name(schema))
    return SchemaChange(desired, text, allow_data_loss, backfills).plan(accepted)


def _read_schema(schema: str) -> str:
    """Read and compile a schema file, so that errors name the file. Return its text."""
    from omnigraph.lang.pg.schema_compiler import load_schema

    text = read_source(schema)
    load_schema(text, source_name(schema))
    return text


def _read_backfills(values: Sequence[str], expressions: Sequence[str]) -> dict[str, Any]:
    """Parse the backfills, by `TYPE.PROPERTY`: JSON values and expressions."""
    from omnigraph.schema.expression import expr

    found: dict[str, Any] = {}
    for option, items in (("--backfill", values), ("--backfill-expr", expressions)):
        for item in items:
            name, equals, text = item.partition("=")
            name = name.strip()
            if not equals or "." not in name:
                raise typer.BadParameter("expected TYPE.PROPERTY=...", param_hint=f"'{option}'")
            if name in found:
                raise typer.BadParameter(f"{name} is given twice", param_hint=f"'{option}'")
            found[name] = expr(text) if option == "--backfill-expr" else _read_json(name, text)
    return found


def _read_json(name: str, text: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"the backfill of {name} is not valid JSON: {error}", hint="quote a string: 'T.p=\"text\"'"
        ) from error


def _print_plan(found: MigrationPlan, *more: str) -> None:
    from omnigraph.catalog.migration.step_text import render_plan

    print_line(f"supported: {'yes' if found.supported else 'no'}")
    for line in more:
        print_line(line)
    print_line(render_plan(found))


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
    print_status("OK", f"schema {document['schema_path']}: {', '.join(parts)}")
    print_line(indented([document["hash"]]))


def _print_errors(path: str, diagnostics: Sequence[Diagnostic]) -> None:
    print_status("ERROR", f"schema {path}: {count(len(diagnostics), 'error')}")
    for item in diagnostics:
        print_line(indented([item.text, *diagnostic_lines(item)]))
