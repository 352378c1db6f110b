"""Prometheus metrics of each served graph: requests, commits, cache and storage.

The label `graph` has the ids of served graphs only, and routes are grouped in classes, so the number of series is
bounded by the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from omnigraph.server.http.routing import GRAPH_PREFIX

if TYPE_CHECKING:
    from omnigraph.server.hosted_graphs import HostedGraph

RouteClass: TypeAlias = Literal[
    "query", "stored_query", "mutation", "load", "stream", "metadata", "administration"
]
GROUP_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64)
_CLASSES: Final[Mapping[str, RouteClass]] = {
    "query": "query",
    "read": "query",
    "explain": "query",
    "entity": "query",
    "queries": "stored_query",
    "mutate": "mutation",
    "change": "mutation",
    "load": "load",
    "ingest": "load",
    "export": "stream",
    "blob": "stream",
    "diff": "stream",
    "changes": "stream",
}
_CONFLICTS: Final = {409: "conflict", 412: "precondition"}


def classify_route(method: str, route: str) -> RouteClass:
    """Return the class of a route below a graph.

    >>> prefix = "/graphs/{graph_id}"
    >>> classify_route("POST", f"{prefix}/mutate/if-graph-commit"), classify_route("GET", f"{prefix}/commits")
    ('mutation', 'metadata')
    >>> classify_route("POST", f"{prefix}/branches/merge"), classify_route("POST", f"{prefix}/queries/{{name}}")
    ('administration', 'stored_query')
    """
    first = route.removeprefix(GRAPH_PREFIX).strip("/").partition("/")[0]
    found = _CLASSES.get(first)
    if found == "stored_query" and method == "GET":
        return "metadata"
    return found or ("metadata" if method in ("GET", "HEAD") else "administration")


class GraphRequestMetrics:
    """Requests by graph: number, duration, conflicts and storage requests."""

    def __init__(self, registry: CollectorRegistry, buckets: tuple[float, ...]) -> None:
        self._requests = Counter(
            "omnigraph_graph_requests_total",
            "Requests by graph, class of route and class of status.",
            ["graph", "class", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "omnigraph_graph_request_seconds",
            "Duration of requests in seconds by graph and class of route.",
            ["graph", "class"],
            registry=registry,
            buckets=buckets,
        )
        self._conflicts = Counter(
            "omnigraph_graph_conflicts_total",
            "Requests that ended with a conflict (409) or a failed precondition (412).",
            ["graph", "kind"],
            registry=registry,
        )
        self._storage_requests = Counter(
            "omnigraph_graph_storage_requests_total",
            "Storage requests by graph and kind.",
            ["graph", "kind"],
            registry=registry,
        )
        # Looking up a series by its labels takes longer than counting.
        self._series: dict[tuple[str, str, str, int], tuple[Counter, Histogram]] = {}

    def end(
        self,
        graph: str,
        method: str,
        route: str,
        status: int,
        seconds: float,
        storage_requests: Mapping[str, int],
    ) -> None:
        """Count a request to a graph that is finished."""
        key = (graph, method, route, status // 100)
        series = self._series.get(key)
        if series is None:
            kind = classify_route(method, route)
            requests = self._requests.labels(graph, kind, f"{status // 100}xx")
            series = self._series[key] = requests, self._seconds.labels(graph, kind)
            for name in storage_requests:
                # The series exists from the first request on.
                self._storage_requests.labels(graph, name)
        requests, durations = series
        requests.inc()
        durations.observe(seconds)
        if status in _CONFLICTS:
            self._conflicts.labels(graph, _CONFLICTS[status]).inc()
        for name, count in storage_requests.items():
            if count:
                self._storage_requests.labels(graph, name).inc(count)


class GraphCollector(Collector):
    """Metrics that the graphs count themselves, read when the metrics are requested."""

    def __init__(self, graphs: Mapping[str, HostedGraph]) -> None:
        self._graphs = graphs

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of all graphs."""
        hosted = dict(self._graphs)
        writes = {id_: item.graph.write_statistics for id_, item in hosted.items()}
        caches = {id_: item.reader.stats() for id_, item in hosted.items()}
        yield from _counters(
            "commits", "Published commits.", {id_: item.commits for id_, item in writes.items()}
        )
        yield from _counters(
            "write_retries",
            "Preparations of writes that were repeated because another writer was faster.",
            {id_: item.retries for id_, item in writes.items()},
        )
        yield _group_sizes({id_: item.group_sizes() for id_, item in writes.items()})
        yield from _counters(
            "cache_hits", "Hits of the read cache.", {id_: item.hits for id_, item in caches.items()}
        )
        yield from _counters(
            "cache_misses", "Misses of the read cache.", {id_: item.misses for id_, item in caches.items()}
        )
        cached = GaugeMetricFamily(
            "omnigraph_graph_cache_bytes", "Bytes in the read cache.", labels=["graph"]
        )
        for id_, item in caches.items():
            cached.add_metric([id_], item.nbytes)
        yield cached
        moved = CounterMetricFamily(
            "omnigraph_graph_storage_bytes",
            "Bytes of table files that were read from storage and written to it.",
            labels=["graph", "kind"],
        )
        for id_, hosted_graph in hosted.items():
            for kind, count in zip(("read", "write"), hosted_graph.graph.transferred_bytes, strict=True):
                moved.add_metric([id_, kind], count)
        yield moved


def _counters(name: str, text: str, values: Mapping[str, int]) -> Iterator[Metric]:
    family = CounterMetricFamily(f"omnigraph_graph_{name}", text, labels=["graph"])
    for id_, value in values.items():
        family.add_metric([id_], value)
    yield family


def _group_sizes(sizes: Mapping[str, Mapping[int, int]]) -> Metric:
    family = HistogramMetricFamily(
        "omnigraph_graph_commit_group_size", "Commits that one swap has published.", labels=["graph"]
    )
    for id_, counts in sizes.items():
        buckets = [
            (str(float(bound)), float(sum(count for size, count in counts.items() if size <= bound)))
            for bound in GROUP_BUCKETS
        ]
        buckets.append(("+Inf", float(sum(counts.values()))))
        family.add_metric([id_], buckets, sum(size * count for size, count in counts.items()))
    return family
