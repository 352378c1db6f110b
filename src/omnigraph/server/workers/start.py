"""Serving with several processes: the parent, and the start of a worker or a writer."""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omnigraph.api.hosting.graph_sources import Hosting
from omnigraph.read.reader import default_budget
from omnigraph.server.app import AppOptions, create_app
from omnigraph.server.graceful_shutdown import print_address
from omnigraph.server.hosted_graphs import ServerResources
from omnigraph.server.http.authentication import TokenRegistry
from omnigraph.server.interpreter import freeze_heap, tune_interpreter
from omnigraph.server.limits import ServerLimits
from omnigraph.server.logs import LOGGER, name_process
from omnigraph.server.reload import Reloader
from omnigraph.server.running_queries import memory_limits
from omnigraph.server.tls import TlsCertificates
from omnigraph.server.uploads.temporary_files import private_temporary_folder
from omnigraph.server.workers.child import ProcessServer
from omnigraph.server.workers.metric_history import MetricHistory, history_path
from omnigraph.server.workers.peers import Peers
from omnigraph.server.workers.process_slots import Kind, ProcessSlot, ProcessSlots, create_slots
from omnigraph.server.workers.proxy import WriterProxy
from omnigraph.server.workers.pushed_rows import RowSender
from omnigraph.server.workers.shared_usage import SharedUsage
from omnigraph.server.workers.supervisor import Supervisor, ask_in_child
from omnigraph.server.workers.warming import warm
from omnigraph.server.workers.writer_connections import WriterPool

if TYPE_CHECKING:
    from starlette.types import ASGIApp

# Idle connections of workers to a writer stay open. A connection that the writer closed while a request was on its
# way would leave the outcome of the request unknown.
_FOR_EVER: Final = 1e9
_MEMORY: Final = "memory:"
# Modules that the library imports at the first write. The parent imports them once for all processes: the first
# mutation, load and merge of each writer would otherwise hold the interpreter for up to 0.4 s.
_WRITE_MODULES: Final = (
    "omnigraph.mutate.mutate",
    "omnigraph.load.load",
    "omnigraph.sources.splits",
    "omnigraph.merge.prepare_merge",
)


@dataclass(frozen=True)
class ProcessServing:
    """How the processes of one server read the configuration and open graphs. All of it happens after the fork.

    A process that is restarted thus reads what a reload has made the others read.
    """

    read_hosting: Callable[[], Hosting]
    open_graphs: Callable[[Hosting, ServerLimits, Kind], ServerResources]
    read_tokens: Callable[[], TokenRegistry]
    read_tls: Callable[[], TlsCertificates | None]
    fingerprint: Callable[[], Hashable]
    limits: ServerLimits
    app_options: AppOptions


def count_processes(serving: ProcessServing, workers: int) -> tuple[Sequence[str], int]:
    """Return the ids of the graphs, and the number of workers: 1 if a graph is in the memory of a process."""

    def read() -> dict[str, Any]:
        graphs = serving.read_hosting().graphs
        in_memory = [item.id for item in graphs if item.uri.startswith(_MEMORY)]
        return {"ids": [item.id for item in graphs], "in_memory": in_memory}

    found = ask_in_child(read)
    return found["ids"], 1 if found["in_memory"] else workers


def serve_processes(
    serving: ProcessServing, bound: socket.socket, graph_ids: Sequence[str], workers: int
) -> int:
    """Serve with `workers` workers, and writers as many as graphs or workers. Returns the exit code."""
    writers = max(1, min(workers, len(graph_ids)))
    for name in _WRITE_MODULES:
        import_module(name)
    with private_temporary_folder(), tempfile.TemporaryDirectory(prefix="s") as folder:
        slots = create_slots(bound, Path(folder), graph_ids, workers, writers)
        usage = SharedUsage(Path(folder), len(slots.slots))
        usage.attach(0)

        def start(slot: ProcessSlot, channel: socket.socket) -> None:
            _run_process(serving, slots, slot, usage, channel)

        try:
            return Supervisor(slots, usage, start, lambda: print_address(bound)).run()
        finally:
            slots.close()


def divide_limits(limits: ServerLimits, slots: ProcessSlots, slot: ProcessSlot) -> ServerLimits:
    """Return the limits of one process. Threads, connections and the cache are divided; counters are shared."""
    cache = (limits.cache_bytes or default_budget()) // len(slots.slots)
    # Writers run queries, too: those of mutations.
    _, pool = memory_limits(limits)
    limits = replace(
        limits,
        query_pool_bytes=max(1, pool.size // len(slots.slots)),
        actor_query_bytes=max(1, pool.owner_size // len(slots.slots)),
    )
    if slot.kind == "writer":
        return replace(
            limits,
            write_threads=_share(limits.write_threads, len(slots.writers)),
            cache_bytes=max(1, cache),
            idle_seconds=_FOR_EVER,
            drain_seconds=0,
        )
    workers = len(slots.workers)
    return replace(
        limits,
        read_threads=_share(limits.read_threads, workers),
        streams=_share(limits.streams, workers),
        connections=_share(limits.connections, workers),
        cache_bytes=max(1, cache),
    )


def _share(total: int, processes: int) -> int:
    return max(1, total // processes)


def _run_process(
    serving: ProcessServing,
    slots: ProcessSlots,
    slot: ProcessSlot,
    usage: SharedUsage,
    channel: socket.socket,
) -> None:
    """Open the graphs of a process and serve them until the parent says so."""
    name_process(slot.name)
    tune_interpreter()

    def read_hosting() -> Hosting:
        hosting = serving.read_hosting()
        # A graph of a site file that is new is served after a restart.
        known = None if hosting.cluster is not None else slots.graph_ids
        own = (item for item in hosting.graphs if slots.opens(slot, item.id))
        return replace(hosting, graphs=tuple(item for item in own if known is None or item.id in known))

    tls = serving.read_tls() if slot.kind == "worker" else None
    seen = serving.fingerprint()
    with private_temporary_folder():
        resources = serving.open_graphs(read_hosting(), divide_limits(serving.limits, slots, slot), slot.kind)
        try:
            if slot.kind == "writer":
                channels = [item.rows for item in slots.workers if item.rows is not None]
                resources.observe(RowSender(channels).follow)
            is_first = slot.kind == "worker" and slot.number == 0
            # One process answers for all at the address of the metrics.
            options = serving.app_options if is_first else replace(serving.app_options, metrics_socket=None)
            app = create_app(resources, options)
            app.state.capacity.share(usage)
            app.state.admission.share(usage)
            app.state.peers = Peers(slots, slot)
            app.state.metrics.add_history(MetricHistory(history_path(slot.control_path)).add)
            app.state.tls = tls
            app.state.reloader = Reloader(
                resources, read_hosting, serving.read_tokens, tls, serving.fingerprint, seen
            )
            served: ASGIApp = app
            if slot.kind == "worker":
                pools = [WriterPool(str(item.path)) for item in slots.writers]

                def writer_of(graph_id: str) -> WriterPool:
                    return pools[slots.writer_of(graph_id).number]

                served = WriterProxy(app, resources.graphs, writer_of, app.state.capacity)
                for id_, reason in resources.quarantined.items():
                    if slot.number == 0:
                        LOGGER.error(
                            "graph quarantined", extra={"fields": {"graph_id": id_, "reason": reason}}
                        )
            warm(resources)
            freeze_heap()
            ProcessServer(app, served, slot, channel).run([slot.listener])
        finally:
            resources.close()
        sys.stdout.flush()
