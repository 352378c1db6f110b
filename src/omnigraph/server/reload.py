"""Reload of tokens, policies and the TLS certificate while the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType

from anyio import to_thread

from omnigraph.api.hosting.graph_sources import Hosting
from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.policy.gate import Gate
from omnigraph.server.hosted_graphs import ServerResources, graph_gate, server_gate
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
    before the first is applied, so an error leaves the server as it was.
    """

    resources: ServerResources
    read_hosting: Callable[[], Hosting] = field(repr=False)
    read_tokens: Callable[[], TokenRegistry] = field(repr=False)
    tls: TlsCertificates | None = None

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
        gates = self._graph_gates(hosting, tokens)
        gate = server_gate(hosting, tokens)
        certificate = None if self.tls is None else self.tls.read()

        def apply() -> None:
            self.resources.replace_access(tokens, gate, gates)
            if self.tls is not None and certificate is not None:
                self.tls.replace(certificate)
            LOGGER.info("configuration reloaded", extra={"fields": {"actors": len(tokens.actors)}})

        return apply

    def _graph_gates(self, hosting: Hosting, tokens: TokenRegistry) -> Mapping[str, Gate | None]:
        if not tokens and hosting.has_policy:
            raise InvalidInput("a policy is configured, but no tokens: no caller could be authenticated")
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
        return gates
