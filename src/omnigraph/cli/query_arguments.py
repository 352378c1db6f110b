"""What the commands on a graph's data have in common: which query with which values, and on which state."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.completion import complete_branch
from omnigraph.cli.render.output import warn
from omnigraph.cli.source_files import read_source, refuse_stdin_twice
from omnigraph.engine.engine_choice import Engine
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.cli.scope import Target


EngineOption: TypeAlias = Annotated[
    Engine, typer.Option("--engine", metavar="ENGINE", help="local, spark, or auto: spark for what is large.")
]
SparkOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--spark", metavar="URL", help="Spark's master or Connect address; else this machine."),
]
NameArgument: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Which query of the source, when it has several.")
]
StoredNameArgument: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", help="Which query of the source; without one, a stored query of the server."
    ),
]
QueryOption: TypeAlias = Annotated[
    str | None, typer.Option("--query", metavar="FILE", help="The .gq file; - for stdin.")
]
QueryStringOption: TypeAlias = Annotated[
    str | None, typer.Option("-e", "--query-string", metavar="GQ", help="The query itself.")
]
ParamsOption: TypeAlias = Annotated[
    str | None, typer.Option("--params", metavar="JSON", help="Its parameters.")
]
ParamsFileOption: TypeAlias = Annotated[
    str | None, typer.Option("--params-file", metavar="FILE", help="Its parameters, from a file.")
]
BranchOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--branch", metavar="BRANCH", help="Which branch; default main.", autocompletion=complete_branch
    ),
]
SnapshotOption: TypeAlias = Annotated[
    str | None, typer.Option("--snapshot", metavar="COMMIT", help="The state of this commit.")
]


# What a server decides itself.
_NOT_SERVED = {"engine": "--engine", "spark": "--spark", "durability": "--durability"}


@dataclass(frozen=True)
class Request:
    """A query to run: its source, its name where the source has several, and the values of its parameters.

    Without a source, which `read_request` only lets pass where it is allowed, the name is that of a stored query.
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
    """What the options say is to be run; `kind` is what messages call it.

    A name alone means a stored query. Only servers have those: elsewhere, without `stored`, it is `InvalidInput`.
    """
    if query is not None and query_string is not None:
        raise typer.BadParameter("pass one of --query and -e", param_hint="'-e'")
    if params is not None and params_file is not None:
        raise typer.BadParameter("pass one of --params and --params-file", param_hint="'--params-file'")
    is_stored = query is None and query_string is None
    if is_stored and (name is None or not stored):
        raise InvalidInput(
            f"no {kind} given"
            if name is None
            else f"a stored {kind} is run by a server: '{name}' has no source",
            hint="pass --query FILE or -e GQ",
        )
    refuse_stdin_twice([query or "", params_file or ""])
    source = read_source(query) if query is not None else query_string or ""
    text = read_source(params_file) if params_file is not None else params
    return Request(source, name, None if text is None else _parse_params(text), is_stored)


def read_state(branch: str | None, snapshot: str | None) -> tuple[str, str | None]:
    """The branch and the commit to read at, of which one decides."""
    from omnigraph.graph.branch_names import MAIN

    if branch is not None and snapshot is not None:
        raise typer.BadParameter("a commit names a state by itself", param_hint="'--branch'")
    return MAIN if branch is None else branch, snapshot


def refuse_local_options(ctx: typer.Context, target: Target) -> None:
    """On a served graph, refuse the options that say how this machine would do the work."""
    if not target.is_served:
        return
    for name, option in _NOT_SERVED.items():
        given = ctx.get_parameter_source(name)
        if given is not None and given.name == "COMMANDLINE":
            raise InvalidInput(
                f"a server decides itself how it does `{target.command}`; {option} does not apply."
            )


def warn_of_old_name(ctx: typer.Context, name: str) -> None:
    """Say what a command is called by now, if it was called otherwise."""
    if ctx.info_name != name:
        warn(f"`omnigraph {ctx.info_name}` is now `omnigraph {name}`")


def _parse_params(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"the parameters are not JSON: {error}") from error
    except (ValueError, RecursionError) as error:
        # It is JSON, of a size that Python refuses in terms of its own settings.
        what = "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"
        raise InvalidInput(f"the parameters cannot be read: {what}") from error
