"""Running the server: rules of starting, the socket, the line that tells where it listens, a graceful end."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from omnigraph.errors import InvalidInput
from omnigraph.server.admission import Limits
from omnigraph.server.app import create_app
from omnigraph.server.hosting import Hosting, open_hosted, read_hosting
from omnigraph.server.identity import Identities, read_identities
from omnigraph.server.logs import LOGGER, log_to_stderr

if TYPE_CHECKING:
    from fastapi import FastAPI

LISTENING = "OMNIGRAPH_LISTEN_ADDR"
_GRACE_SECONDS = 30
_BACKLOG = 512
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How a server is started. `force` lets an open one listen beyond this machine."""

    bind: str = "127.0.0.1:8080"
    unauthenticated: bool = False
    require_all_graphs: bool = False
    force: bool = False


def serve(config: Path, options: ServeOptions, environment: Mapping[str, str]) -> None:
    """Open the graphs and serve them until a signal says to stop; requests that are running are finished."""
    from omnigraph.store.options import s3_options

    host, port = parse_bind(options.bind)
    unauthenticated = options.unauthenticated or is_on(environment.get("OMNIGRAPH_UNAUTHENTICATED"))
    require_all = options.require_all_graphs or is_on(environment.get("OMNIGRAPH_REQUIRE_ALL_GRAPHS"))
    identities = read_identities(environment)
    storage = s3_options(environment)
    hosting = read_hosting(config, storage)
    check_start(hosting, identities, unauthenticated=unauthenticated)
    if not identities and not is_loopback(host) and not options.force:
        raise InvalidInput(
            f"{host} can be reached from other machines, and nobody would have to say who they are",
            hint="bind to 127.0.0.1, give out tokens, or pass --force",
        )
    log_to_stderr()
    hosted = open_hosted(
        hosting, identities, limits=read_limits(environment), options=storage, require_all=require_all
    )
    for id_, reason in hosted.quarantined.items():
        LOGGER.error("graph is not served", extra={"fields": {"graph_id": id_, "reason": reason}})
    try:
        with listening(host, port) as bound:
            run(create_app(hosted), bound)
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


def read_limits(environment: Mapping[str, str]) -> Limits:
    """The caps that the environment sets, and the defaults for the rest."""
    default = Limits()
    return Limits(
        requests=_number(environment, "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX", default.requests),
        bytes=_number(environment, "OMNIGRAPH_PER_ACTOR_BYTES_MAX", default.bytes),
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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that is bound; port 0 takes one that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InvalidInput(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    with bound:
        # Connections inherit it. Without it an answer of two writes waits 40 ms for the client to acknowledge one.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield bound


def run(app: FastAPI, bound: socket.socket) -> None:
    """Serve an application on a socket until a signal says to stop."""
    make_server(app).run([bound])


def make_server(app: FastAPI) -> Server:
    """The server of an application, not yet running."""
    config = uvicorn.Config(
        app,
        access_log=False,
        # The log is ours; and whoever asks learns neither the name of the library nor, by a header that
        # anybody can write, another address of the client.
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    return Server(config)


class Server(uvicorn.Server):
    """A server that tells where it listens once it does, and whose end by a signal is an ordinary one."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        for bound in sockets or ():
            host, port = bound.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            sys.stdout.write(f"{LISTENING}={shown}:{port}\n")
            sys.stdout.flush()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, and have it done with then."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InvalidInput(f"{name} must be a whole number of at least 1, not {text!r}")
    return int(text)
