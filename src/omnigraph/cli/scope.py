"""Which graph a command is about, on whose behalf, and how it is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from omnigraph.cli.options import (
    CLUSTERED,
    WITH_ACTOR,
    WITHOUT_URI,
    GlobalOptions,
    capability,
    not_data,
    not_direct,
    refuse_options,
)
from omnigraph.cli.render.output import result_stream, warn
from omnigraph.cli.settings.addresses import NoGraphAddressed, Scope, find_scope
from omnigraph.cli.settings.config import config_of
from omnigraph.cli.storage_errors import told_interruption, told_place
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.graph.repository import Mode, Repository
    from omnigraph.store.location import Location

# Below the help of a command, which would otherwise not mention them.
SHARED = "The options that omnigraph --help lists may stand here too."

Durability: TypeAlias = Literal["full", "os"]
Uri: TypeAlias = Annotated[str | None, typer.Argument(metavar="URI", help="Where the graph is.")]
UriOption: TypeAlias = Annotated[
    str | None, typer.Option("--uri", metavar="URI", help="Where the graph is.", show_default=False)
]


def _require_stdout(wanted: bool) -> bool:
    # Before anything is done: a program that writes and cannot hear of it has no way to find out.
    if wanted:
        result_stream()
    return wanted


JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON document.", callback=_require_stdout)
]
DurabilityOption: TypeAlias = Annotated[
    Durability,
    typer.Option(
        "--durability",
        metavar="full|os",
        help="When a local write counts as done: synced to disk, or handed to the operating system.",
    ),
]


@dataclass(frozen=True)
class Served:
    """A graph on a server."""

    url: str
    graph: str
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Stored:
    """A graph in its storage; `options` are what the storage needs."""

    location: Location
    options: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class Target:
    """The graph that a command is about. `uri` is what is shown: as the user wrote it, or where it is served."""

    command: str
    uri: str
    place: Stored | Served
    chosen: GlobalOptions

    @property
    def is_served(self) -> bool:
        """Whether a server stands between the command and the storage."""
        return isinstance(self.place, Served)

    @property
    def is_local(self) -> bool:
        """Whether the graph is on a disk of this machine, as far as the command line can see."""
        return isinstance(self.place, Stored) and self.place.location.is_local

    @property
    def location(self) -> Location:
        """Where the storage of a graph is that is not served."""
        return self._stored.location

    @property
    def options(self) -> dict[str, str]:
        """What the storage of a graph needs that is not served."""
        return self._stored.options

    @property
    def _stored(self) -> Stored:
        assert isinstance(self.place, Stored), "a command that reads storage takes direct targets only"
        return self.place


def resolve(ctx: typer.Context, uri: str | None) -> Target:
    """The graph that the command line addresses.

    Raises `InvalidInput` when it addresses none, or two, or one that this command cannot reach, and for an
    option that says nothing to this command.
    """
    command = ctx.command_path.partition(" ")[2]
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    refuse_options(command, chosen)
    if command == "init" and chosen.store is not None:
        raise InvalidInput("`init` takes the place of the new graph as a positional URI, not --store.")
    try:
        scope = find_scope(
            lambda: config_of(ctx), uri, chosen, os.environ, takes_uri=command not in WITHOUT_URI
        )
    except NoGraphAddressed as error:
        raise NoGraphAddressed(error.reason, hint=_suggest_store(ctx.params.get("name"))) from error
    if scope.kind == "server":
        if capability(command) == "direct":
            raise InvalidInput(not_direct(command, scope.origin))
        if chosen.actor is not None:
            raise InvalidInput(f"the token decides who acts on {scope.origin}; --as does not apply.")
        return served_target(ctx, command, scope)
    if chosen.actor is None and command in WITH_ACTOR:
        chosen = replace(chosen, actor=config_of(ctx).actor)
    if scope.kind == "cluster":
        return _clustered(ctx, command, scope, chosen)
    return _stored(command, scope.value, chosen)


def served_target(ctx: typer.Context, command: str, scope: Scope) -> Target:
    """The graph that a scope means on its server, with the token that the operator has for it."""
    from omnigraph.cli.served_graph import choose_graph
    from omnigraph.cli.settings.credentials import token_for
    from omnigraph.cli.settings.servers import find_server

    server = find_server(config_of(ctx), scope.value)
    token = token_for(server, os.environ)
    url, graph = choose_graph(server, scope, token)
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    return Target(command, f"{url}/graphs/{graph}", Served(url, graph, token), chosen)


@contextmanager
def opened_graph(target: Target, mode: Mode, durability: Durability = "full") -> Iterator[Graph]:
    """The graph of a target, open for one command, on behalf of whoever runs it.

    Read directly it acts for the actor of the command line, and what it has to warn of is printed at the end; a
    server knows the actor by the token. A branch that does not exist is refused with the nearest name.
    """
    opening = _connected(target.place, mode, durability) if isinstance(target.place, Served) else None
    with opening or _opened_here(target, mode, durability) as graph:
        yield graph


@contextmanager
def opened(
    target: Target, mode: Mode, durability: Durability = "full", *, recover: bool = True
) -> Iterator[Repository]:
    """The storage of a graph, open for one command; what it has to warn of is printed at the end."""
    from omnigraph.graph.repository import Repository

    with told_interruption(mode), told_place(target.uri, target.location, mode):
        repository = Repository.open(
            target.uri, mode=mode, options=target.options or None, durability=durability, recover=recover
        )
        try:
            yield repository
        finally:
            repository.close()
            for text in repository.warnings:
                warn(text)


@contextmanager
def _opened_here(target: Target, mode: Mode, durability: Durability) -> Iterator[Graph]:
    from omnigraph.api.entry import embedder_of
    from omnigraph.api.local.local_graph import LocalGraph
    from omnigraph.api.local.open_options import OpenOptions
    from omnigraph.read.reader import Reader

    with opened(target, mode, durability) as repository:
        reader = Reader(embedder=embedder_of(os.environ))
        yield LocalGraph(repository, reader, OpenOptions(mode=mode, actor=target.chosen.actor))


@contextmanager
def _connected(place: Served, mode: Mode, durability: Durability) -> Iterator[Graph]:
    from omnigraph.client.entry import connect

    if durability != "full":
        raise InvalidInput("a server decides itself when a write is done; --durability does not apply.")
    with told_interruption(mode), connect(place.url, place.graph, token=place.token) as graph:
        yield graph


def _clustered(ctx: typer.Context, command: str, scope: Scope, chosen: GlobalOptions) -> Target:
    from omnigraph.cli.settings.clusters import find_source, read_cluster

    if command not in CLUSTERED:
        direct = capability(command) == "direct"
        raise InvalidInput(
            f"`{command}` takes one graph by its storage; {scope.origin} addresses a cluster and does not apply. "
            "Pass a storage URI."
            if direct
            else not_data(command, scope.origin)
        )
    source = find_source(read_cluster(config_of(ctx), scope.value), scope)
    return _stored(command, source.uri, chosen)


def _stored(command: str, uri: str, chosen: GlobalOptions) -> Target:
    from omnigraph.store.location import Location
    from omnigraph.store.storage_options import s3_options

    try:
        location = Location.parse(uri)
    except InvalidInput as error:
        if error.hint is not None and "memory://" in error.hint:
            # That is for those who stay in one process.
            error.hint = "use a path, file:// or s3://"
        raise
    if location.scheme == "memory":
        raise InvalidInput(f"{uri} would last only as long as this command", hint="use a path or s3://")
    with told_place(uri, location, "r"):
        if location.is_local and _is_file(Path(location.path)):
            raise InvalidInput(f"{uri} is a file, not a graph", details={"uri": uri})
    # A local graph may still be loaded from a store.
    return Target(command, uri, Stored(location, s3_options(os.environ)), chosen)


def _is_file(path: Path) -> bool:
    from omnigraph.store.sync import storage_error_from_os

    try:
        return path.is_file()
    except OSError as error:
        raise storage_error_from_os(error, f"cannot look at {path}") from error


def _suggest_store(name: object) -> str | None:
    """What to say of the name of a query that looks like the place of a graph."""
    if isinstance(name, str) and not name.isidentifier():
        return f"`{name}` was taken for the NAME of a query; pass --store {name}"
    return None
