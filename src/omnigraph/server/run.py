"""Starting the server: configuration, startup checks and the listening socket."""

from __future__ import annotations

import resource
import socket
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.api.hosting.graph_sources import Hosting
from omnigraph.api.hosting.hosting_config import read_hosting
from omnigraph.budget.machine import usable_processors
from omnigraph.cluster.serving.served_cluster import ServedCluster, find_cluster_root
from omnigraph.errors import InvalidInput
from omnigraph.server.app import AppOptions, create_app
from omnigraph.server.graceful_shutdown import GracefulServer
from omnigraph.server.hosted_graphs import ServerResources, open_graphs
from omnigraph.server.http.authentication import TokenRegistry, follow_tokens, read_tokens
from omnigraph.server.http.cors import VARIABLE as CORS_VARIABLE
from omnigraph.server.http.cors import parse_origins
from omnigraph.server.http.origins import is_loopback
from omnigraph.server.http.rate_limits import RateLimiter
from omnigraph.server.interpreter import freeze_heap, tune_interpreter
from omnigraph.server.limits import ServerLimits, read_limits
from omnigraph.server.logs import LOGGER, log_to_stderr, read_logged_decisions
from omnigraph.server.metrics_endpoint import read_metrics_access
from omnigraph.server.reload import Reloader
from omnigraph.server.tls import TlsCertificates, find_tls_files
from omnigraph.server.tracing import find_traces_endpoint
from omnigraph.server.uploads.temporary_files import private_temporary_folder
from omnigraph.server.workers.process_slots import Kind
from omnigraph.server.workers.start import ProcessServing, count_processes, serve_processes

if TYPE_CHECKING:
    from fastapi import FastAPI

_BACKLOG = 512
# File descriptors for graphs and streams, besides those of connections.
_RESERVED_FILES = 1024


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of the command line. `force` lifts the restriction of an unauthenticated server to local requests.

    With `verify_reads` the served graphs compare every file with its digest when they first read it. The paths of
    the TLS certificate and key can also be environment variables; without them the server does not use TLS.
    `workers` is the number of processes that answer reads; 0 means the default; see `read_workers`.
    """

    bind: str = "127.0.0.1:8080"
    unauthenticated: bool = False
    require_all_graphs: bool = False
    force: bool = False
    verify_reads: bool = False
    tls_certificate: str | None = None
    tls_key: str | None = None
    workers: int = 0
    cors_origins: tuple[str, ...] = ()
    metrics: str | None = None
    studio: bool = False
    mcp: bool = False


def serve(
    config: str | Path | Hosting,
    options: ServeOptions,
    environment: Mapping[str, str],
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Open the graphs and serve them until a signal arrives. Running requests finish first.

    `config` is a configuration, or the path of one. A server of one process calls `on_listening` with its URL when
    it accepts connections.
    """
    from omnigraph.store.storage_options import s3_options

    host, port = parse_bind(options.bind)
    unauthenticated = options.unauthenticated or is_on(environment.get("OMNIGRAPH_UNAUTHENTICATED"))
    require_all = options.require_all_graphs or is_on(environment.get("OMNIGRAPH_REQUIRE_ALL_GRAPHS"))
    tokens = read_tokens(environment)
    limits = read_limits(environment)
    decisions = read_logged_decisions(environment)
    storage = s3_options(environment)
    if options.verify_reads:
        storage["verify_reads"] = "true"
    tls_files = find_tls_files(options.tls_certificate, options.tls_key, environment)

    def read_tls() -> TlsCertificates | None:
        return None if tls_files is None else TlsCertificates(tls_files)

    tls = read_tls()
    read_configuration, fingerprint = find_configuration(config, storage, environment)
    workers = options.workers or read_workers(environment)

    def read() -> Hosting:
        hosting = read_configuration()
        check_authentication(hosting, tokens, unauthenticated=unauthenticated)
        if not tokens and not is_loopback(host) and not options.force:
            raise InvalidInput(
                f"an unauthenticated server must not listen on {host}, which other machines can reach",
                hint="bind to 127.0.0.1, configure tokens, or pass --force",
            )
        return hosting

    def open_(hosting: Hosting, limits: ServerLimits, kind: Kind | None = None) -> ServerResources:
        return open_graphs(
            hosting,
            read_tokens(environment),
            limits=limits,
            options=storage,
            # A writer opens only its own graphs.
            require_all=require_all and kind != "writer",
            allow_none=kind == "writer",
            only_reads=kind == "worker",
            environment=environment,
        )

    is_local = not tokens and not options.force
    listed = options.cors_origins or environment.get(CORS_VARIABLE, "").split(",")
    access = read_metrics_access(options.metrics, environment)
    app_options = AppOptions(
        is_local,
        parse_origins(listed, is_local=is_local),
        access.main,
        RateLimiter(limits.actor_rate, limits.actor_burst) if limits.actor_rate else None,
        traces_endpoint=find_traces_endpoint(environment),
        studio=options.studio,
        mcp=options.mcp,
    )
    with ExitStack() as sockets:
        if access.bind is not None:
            metrics_socket = sockets.enter_context(listening(*parse_bind(access.bind)))
            app_options = replace(app_options, metrics_socket=metrics_socket)
        if workers > 1:
            serving = ProcessServing(
                read, open_, lambda: read_tokens(environment), read_tls, fingerprint, limits, app_options
            )
            graph_ids, workers = count_processes(serving, workers)
            if workers > 1:
                log_to_stderr(decisions)
                raise_file_limit(limits)
                with listening(host, port, is_shared=True) as bound:
                    if code := serve_processes(serving, bound, graph_ids, workers):
                        raise SystemExit(code)
                return
        seen = fingerprint()
        hosting = read()
        log_to_stderr(decisions)
        raise_file_limit(limits)
        with private_temporary_folder():
            resources = open_(hosting, limits)
            for id_, reason in resources.quarantined.items():
                LOGGER.error("graph quarantined", extra={"fields": {"graph_id": id_, "reason": reason}})
            try:
                app = create_app(resources, app_options)
                app.state.tls = tls
                app.state.reloader = Reloader(
                    resources,
                    read_configuration,
                    lambda: read_tokens(environment),
                    tls,
                    fingerprint,
                    seen,
                )
                with listening(host, port) as bound:
                    if on_listening is not None:
                        on_listening(_url_of(bound, is_secure=tls is not None))
                    run(app, bound)
            finally:
                resources.close()


