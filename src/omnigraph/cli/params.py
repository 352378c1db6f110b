"""What the commands on a graph's data have in common: which query with which values, and on which state."""

from __future__ import annotations

import json
import os
import re
import shlex
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.files import read_source, refuse_stdin_twice
from omnigraph.cli.output import warn
from omnigraph.cli.shell import hoist_globals
from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.pipeline.engines import Engine

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.graph.repository import Repository


def complete_branch(ctx: typer.Context, incomplete: str) -> list[str]:
    """The branches of the graph that the unfinished command line addresses; none when it addresses none."""
    # The parser gives up where a value is still missing, so the words themselves are looked at. Bash takes them
    # apart at these two signs.
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    typed = re.sub(r"\s*([=:])\s*", r"\1", typed)
    try:
        words = hoist_globals(shlex.split(typed)[1:])
    except ValueError:
        return []
    stores = [word.partition("=")[2] for word in words if word.startswith("--store=")]
    if any(item.name == "uri" for item in ctx.command.params):
        stores += [word for word in words if "://" in word or Path(word).is_dir()]
    try:
        return [name for name in _branches(stores[0]) if name.startswith(incomplete)] if stores else []
    except OmnigraphError:
        # Half a command line may mean anything; whoever types it sees errors when it is run.
        return []


def _branches(uri: str) -> list[str]:
    from omnigraph.graph.repository import Repository
    from omnigraph.store.location import Location
    from omnigraph.store.options import s3_options

    options = None if Location.parse(uri).is_local else s3_options(os.environ)
    with closing(Repository.open(uri, mode="r", options=options)) as repository:
        return list(repository.branches())


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


@dataclass(frozen=True)
class Request:
    """A query to run: its source, its name where the source has several, and the values of its parameters."""

    source: str
    name: str | None
    params: Any


def read_request(
    kind: str,
    name: str | None,
    query: str | None,
    query_string: str | None,
    params: str | None,
    params_file: str | None,
) -> Request:
    """What the options say is to be run; `kind` is what messages call it.

    Raises `InvalidInput` when there is no source: a name alone means a stored query, which only servers have.
    """
    if query is not None and query_string is not None:
        raise typer.BadParameter("pass one of --query and -e", param_hint="'-e'")
    if params is not None and params_file is not None:
        raise typer.BadParameter("pass one of --params and --params-file", param_hint="'--params-file'")
    if query is None and query_string is None:
        raise InvalidInput(
            f"no {kind} given"
            if name is None
            else f"a stored {kind} is run by a server: '{name}' has no source",
            hint="pass --query FILE or -e GQ",
        )
    refuse_stdin_twice([query or "", params_file or ""])
    source = read_source(query) if query is not None else query_string or ""
    text = read_source(params_file) if params_file is not None else params
    return Request(source, name, None if text is None else _parse_params(text))


def read_state(branch: str | None, snapshot: str | None) -> tuple[str, str | None]:
    """The branch and the commit to read at, of which one decides."""
    from omnigraph.graph.branches import MAIN

    if branch is not None and snapshot is not None:
        raise typer.BadParameter("a commit names a state by itself", param_hint="'--branch'")
    return MAIN if branch is None else branch, snapshot


def graph_on(repository: Repository, actor: str | None = None) -> Graph:
    """The graph that a command has opened, with everything one can do with it."""
    from omnigraph.api.graph import Graph
    from omnigraph.read.reader import Reader

    return Graph(repository, Reader(), actor, {})


def warn_of_old_name(ctx: typer.Context, name: str) -> None:
    """Say what a command is called by now, if it was called otherwise."""
    if ctx.info_name != name:
        warn(f"`omnigraph {ctx.info_name}` is now `omnigraph {name}`")


def _parse_params(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the parameters are not JSON: {error}") from error
