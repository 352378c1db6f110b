"""Prometheus metrics of the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from omnigraph.server.graph_metrics import GraphRequestMetrics

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STORAGE_REQUEST_KINDS: Final = ("read", "write")
MEDIA_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

# The creation time of each series would double their number.
disable_created_metrics()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class _RouteSeries:
    """The series that a request of one method, route and status updates."""

    requests: Counter
    seconds: Histogram
    storage_requests: Mapping[str, Counter]


class Metrics:
    """Metrics of one application, in a registry of its own. Thread-safe.

    `graphs` has a function for each state that returns the number of graphs. `collector` has the metrics that
    graphs count.

    >>> metrics = Metrics({"served": lambda: 1})
    >>> metrics.begin()
    >>> metrics.end("GET", "/healthz", 200, 0.002)
    >>> b'omnigraph_requests_total{method="GET",route="/healthz",status="200"} 1.0' in metrics.render()
    True
    """

    def __init__(self, graphs: Mapping[str, Callable[[], int]], collector: Collector | None = None) -> None:
        self._registry = CollectorRegistry()
        if collector is not None:
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        states = Gauge("omnigraph_graphs", "Graphs by state.", ["state"], registry=self._registry)
        for state, count in graphs.items():
            states.labels(state).set_function(count)
        self._in_flight = Gauge(
            "omnigraph_requests_in_flight", "Requests in flight.", registry=self._registry
        )
        self._requests = Counter(
            "omnigraph_requests_total",
            "Requests by method, route and status.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._storage_requests = Counter(
            "omnigraph_storage_requests_total",
            "Storage requests by the method and route that caused them.",
            ["method", "route", "kind"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "omnigraph_request_seconds",
            "Duration of requests in seconds.",
            ["method", "route"],
            registry=self._registry,
            buckets=BUCKETS,
        )

        self._graph_requests = GraphRequestMetrics(self._registry, BUCKETS)
        self._complete: Callable[[bytes], bytes] | None = None
        # Looking up a series by its labels takes longer than counting. Methods, routes and statuses are few.
        self._series: dict[tuple[str, str, int], _RouteSeries] = {}

    def add_history(self, complete: Callable[[bytes], bytes]) -> None:
        """Let a function add the counters of former processes whenever the metrics are rendered."""
        self._complete = complete

    def begin(self) -> None:
        """Count a request that has arrived."""
        self._in_flight.inc()

    def end(
        self,
        method: str,
        route: str,
        status: int,
        seconds: float,
        storage_requests: Mapping[str, int] | None = None,
        graph: str | None = None,
    ) -> None:
        """Count a request that is finished.

        `route` is the pattern of the path, because the number of label values must be bounded. `storage_requests`
        is the number of storage requests by kind. `graph` is the id of a served graph.
        """
        self._in_flight.dec()
        series = self._series.get((method, route, status))
        if series is None:
            series = self._series[method, route, status] = self._find_series(method, route, status)
        series.requests.inc()
        series.seconds.observe(seconds)
        counts = storage_requests or {}
        for kind, counter in series.storage_requests.items():
            # Most reads are answered from memory.
            if count := counts.get(kind, 0):
                counter.inc(count)
        if graph is not None:
            self._graph_requests.end(
                graph,
                method,
                route,
                status,
                seconds,
                {kind: counts.get(kind, 0) for kind in series.storage_requests},
            )

    def _find_series(self, method: str, route: str, status: int) -> _RouteSeries:
        return _RouteSeries(
            self._requests.labels(method, route, str(status)),
            self._seconds.labels(method, route),
            {kind: self._storage_requests.labels(method, route, kind) for kind in STORAGE_REQUEST_KINDS},
        )

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        own = generate_latest(self._registry)
        return own if self._complete is None else self._complete(own)