def find_configuration(
    config: str | Path | Hosting, storage: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[Callable[[], Hosting], Callable[[], Hashable]]:
    """Return the functions that read what is hosted, and that return a value that changes with it.

    The root of a cluster is found once in a process. From then on `cluster.yaml` is not read.
    """

    @cache
    def find_cluster() -> ServedCluster | None:
        # Not before the first call: the parent of worker processes must not access storage.
        root = None if isinstance(config, Hosting) else find_cluster_root(config, storage)
        return None if root is None else ServedCluster(root, storage)

    tokens = follow_tokens(environment)

    def read() -> Hosting:
        if isinstance(config, Hosting):
            return config
        cluster = find_cluster()
        return read_hosting(config, storage) if cluster is None else cluster.read()

    def fingerprint() -> Hashable:
        cluster = find_cluster()
        return None if cluster is None else cluster.fingerprint(), tokens()

    return read, fingerprint


def _url_of(bound: socket.socket, *, is_secure: bool) -> str:
    host, port = bound.getsockname()[:2]
    return f"http{'s' if is_secure else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def read_workers(environment: Mapping[str, str]) -> int:
    """Return the number of workers that ``OMNIGRAPH_WORKERS`` sets; by default that of the processors.

    >>> read_workers({"OMNIGRAPH_WORKERS": "4"})
    4
    """
    text = environment.get("OMNIGRAPH_WORKERS", "").strip()
    if text and not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidInput(f"OMNIGRAPH_WORKERS must be an integer of at least 1, got {text!r}")
    if text:
        return int(text)
    return usable_processors()


def check_authentication(hosting: Hosting, tokens: TokenRegistry, *, unauthenticated: bool) -> None:
    """Raise `InvalidInput` if there are no tokens, unless the server is meant to be unauthenticated."""
    if tokens:
        return
    if hosting.has_policy:
        raise InvalidInput(
            "a policy is configured, but no tokens: no caller could be authenticated",
            hint="set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE",
        )
    if not unauthenticated:
        raise InvalidInput(
            "no tokens are configured",
            hint="set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE, or pass --unauthenticated to allow every request",
        )


def is_on(value: str | None) -> bool:
    """Return whether an environment variable enables an option.

    >>> is_on("1"), is_on("false"), is_on("0"), is_on(""), is_on(None)
    (True, False, False, False, False)
    """
    return value is not None and value.strip().lower() not in ("", "0", "false")


def parse_bind(text: str) -> tuple[str, int]:
    """Return the host and the port of ``HOST:PORT``.

    >>> parse_bind("127.0.0.1:8080"), parse_bind("[::1]:0")
    (('127.0.0.1', 8080), ('::1', 0))
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InvalidInput(f"`{text}` is not HOST:PORT", hint="for example 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


def raise_file_limit(limits: ServerLimits) -> None:
    """Raise the soft limit of open files to what the connections need, within the hard limit."""
    needed = limits.connections + _RESERVED_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        fields = {"files": allowed, "needed": needed, "connections": limits.connections}
        LOGGER.warning("open file limit too low for the connection limit", extra={"fields": fields})


@contextmanager
def listening(host: str, port: int, *, is_shared: bool = False) -> Iterator[socket.socket]:
    """Return a listening socket. Port 0 selects a free port. If `is_shared` is true, workers can share the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server(
            (host, port), family=family, backlog=_BACKLOG, reuse_port=is_shared and sys.platform == "linux"
        )
    except OSError as error:
        # Python appends the address in parentheses, which the message already has.
        reason = (error.strerror or str(error)).partition(" (while ")[0]
        raise InvalidInput(f"cannot listen on {host}:{port}: {reason}") from error
    with bound:
        # Accepted connections inherit it. With Nagle's algorithm, a response of two writes would wait 40 ms for the
        # client's delayed acknowledgement.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield bound


def run(app: FastAPI, bound: socket.socket) -> None:
    """Serve an application on a socket until a signal arrives."""
    tune_interpreter()
    freeze_heap()
    create_server(app).run([bound])


def create_server(app: FastAPI) -> GracefulServer:
    """Return the server of an application, not yet running."""
    tls: TlsCertificates | None = getattr(app.state, "tls", None)
    return GracefulServer(
        app,
        app.state.capacity,
        getattr(app.state, "reloader", None),
        None if tls is None else tls.context,
    )
