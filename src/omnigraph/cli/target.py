"""Resolve the graph that a command line addresses, and open it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
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
    cluster_address_error,
    refuse_options,
    served_address_error,
)
from omnigraph.cli.render.output import print_warning, result_stream
from omnigraph.cli.settings.config import load_config
from omnigraph.cli.settings.graph_address import SERVER_URL, GraphAddress, NoGraphAddressed, find_address
from omnigraph.cli.settings.servers import is_url
from omnigraph.cli.storage_errors import explain_storage_errors, report_interruption
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.graph.repository import Mode, Repository
    from omnigraph.store.location import Location

# The help of a command does not list the global options.
EPILOG = "The global options that omnigraph --help lists also apply."

Durability: TypeAlias = Literal["full", "os"]
UriArgument: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="URI", help="Storage URI of the graph.")
]
GraphOrUrlArgument: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="GRAPH|URL", help="Storage URI of the graph, or its URL on a server: URL/graphs/ID."
    ),
]
UriOption: TypeAlias = Annotated[
    str | None, typer.Option("--uri", metavar="URI", help="Storage URI of the graph.", show_default=False)
]


def _require_stdout(json: bool) -> bool:
    # Checked before the command runs: a caller that cannot read the JSON could not tell whether a write succeeded.
    if json:
        result_stream()
    return json


JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON document.", callback=_require_stdout)
]
DurabilityOption: TypeAlias = Annotated[
    Durability,
    typer.Option(
        "--durability",
        metavar="full|os",
        help="When a local write is complete: synced to disk (full), or passed to the operating system (os).",
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
    """A graph in storage. `options` are the options of the object store, such as its credentials."""

    location: Location
    options: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class GraphTarget:
    """The graph that a command addresses.

    `uri` is the address in messages and output: as the user wrote it, or the URL of a served graph.
    """

    command: str
    uri: str
    place: Stored | Served
    chosen: GlobalOptions

    @property
    def is_served(self) -> bool:
        """Whether the command reaches the graph through a server."""
        return isinstance(self.place, Served)

    @property
    def is_local(self) -> bool:
        """Whether the graph is in a local folder. False for a served graph."""
        return isinstance(self.place, Stored) and self.place.location.is_local

    @property
    def location(self) -> Location:
        """The storage location of a graph that is not served."""
        return self._stored.location

    @property
    def options(self) -> dict[str, str]:
        """The storage options of a graph that is not served."""
        return self._stored.options

    @property
    def _stored(self) -> Stored:
        assert isinstance(self.place, Stored), "only a direct target has a storage location"
        return self.place


def resolve_target(ctx: typer.Context, uri: str | None) -> GraphTarget:
    """Return the graph that the command line, the environment and the settings address.

    Raises `InvalidInput` if they address no graph, two graphs, or a graph that this command cannot use, and for
    an option that does not apply to the command. Nothing is opened.
    """
    command = ctx.command_path.partition(" ")[2]
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    refuse_options(command, chosen)
    if command == "init" and chosen.store is not None:
        raise InvalidInput("`init` takes the URI of the new graph as an argument, not as --store.")
    try:
        scope = find_address(
            lambda: load_config(ctx), uri, chosen, os.environ, takes_uri=command not in WITHOUT_URI
        )
    except NoGraphAddressed as error:
        raise NoGraphAddressed(error.reason, hint=_suggest_store(ctx.params.get("name"))) from error
    if scope.kind == "server":
        if capability(command) == "direct":
            raise InvalidInput(served_address_error(command, scope.origin))
        if chosen.actor is not None:
            raise InvalidInput(
                f"the bearer token identifies the actor on {scope.origin}; --as does not apply."
            )
        return resolve_served(ctx, command, scope)
    if chosen.actor is None and command in WITH_ACTOR:
        chosen = replace(chosen, actor=load_config(ctx).actor)
    if scope.kind == "cluster":
        return _cluster_target(ctx, command, scope, chosen)
    return _stored(command, scope.value, chosen)


def resolve_storage(target: GraphTarget, uri: str) -> GraphTarget:
    """Return a second place in storage that the command of a target addresses by its URI. Nothing is opened."""
    if is_url(uri):
        raise InvalidInput(SERVER_URL)
    return _stored(target.command, uri, target.chosen)


def resolve_served(ctx: typer.Context, command: str, scope: GraphAddress) -> GraphTarget:
    """Return the graph that an address names on its server, with the token for that server."""
    from omnigraph.cli.served_graph import choose_graph
    from omnigraph.cli.settings.credentials import token_for
    from omnigraph.cli.settings.servers import find_server

    server = find_server(load_config(ctx), scope.value)
    token = token_for(server, os.environ)
    url, graph = choose_graph(server, scope, token)
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    return GraphTarget(command, f"{url}/graphs/{graph}", Served(url, graph, token), chosen)


@contextmanager
def open_graph(
    target: GraphTarget,
    mode: Mode,
    durability: Durability = "full",
    *,
    recover: bool = True,
    external_blobs: Sequence[str] | None = None,
) -> Iterator[Graph]:
    """Open the graph of a target, in storage or on its server, for the duration of one command.

    In storage the handle uses the actor of the command line, and warnings of the repository are printed when it is
    closed. On a server the bearer token identifies the actor. `recover=False` leaves interrupted bulk writes of a
    graph in storage as they are. `external_blobs` has the bases of external blobs of a graph in storage.
    """
    if isinstance(target.place, Served) and target.chosen.verify_reads:
        raise InvalidInput(
            "the server chooses whether reads are verified; --verify-reads does not apply.",
            hint="start the server with `omnigraph serve --verify-reads`",
        )
    opening = _connect(target.place, mode, durability) if isinstance(target.place, Served) else None
    with opening or _open_stored(target, mode, durability, recover, external_blobs) as graph:
        yield graph


@contextmanager
def open_repository(
    target: GraphTarget, mode: Mode, durability: Durability = "full", *, recover: bool = True
) -> Iterator[Repository]:
    """Open the repository of a stored graph for the duration of one command, then print its warnings.

    `recover=False` leaves interrupted bulk writes as they are.
    """
    from omnigraph.graph.repository import Repository

    with report_interruption(mode), explain_storage_errors(target.uri, target.location, mode):
        repository = Repository.open(
            target.uri, mode=mode, options=target.options or None, durability=durability, recover=recover
        )
        try:
            yield repository
        finally:
            repository.close()
            for text in repository.warnings:
                print_warning(text)


@contextmanager
def _open_stored(
    target: GraphTarget,
    mode: Mode,
    durability: Durability,
    recover: bool,
    external_blobs: Sequence[str] | None,
) -> Iterator[Graph]:
    from omnigraph.api.entry import embedder_of
    from omnigraph.api.local.local_graph import LocalGraph
    from omnigraph.api.local.open_options import OpenOptions
    from omnigraph.maintain.upkeep import attach_upkeep
    from omnigraph.read.reader import Reader
    from omnigraph.rules.external_blobs import ExternalBlobPolicy

    policy = ExternalBlobPolicy.of(external_blobs)
    with open_repository(target, mode, durability, recover=recover) as repository:
        # The process ends with the command, so a pass that is due runs to its end.
        attach_upkeep(repository, None, finish=True)
        reader = Reader(embedder=embedder_of(os.environ))
        yield LocalGraph(
            repository, reader, OpenOptions(mode=mode, actor=target.chosen.actor, external_blobs=policy)
        )


@contextmanager
def _connect(place: Served, mode: Mode, durability: Durability) -> Iterator[Graph]:
    from omnigraph.client.entry import connect

    if durability != "full":
        raise InvalidInput("the server chooses the durability of a write; --durability does not apply.")
    with report_interruption(mode), connect(place.url, place.graph, token=place.token) as graph:
        yield graph


def _cluster_target(
    ctx: typer.Context, command: str, scope: GraphAddress, chosen: GlobalOptions
) -> GraphTarget:
    from omnigraph.cli.settings.clusters import find_source, read_cluster

    if command not in CLUSTERED:
        direct = capability(command) == "direct"
        raise InvalidInput(
            f"`{command}` addresses one graph by its storage URI; {scope.origin} addresses a cluster "
            "and does not apply. Pass a storage URI."
            if direct
            else cluster_address_error(command, scope.origin)
        )
    source = find_source(read_cluster(load_config(ctx), scope.value), scope)
    return _stored(command, source.uri, chosen)


def _stored(command: str, uri: str, chosen: GlobalOptions) -> GraphTarget:
    from omnigraph.store.location import Location
    from omnigraph.store.storage_options import s3_options

    # Without memory://, which exists only within one process.
    schemes = "use a path, file:// or s3://"
    try:
        location = Location.parse(uri)
    except InvalidInput as error:
        if "scheme" not in error.details:
            raise
        raise InvalidInput(error.reason, hint=schemes, details=error.details) from error
    if location.scheme == "memory":
        raise InvalidInput(f"{uri} exists only within one process", hint=schemes)
    with explain_storage_errors(uri, location, "r"):
        if location.is_local and _is_file(Path(location.path)):
            raise InvalidInput(f"{uri} is a file, not a graph", details={"uri": uri})
    # Needed for a local graph too: `load` may read its input from S3.
    options = s3_options(os.environ)
    if chosen.verify_reads:
        options["verify_reads"] = "true"
    return GraphTarget(command, uri, Stored(location, options), chosen)


def _is_file(path: Path) -> bool:
    from omnigraph.store.sync import storage_error_from_os

    try:
        return path.is_file()
    except OSError as error:
        raise storage_error_from_os(error, f"cannot look at {path}") from error


def _suggest_store(name: object) -> str | None:
    """Return a hint if the NAME of a query looks like the address of a graph."""
    if isinstance(name, str) and not name.isidentifier():
        return f"`{name}` was read as the NAME of a query; to address a graph, pass --store {name}"
    return None
