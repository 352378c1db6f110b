"""Counts of requests, in the text that Prometheus reads."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_KINDS = ("read", "write")
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """What one process serves and has answered. Safe to share between threads.

    `graphs` is how many graphs there are in each state, which never changes.

    >>> metrics = Metrics({"served": 1})
    >>> metrics.begin()
    >>> metrics.end("GET", "/healthz", 200, 0.002)
    >>> 'omnigraph_requests_total{method="GET",route="/healthz",status="200"} 1' in metrics.render()
    True
    """

    def __init__(self, graphs: Mapping[str, int]) -> None:
        self._graphs = graphs
        self._lock = threading.Lock()
        self._in_flight = 0
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[tuple[str, str], list[int]] = {}
        self._seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._storage: Counter[tuple[str, str, str]] = Counter()

    def begin(self) -> None:
        """A request has come in."""
        with self._lock:
            self._in_flight += 1

    def end(
        self,
        method: str,
        route: str,
        status: int,
        seconds: float,
        storage: Mapping[str, int] | None = None,
    ) -> None:
        """It has been answered. `route` is the pattern and not the path: paths are without number.

        `storage` is how many requests to storage it took, by kind.
        """
        with self._lock:
            self._in_flight -= 1
            self._requests[method, route, status] += 1
            buckets = self._buckets.setdefault((method, route), [0] * (len(BUCKETS) + 1))
            buckets[bisect_left(BUCKETS, seconds)] += 1
            self._seconds[method, route] += seconds
            for kind in _KINDS:
                self._storage[method, route, kind] += 0 if storage is None else storage[kind]

    def render(self) -> str:
        """Everything so far."""
        with self._lock:
            return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "# TYPE omnigraph_graphs gauge"
        for state, count in self._graphs.items():
            yield f'omnigraph_graphs{{state="{state}"}} {count}'
        yield "# TYPE omnigraph_requests_in_flight gauge"
        yield f"omnigraph_requests_in_flight {self._in_flight}"
        yield "# TYPE omnigraph_requests_total counter"
        for (method, route, status), count in sorted(self._requests.items()):
            labels = f'{_labels(method, route)},status="{status}"'
            yield f"omnigraph_requests_total{{{labels}}} {count}"
        yield "# TYPE omnigraph_storage_requests_total counter"
        for (method, route, kind), count in sorted(self._storage.items()):
            yield f'omnigraph_storage_requests_total{{{_labels(method, route)},kind="{kind}"}} {count}'
        yield "# TYPE omnigraph_request_seconds histogram"
        for (method, route), buckets in sorted(self._buckets.items()):
            labels, total = _labels(method, route), 0
            for bound, count in zip((*BUCKETS, "+Inf"), buckets, strict=True):
                total += count
                yield f'omnigraph_request_seconds_bucket{{{labels},le="{bound}"}} {total}'
            yield f"omnigraph_request_seconds_sum{{{labels}}} {self._seconds[method, route]:.6f}"
            yield f"omnigraph_request_seconds_count{{{labels}}} {total}"


def _labels(method: str, route: str) -> str:
    return f'method="{method}",route="{route}"'
