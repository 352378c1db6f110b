"""Which routes a worker passes to the writer."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from omnigraph.server.app import ROUTE_MODULES
from omnigraph.server.hosted_graphs import HostedGraph
from omnigraph.server.workers.write_routes import READING_ROUTES, find_written_graph
from tests.server.running import host

_WRITES = {
    ("DELETE", "branches/{branch}"),
    ("DELETE", "tags/{tag}"),
    ("PATCH", "settings"),
    ("POST", "branches"),
    ("POST", "branches/merge"),
    ("POST", "change"),
    ("POST", "cleanup"),
    ("POST", "commits/{commit_id}/revert"),
    ("POST", "ingest"),
    ("POST", "load"),
    ("POST", "load/files"),
    ("POST", "load/ndjson"),
    ("POST", "mutate"),
    ("POST", "mutate/if-graph-commit"),
    ("POST", "optimize"),
    ("POST", "repair"),
    ("POST", "schema/apply"),
    ("POST", "tags"),
    ("POST", "verify"),
}

# The name of the query decides, see `test_stored_mutation_is_passed_to_the_writer`.
_DECIDED_BY_NAME = {("POST", "queries/{name}"), ("POST", "queries/{name}/if-graph-commit")}
_OF_ALL_PROCESSES = {("DELETE", "running/{query_id}")}


@pytest.fixture(scope="module")
def graphs(queries: Path) -> dict[str, HostedGraph]:
    return dict(host(queries=queries).graphs)


def test_every_route_either_reads_or_is_passed_to_the_writer(graphs: dict[str, HostedGraph]) -> None:
    routes = {
        (method, route.path.removeprefix("/graphs/{graph_id}/"))
        for module in ROUTE_MODULES
        for route in module.router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    passed = {
        item for item in routes if find_written_graph(item[0], f"/graphs/team/{item[1]}", graphs) == "team"
    }
    assert passed == _WRITES
    answered = {(method, path) for method, path in routes - passed if method not in ("GET", "HEAD")}
    assert answered == {("POST", path) for path in READING_ROUTES} | _DECIDED_BY_NAME | _OF_ALL_PROCESSES


@pytest.mark.parametrize(
    ("path", "graph"),
    [
        ("/graphs/team/queries/hire", "team"),
        ("/graphs/team/queries/%68ire/if-graph-commit", "team"),
        ("/graphs/t%65am/queries/hire", "team"),
        ("http://host/graphs/team/queries/hire", "team"),
        ("/graphs/team/queries/everybody", None),
        ("/graphs/team/queries/unknown", None),
        ("/graphs/unknown/mutate", None),
        ("/graphs/team%2Fmutate", None),
        ("/mutate", None),
    ],
)
def test_stored_mutation_is_passed_to_the_writer(
    graphs: dict[str, HostedGraph], path: str, graph: str | None
) -> None:
    assert find_written_graph("POST", path, graphs) == graph
