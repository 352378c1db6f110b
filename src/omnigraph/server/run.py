"""Running the server: rules of starting, the socket, the line that tells where it listens."""

from __future__ import annotations

import resource
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.api.hosting import Hosting, read_hosting
from omnigraph.errors import InvalidInput
from omnigraph.server.app import create_app
from omnigraph.server.graceful_shutdown import Server
from omnigraph.server.hosted_graphs import open_hosted
from omnigraph.server.http.authentication import Identities, read_identities
from omnigraph.server.http.origins import is_loopback
from omnigraph.server.limits import Limits, read_limits
from omnigraph.server.logs import LOGGER, log_to_stderr
from omnigraph.server.uploads.temporary_files import own_temporary_folder

if TYPE_CHECKING:
    from fastapi import FastAPI

_BACKLOG = 512
_SWITCH_SECONDS = 0.0005
# What graphs and streams need besides connections.
_FILES = 1024


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How a server is started. `force` lets an open one listen beyond this machine, and go by other names."""

    bind: str = "127.0.0.1:8080"
    unauthenticated: bool = False
    require_all_graphs: bool = False
    force: bool = False


def serve(config: str | Path, options: ServeOptions, environment: Mapping[str, str]) -> None:
    """Open the graphs and serve them until a signal says to stop; requests that are running are finished."""
    from omnigraph.store.storage_options import s3_options

    host, port = parse_bind(options.bind)
    unauthenticated = options.unauthenticated or is_on(environment.get("OMNIGRAPH_UNAUTHENTICATED"))
    require_all = options.require_all_graphs or is_on(environment.get("OMNIGRAPH_REQUIRE_ALL_GRAPHS"))
    identities = read_identities(environment)
    limits = read_limits(environment)
    storage = s3_options(environment)
    hosting = read_hosting(config, storage)
    check_start(hosting, identities, unauthenticated=unauthenticated)
    if not identities and not is_loopback(host) and not options.force:
        raise InvalidInput(
            f"{host} can be reached from other machines, and nobody would have to say who they are",
            hint="bind to 127.0.0.1, give out tokens, or pass --force",
        )
    log_to_stderr()
    allow_files(limits)
    with own_temporary_folder():
        hosted = open_hosted(
            hosting,
            identities,
            limits=limits,
            options=storage,
            require_all=require_all,
            environment=environment,
        )
        for id_, reason in hosted.quarantined.items():
            LOGGER.error("graph is not served", extra={"fields": {"graph_id": id_, "reason": reason}})
        try:
            with listening(host, port) as bound:
                run(create_app(hosted, is_local=not identities and not options.force), bound)
        finally:
            hosted.close()


def check_start(hosting: Hosting, identities: Identities, *, unauthenticated: bool) -> None:
    """Return when it is clear who may do what, else `InvalidInput`: nothing is open by accident."""
    if identities:
        return
    if hosting.has_policy:
        raise InvalidInput(
            "there is a policy and no token: nobody could prove who they are",
            hint="set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE",
        )
    if not unauthenticated:
        raise InvalidInput(
            "there are no tokens",
            hint="set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE, or pass --unauthenticated to serve everybody",
        )


def is_on(value: str | None) -> bool:
    """Whether a variable says yes.

    >>> is_on("1"), is_on("false"), is_on("0"), is_on(""), is_on(None)
    (True, False, False, False, False)
    """
    return value is not None and value.strip().lower() not in ("", "0", "false")


def parse_bind(text: str) -> tuple[str, int]:
    """The host and the port of ``HOST:PORT``.

    >>> parse_bind("127.0.0.1:8080"), parse_bind("[::1]:0")
    (('127.0.0.1', 8080), ('::1', 0))
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InvalidInput(f"`{text}` is not HOST:PORT", hint="for example 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


def allow_files(limits: Limits) -> None:
    """Let this process have as many files open as its connections may need, as far as the system lets it."""
    wanted = limits.connections + _FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    given = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (given, hard))
    if given < wanted:
        fields = {"files": given, "connections": limits.connections}
        LOGGER.warning("fewer files than connections may need", extra={"fields": fields})


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that is bound; port 0 takes one that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        # What Python adds in brackets is the address once more.
        reason = (error.strerror or str(error)).partition(" (while ")[0]
        raise InvalidInput(f"cannot listen on {host}:{port}: {reason}") from error
    with bound:
        # Connections inherit it. Without it an answer of two writes waits 40 ms for the client to acknowledge one.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield bound


def run(app: FastAPI, bound: socket.socket) -> None:
    """Serve an application on a socket until a signal says to stop."""
    # A write lets go of the interpreter at each file it touches and has to get it back from reads that keep it. The
    # default of ten times as long made commits a quarter slower beside many reads, and reads no faster.
    sys.setswitchinterval(_SWITCH_SECONDS)
    make_server(app).run([bound])


def make_server(app: FastAPI) -> Server:
    """The server of an application, not yet running."""
    return Server(app, app.state.capacity)
