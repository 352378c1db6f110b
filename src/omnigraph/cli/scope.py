"""Which graph a command is about, on whose behalf, and how it is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from omnigraph.cli.config import config_of
from omnigraph.cli.output import warn
from omnigraph.errors import InvalidInput, NotFound, OmnigraphError

if TYPE_CHECKING:
    from omnigraph.graph.repository import Mode, Repository
    from omnigraph.store.location import Location

NO_GRAPH = (
    "no graph addressed — pass a positional URI, --store <uri>, --server <name>, --profile <name>, "
    "or set a default scope in ~/.omnigraph/config.yaml"
)
SERVER_URL = (
    "a remote graph must be addressed with --server <url> — a positional (or --uri) http(s):// URL "
    "no longer dispatches to a server."
)
DIRECT = frozenset({"init", "cleanup", "optimize", "schema plan"})
WITH_ACTOR = frozenset(
    {
        "init",
        "load",
        "ingest",
        "mutate",
        "change",
        "optimize",
        "branch create",
        "branch delete",
        "branch merge",
        "revert",
        "schema apply",
    }
)
# Below the help of a command, which would otherwise not mention them.
SHARED = "The options that omnigraph --help lists may stand here too."

Durability: TypeAlias = Literal["full", "os"]
Uri: TypeAlias = Annotated[str | None, typer.Argument(metavar="URI", help="Where the graph is.")]
UriOption: TypeAlias = Annotated[
    str | None, typer.Option("--uri", metavar="URI", help="Where the graph is.", show_default=False)
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
DurabilityOption: TypeAlias = Annotated[
    Durability,
    typer.Option(
        "--durability",
        metavar="full|os",
        help="When a local write counts as done: synced to disk, or handed to the operating system.",
    ),
]


@dataclass(frozen=True)
class GlobalOptions:
    """What the options that may stand anywhere say."""

    actor: str | None = None
    store: str | None = None
    server: str | None = None
    graph: str | None = None
    profile: str | None = None
    cluster: str | None = None
    yes: bool = False
    quiet: bool = False

    def given(self) -> list[str]:
        """The options that say something about a graph, by name."""
        values = {
            "--store": self.store,
            "--server": self.server,
            "--graph": self.graph,
            "--profile": self.profile,
            "--cluster": self.cluster,
            "--as": self.actor,
        }
        return [name for name, value in values.items() if value is not None]


@dataclass(frozen=True)
class Target:
    """The graph that a command is about. `uri` is as the user wrote it, `options` what its storage needs."""

    command: str
    uri: str
    location: Location
    options: dict[str, str]
    chosen: GlobalOptions

    @property
    def is_local(self) -> bool:
        """Whether the graph is on a disk of this machine."""
        return self.location.is_local


def resolve(ctx: typer.Context, uri: str | None) -> Target:
    """The graph that the command line addresses.

    Raises `InvalidInput` when it addresses none, or two, or one that this version cannot reach, and for an
    option that says nothing to this command.
    """
    command = ctx.command_path.partition(" ")[2]
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    _refuse_scopes(command, chosen)
    if chosen.actor is not None:
        _check_actor(command, chosen.actor)
    elif command in WITH_ACTOR:
        chosen = replace(chosen, actor=config_of(ctx).actor)
    return _target(command, _one_address(ctx, command, uri, chosen), chosen)


def refuse_graph_options(command: str, chosen: GlobalOptions) -> None:
    """A command that needs no graph would ignore what names one; silence would look like obedience."""
    for option in chosen.given():
        raise InvalidInput(f"`{command}` works without a graph; {option} does not apply.")


@contextmanager
def opened(target: Target, mode: Mode, durability: Durability = "full") -> Iterator[Repository]:
    """The graph, open for one command; what it has to warn of is printed at the end."""
    from omnigraph.graph.repository import Repository

    repository = Repository.open(target.uri, mode=mode, options=target.options or None, durability=durability)
    try:
        yield repository
    except NotFound as error:
        _suggest_branch(error, repository)
        raise
    finally:
        repository.close()
        for text in repository.warnings:
            warn(text)


def _refuse_scopes(command: str, chosen: GlobalOptions) -> None:
    if chosen.server is not None and command in DIRECT:
        raise InvalidInput(
            f"`{command}` is a direct (storage-native) command; --server addresses a served graph and does "
            "not apply. Pass a storage URI."
        )
    scopes = [option for option in chosen.given() if option not in ("--store", "--as")]
    for option in scopes:
        raise InvalidInput(
            f"{option} is not available for now: this version opens a graph directly in its storage.",
            hint="pass a storage URI" if command == "init" else "pass a storage URI, or --store <uri>",
        )


def _check_actor(command: str, actor: str) -> None:
    if command not in WITH_ACTOR:
        raise InvalidInput(f"`{command}` records no actor; --as does not apply.")
    if not actor.strip() or not actor.isprintable():
        raise InvalidInput(f"--as needs a readable name, not {actor!r}")


def _one_address(ctx: typer.Context, command: str, uri: str | None, chosen: GlobalOptions) -> str:
    if chosen.store is not None:
        if command == "init":
            raise InvalidInput("`init` takes the place of the new graph as a positional URI, not --store.")
        if uri is not None:
            raise InvalidInput(f"two graphs addressed: {uri} and --store {chosen.store}; pass exactly one.")
        return chosen.store
    if uri is not None:
        if uri.lower().startswith(("http://", "https://")):
            raise InvalidInput(SERVER_URL)
        return uri
    if os.environ.get("OMNIGRAPH_PROFILE"):
        raise InvalidInput(
            "OMNIGRAPH_PROFILE is set, but profiles are not available for now.",
            hint="pass a storage URI, or --store <uri>",
        )
    config = config_of(ctx)
    if config.server is not None:
        raise InvalidInput(
            "defaults.server is set, but servers are not available for now.",
            hint="pass a storage URI, or --store <uri>",
        )
    if config.store is None:
        raise InvalidInput(NO_GRAPH)
    return config.store


def _target(command: str, uri: str, chosen: GlobalOptions) -> Target:
    from omnigraph.store.location import Location
    from omnigraph.store.options import s3_options

    location = Location.parse(uri)
    if location.scheme == "memory":
        raise InvalidInput(f"{uri} would last only as long as this command", hint="use a path or s3://")
    if location.is_local and Path(location.path).is_file():
        raise InvalidInput(f"{uri} is a file, not a graph", details={"uri": uri})
    # A local graph may still be loaded from a store.
    return Target(command, uri, location, s3_options(os.environ), chosen)


def _suggest_branch(error: NotFound, repository: Repository) -> None:
    from omnigraph.lang.source import nearest_name

    branch = error.details.get("branch")
    if error.hint is not None or not isinstance(branch, str):
        return
    # A suggestion is no reason to fail in another way.
    with suppress(OmnigraphError):
        name = nearest_name(branch, list(repository.branches()))
        error.hint = f"did you mean `{name}`?" if name else None
