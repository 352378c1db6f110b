"""Which requests a worker answers itself, and which ones it passes to the writer of their graph."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from omnigraph.server.hosted_graphs import HostedGraph

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Routes below a graph that only read, although their method is POST.
READING_ROUTES: Final = frozenset(
    {"query", "read", "explain", "lint", "export", "export/files", "schema/plan", "changes/baseline"}
)
# A worker asks all processes which of them runs a request.
_RUNNING_QUERIES: Final = "running/"
_STORED_QUERY = re.compile(r"queries/([^/]+)(?:/if-graph-commit)?")
_GRAPH_PATH = re.compile(r"(?:https?://[^/]+)?/graphs/([^/]+)/(.+)", re.IGNORECASE)


def find_written_graph(method: str, raw_path: str, graphs: Mapping[str, HostedGraph]) -> str | None:
    """Return the id of the graph that a request writes to; None if a worker answers the request itself.

    A request that names no served graph is answered by the worker, with the usual error. A route that is not known
    to read counts as a write. The path is that of the request line, percent-encoded.
    """
    if method in _SAFE_METHODS:
        return None
    found = _GRAPH_PATH.fullmatch(raw_path)
    if found is None:
        return None
    graph_id, route = _decode(found[1]), found[2]
    hosted = graphs.get(graph_id)
    if hosted is None or route in READING_ROUTES or route.startswith(_RUNNING_QUERIES):
        return None
    if stored := _STORED_QUERY.fullmatch(route):
        query = hosted.queries.get(_decode(stored[1]))
        return graph_id if query is not None and query.mutates else None
    return graph_id


def _decode(segment: str) -> str:
    return unquote_to_bytes(segment).decode("utf-8", "replace")
