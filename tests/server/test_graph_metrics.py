"""Metrics of each graph: requests, commits, groups, conflicts, cache and storage."""

from __future__ import annotations

from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import ADD, ALL, SCHEMA, Running, running
from tests.support.waiting import HANG, wait_until


def read(server: Running) -> dict[tuple[str, ...], float]:
    """Return the samples of metrics of graphs: name and label values to value."""
    text = httpx.get(f"{server.url}/metrics", timeout=HANG, verify=False).text
    return {
        (
            sample.name.removeprefix("omnigraph_graph_"),
            *(value for _, value in sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("omnigraph_graph_")
    }


def test_metrics_of_a_graph_count_its_requests_commits_and_storage(tmp_path: Path) -> None:
    for name in ("one", "two"):
        og.init(str(tmp_path / name), SCHEMA).close()
    sources = tuple(GraphSource(name, str(tmp_path / name)) for name in ("one", "two"))
    with running(open_graphs(Hosting(sources), TokenRegistry())) as server:
        with server.client(prefix="/graphs/one") as client:
            for name in ("Ann", "Bob"):
                assert client.post("/mutate", json={"query": ADD, "params": {"n": name}}).status_code == 200
            created = [client.post("/branches", json={"name": "x"}).status_code for _ in range(2)]
            assert created == [200, 409]
            for _ in range(2):
                assert client.post("/query", json={"query": ALL}).status_code == 200
            assert client.get("/nothing").status_code == 404
        # A request is counted after its response has been sent.
        key = ("requests_total", "query", "one", "2xx")
        wait_until(lambda: read(server).get(key) == 2)
        found = read(server)
    assert found["requests_total", "mutation", "one", "2xx"] == 2
    assert found["requests_total", "administration", "one", "4xx"] == 1
    assert found["request_seconds_count", "query", "one"] == 2
    assert found["conflicts_total", "one", "conflict"] == 1
    assert found["commits_total", "one"] == 2
    assert found["commit_group_size_count", "one"] == 2
    assert found["commit_group_size_sum", "one"] == 2
    assert found["commit_group_size_bucket", "one", "1.0"] == 2
    assert found["write_retries_total", "one"] == 0
    assert found["cache_hits_total", "one"] > 0
    assert found["cache_bytes", "one"] > 0
    assert found["storage_requests_total", "one", "write"] > 0
    assert found["storage_bytes_total", "one", "write"] > 0
    # The other graph was not used.
    assert found["commits_total", "two"] == 0
    assert not [key for key in found if key[0] == "requests_total" and "two" in key]
