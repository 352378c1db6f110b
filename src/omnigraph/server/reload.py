"""Reload of tokens, policies, the TLS certificate and the revision of a cluster while the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from types import FrameType

from anyio import to_thread

from omnigraph.api.hosting.graph_sources import Hosting
from omnigraph.errors import InvalidInput, OmnigraphError, RecoveryRequired
from omnigraph.policy.gate import Gate
from omnigraph.server.hosted_graphs import HostedGraph, ServerResources, graph_gate, server_gate
from omnigraph.server.http.authentication import TokenRegistry
from omnigraph.server.logs import LOGGER
from omnigraph.server.tls import TlsCertificates


class ReloadTask:
    """Runs reloads one at a time in the event loop of a server. Signals that arrive meanwhile lead to one more."""

    def __init__(self, reloader: Reloader | None) -> None:
        self._reloader = reloader
        self._task: asyncio.Task[None] | None = None
        self._is_requested = False

    def handler(self) -> Callable[[int, FrameType | None], None]:
        """Return a signal handler that starts a reload in the running event loop."""
        loop = asyncio.get_running_loop()

        def handle(_number: int, _frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self.start)

        return handle

    def start(self) -> None:
        """Start a reload, on the event loop."""
        self._is_requested = True
        if self._reloader is not None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(self._reloader))

    async def _run(self, reloader: Reloader) -> None:
        try:
            while self._is_requested:
                self._is_requested = False
                await reload(reloader)
        finally:
            self._task = None


async def reload(reloader: Reloader) -> bool:
    """Reload, and return whether the new configuration is applied. An error is logged; the old one stays."""
    try:
        apply = await to_thread.run_sync(reloader.prepare)
    except Exception as error:  # noqa: BLE001 - the server continues with the configuration that it has
        hint = error.hint if isinstance(error, OmnigraphError) else None
        fields = {"error": str(error), "hint": hint}
        LOGGER.error("reload failed; the old configuration stays in use", extra={"fields": fields})
        return False
    apply()
    return True


@dataclass(frozen=True)
class Reloader:
    """Reads the configuration again and applies it.

    `read_hosting` and `read_tokens` read what the server read at its start. All new values are read and checked
    before the first is applied, so an error leaves the server as it was. `fingerprint` returns a value that changes
    when there is something to reload; `seen` is its value before the server read its configuration.
    """

    resources: ServerResources
    read_hosting: Callable[[], Hosting] = field(repr=False)
    read_tokens: Callable[[], TokenRegistry] = field(repr=False)
    tls: TlsCertificates | None = None
    fingerprint: Callable[[], Hashable] | None = field(default=None, repr=False)
    seen: Hashable = None

    def prepare(self) -> Callable[[], None]:
        """Read everything again, and return the function that applies it. Raises the error of an invalid file.

        The caller applies on the event loop, where requests are authenticated and authorized, so that no request
        sees new tokens with old policies.
        """
        tokens, hosting = self.read_tokens(), self.read_hosting()
        if bool(tokens) != bool(self.resources.tokens):
            raise InvalidInput(
                "a reload cannot turn authentication on or off", hint="restart the server to change this"
            )
        if not tokens and hosting.has_policy:
            raise InvalidInput("a policy is configured, but no tokens: no caller could be authenticated")
        gate = server_gate(hosting, tokens)
        certificate = None if self.tls is None else self.tls.read()
        replace_graphs = (
            self._prepare_gates(hosting, tokens)
            if hosting.cluster is None
            else self._prepare_revision(hosting, tokens)
        )

        def apply() -> None:
            replace_graphs()
            self.resources.replace_access(tokens, gate, {})
            if self.tls is not None and certificate is not None:
                self.tls.replace(certificate)
            LOGGER.info("configuration reloaded", extra={"fields": {"actors": len(tokens.actors)}})

        return apply

    def _prepare_gates(self, hosting: Hosting, tokens: TokenRegistry) -> Callable[[], None]:
        """Return the function that replaces the policies of the graphs of a site file."""
        sources = {source.id: source for source in hosting.graphs}
        if missing := sorted(self.resources.graphs.keys() - sources.keys()):
            raise InvalidInput(
                f"the configuration no longer has graph '{missing[0]}', which the server serves",
                hint="restart the server to add or remove graphs",
            )
        gates: dict[str, Gate | None] = {}
        for id_ in self.resources.graphs:
            if (error := sources[id_].error) is not None:
                raise error
            gates[id_] = graph_gate(sources[id_], tokens)
        if added := sorted(sources.keys() - self.resources.graphs.keys() - self.resources.quarantined.keys()):
            fields = {"graphs": added}
            LOGGER.warning("new graphs are served after a restart", extra={"fields": fields})
        return lambda: self.resources.replace_access(self.resources.tokens, self.resources.server_gate, gates)

    def _prepare_revision(self, hosting: Hosting, tokens: TokenRegistry) -> Callable[[], None]:
        """Return the function that replaces graphs, stored queries and policies by those of a revision.

        A graph that is served stays as it is if anything in the revision is invalid: the error is raised. A graph
        that is not served yet and cannot be opened is quarantined.
        """
        opener = self.resources.opener
        assert opener is not None, "the graphs of a cluster are opened by `open_graphs`"
        served = dict(self.resources.graphs)
        graphs: dict[str, HostedGraph] = {}
        refused: dict[str, OmnigraphError] = {}
        try:
            for source in hosting.graphs:
                found = served.get(source.id)
                if found is None:
                    opened = opener.open(source, tokens)
                    if isinstance(opened, OmnigraphError):
                        refused[source.id] = opened
                    else:
                        graphs[source.id] = opened
                # The operation that has written the revision may not have removed its intent yet.
                elif source.error is None or isinstance(source.error, RecoveryRequired):
                    graphs[source.id] = opener.update(found, source, tokens)
                else:
                    raise source.error
        except BaseException:
            for id_, item in graphs.items():
                if id_ not in served or served[id_].graph is not item.graph:
                    item.close()
            raise

        def apply() -> None:
            changed = {
                "added": sorted(graphs.keys() - served.keys()),
                "removed": sorted(served - graphs.keys()),
            }
            self.resources.replace_graphs(graphs, refused)
            LOGGER.info(
                "revision of the cluster served", extra={"fields": {"graphs": len(graphs), **changed}}
            )
            for id_, reason in self.resources.quarantined.items():
                LOGGER.error("graph quarantined", extra={"fields": {"graph_id": id_, "reason": reason}})

        return apply


class Watcher:
    """Reloads when the fingerprint of the configuration changes. It runs in the event loop of a server."""

    def __init__(self, reloader: Reloader | None, task: ReloadTask, seconds: float) -> None:
        self._fingerprint = None if reloader is None else reloader.fingerprint
        self._seen = None if reloader is None else reloader.seen
        self._reload = task
        self._seconds = seconds
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False

    async def start(self) -> None:
        """Start to watch."""
        if self._fingerprint is not None:
            self._task = asyncio.create_task(self._run(self._fingerprint))

    def stop(self) -> None:
        """Stop to watch."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, read: Callable[[], Hashable]) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            try:
                found = await to_thread.run_sync(read)
            except Exception as error:  # noqa: BLE001 - the next turn tries again
                self._log_failure(error)
            else:
                self._has_failed = False
                if found != self._seen:
                    self._seen = found
                    self._reload.start()

    def _log_failure(self, error: Exception) -> None:
        if not self._has_failed:
            LOGGER.warning("cannot look for a new configuration", extra={"fields": {"error": str(error)}})
        self._has_failed = True
