"""`omnigraph query`: run a query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.query_arguments import (
    BranchOption,
    EngineOption,
    OutOption,
    ParamsFileOption,
    ParamsOption,
    QueryOption,
    QueryStringOption,
    SnapshotOption,
    SparkOption,
    StoredNameArgument,
    read_request,
    read_state,
    refuse_local_options,
    warn_renamed_command,
)
from omnigraph.cli.render.output import data_stdout, print_json, result_stream
from omnigraph.cli.render.row_formats import BINARY_FORMATS, Format, text_lines, write_binary, write_result
from omnigraph.cli.render.terminal import terminal_width
from omnigraph.cli.settings.config import Config, TextFormat, load_config
from omnigraph.cli.stored_query import read_stored
from omnigraph.cli.target import JsonOption, open_graph, resolve_target
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.results.result import Result


def query(
    ctx: typer.Context,
    name: StoredNameArgument = None,
    query_: QueryOption = None,
    query_string: QueryStringOption = None,
    params: ParamsOption = None,
    params_file: ParamsFileOption = None,
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="table, json, jsonl, csv, kv, markdown, arrow or parquet; default table.",
        ),
    ] = None,
    null: Annotated[
        str,
        typer.Option("--null", metavar="TEXT", help="Text of a null in CSV; default: the empty cell."),
    ] = "",
    out: OutOption = None,
    engine: EngineOption = "auto",
    spark: SparkOption = None,
    json: JsonOption = False,
) -> None:
    """Run a query on one snapshot: the newest state of a branch, or the state of a commit."""
    warn_renamed_command(ctx, "query")
    target = resolve_target(ctx, None)
    refuse_local_options(ctx, target)
    request = read_request("query", name, query_, query_string, params, params_file, stored=target.is_served)
    line, commit = read_state(branch, snapshot)
    config = load_config(ctx)
    chosen: Format = "json" if json else format_ or config.output
    if null and chosen != "csv":
        raise InvalidInput("--null applies to CSV only", hint="pass --format csv")
    if chosen in BINARY_FORMATS and out is None:
        _refuse_terminal(chosen)
    with open_graph(target, "r") as graph:
        if request.is_stored:
            result = read_stored(graph, request, line, commit)
        else:
            result = graph.query(
                request.source,
                request.params,
                name=request.name,
                branch=line,
                at=commit,
                engine=engine,
                spark=spark,
            )
    if out is not None:
        width, layout = config.table_max_column_width, config.table_cell_layout
        write_result(result, chosen, out, width=width, layout=layout, null=null)
    else:
        print_result(result, chosen, config, null)


def print_result(result: Result, chosen: Format, config: Config, null: str = "") -> None:
    """Print the rows of a query in a format. `null` is the text of a null in CSV."""
    if chosen == "json":
        print_json(result.to_json())
    elif chosen == "arrow" or chosen == "parquet":
        write_binary(result, chosen, result_stream().buffer)
    else:
        # Formats for people use the encoding of the terminal; formats for programs are always UTF-8.
        file = result_stream() if chosen in ("table", "kv") else data_stdout()
        file.writelines(f"{line}\n" for line in _lines(result, chosen, config, null))


def _lines(result: Result, chosen: TextFormat, config: Config, null: str) -> Iterator[str]:
    return text_lines(
        result,
        chosen,
        width=config.table_max_column_width,
        layout=config.table_cell_layout,
        null=null,
        terminal=terminal_width(),
    )


def _refuse_terminal(chosen: Format) -> None:
    if result_stream().isatty():
        raise InvalidInput(
            f"{chosen} is a binary format and cannot be printed on a terminal",
            hint="pass --out PATH, or redirect stdout",
        )
