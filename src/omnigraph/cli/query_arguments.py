"""Arguments shared by the data commands: the query, its parameters, the branch or commit, and the engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.completion import complete_branch, complete_state
from omnigraph.cli.render.output import print_warning
from omnigraph.cli.source_files import read_source, refuse_stdin_twice
from omnigraph.engine.engine_choice import Engine
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.cli.target import GraphTarget


EngineOption: TypeAlias = Annotated[
    Engine, typer.Option("--engine", metavar="ENGINE", help="local, spark, or auto: Spark for large inputs.")
]
SparkOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--spark", metavar="URL", help="Spark master or Spark Connect URL; default: a local session."
    ),
]
ExternalBlobsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--external-blobs",
        metavar="BASE",
        help="Accept URIs of external blobs below this base, such as s3://bucket/folder/. Repeatable.",
    ),
]
MessageOption: TypeAlias = Annotated[
    str | None, typer.Option("--message", metavar="TEXT", help="Message of the commit.")
]
IdempotencyKeyOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        metavar="KEY",
        help="Apply the write once: a repeated command with the same key returns the first commit.",
    ),
]
OutOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="PATH",
        help="Write to a file instead of stdout. The file is complete or not written.",
    ),
]
NameArgument: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Query to run, if the source has several.")
]
StoredNameArgument: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="Query to run, if the source has several; without a source, a stored query of the server.",
    ),
]
QueryOption: TypeAlias = Annotated[
    str | None, typer.Option("--query", metavar="FILE", help="Read the query from a .gq file; - is stdin.")
]
QueryStringOption: TypeAlias = Annotated[
    str | None, typer.Option("-e", "--query-string", metavar="GQ", help="Query text.")
]
ParamsOption: TypeAlias = Annotated[
    str | None, typer.Option("--params", metavar="JSON", help="Query parameters, as a JSON object.")
]
ParamsFileOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--params-file", metavar="FILE", help="Read the parameters from a JSON file; - is stdin."),
]
BranchOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--branch", metavar="BRANCH", help="Branch; default main.", autocompletion=complete_branch),
]
SnapshotOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--snapshot", metavar="COMMIT", help="Read the state of this commit.", autocompletion=complete_state
    ),
]


# Options of local execution, by parameter. A server chooses these itself.
_NOT_SERVED = {
    "engine": "--engine",
    "spark": "--spark",
    "durability": "--durability",
    "external_blobs": "--external-blobs",
}


@dataclass(frozen=True)
class Request:
    """A query to run: its source, its name if the source has several, and its parameters.

    If `is_stored` is set, the source is empty and `name` is the name of a stored query.
    """

    source: str
    name: str | None
    params: Any
    is_stored: bool = False


def read_request(
    kind: str,
    name: str | None,
    query: str | None,
    query_string: str | None,
    params: str | None,
    params_file: str | None,
    *,
    stored: bool = False,
) -> Request:
    """Read the query and its parameters from the options. `kind` is the word for the query in messages.

    A name without a source is a stored query. Only servers have stored queries: without `stored` this raises
    `InvalidInput`.
    """
    if query is not None and query_string is not None:
        raise typer.BadParameter("pass one of --query and -e", param_hint="'-e'")
    if params is not None and params_file is not None:
        raise typer.BadParameter("pass one of --params and --params-file", param_hint="'--params-file'")
    is_stored = query is None and query_string is None
    if is_stored and (name is None or not stored):
        raise InvalidInput(
            f"no {kind} given" if name is None else f"stored {kind} '{name}' can only be run on a server",
            hint="pass --query FILE or -e GQ",
        )
    refuse_stdin_twice([query or "", params_file or ""])
    source = read_source(query) if query is not None else query_string or ""
    text = read_source(params_file) if params_file is not None else params
    return Request(source, name, None if text is None else _parse_params(text), is_stored)


def read_state(branch: str | None, snapshot: str | None) -> tuple[str, str | None]:
    """Return the branch and the commit to read. A commit takes precedence over the branch, which is then main."""
    from omnigraph.graph.branch_names import MAIN

    if branch is not None and snapshot is not None:
        raise typer.BadParameter("cannot be combined with --snapshot", param_hint="'--branch'")
    return MAIN if branch is None else branch, snapshot


def refuse_local_options(ctx: typer.Context, target: GraphTarget) -> None:
    """Raise `InvalidInput` for an option of local execution if the graph is served."""
    if not target.is_served:
        return
    for name, option in _NOT_SERVED.items():
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InvalidInput(f"the server chooses how it runs `{target.command}`; {option} does not apply.")


def warn_renamed_command(ctx: typer.Context, name: str) -> None:
    """Warn if the command was called by its deprecated name."""
    if ctx.info_name != name:
        print_warning(f"`omnigraph {ctx.info_name}` is now `omnigraph {name}`")


def _parse_params(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"parameters are not valid JSON: {error}") from error
    except (ValueError, RecursionError) as error:
        # Valid JSON that exceeds a limit of Python. Its own message names Python settings.
        reason = "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"
        raise InvalidInput(f"parameters cannot be parsed: {reason}") from error
