"""A graph over HTTP has the same results and errors as a local graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.conformance.recording import Recorder
from tests.conformance.scenarios import SCENARIOS, SCHEMA, fill
from tests.server.running import Running, bundle, everything, running

TOKENS = {"ann": "token-of-ann"}
# The minimum number of errors and results of each scenario, so that the comparison is not empty.
LEAST = {"refusals": 3, "answers": 7}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return a server with tokens, a policy, and a graph for each scenario."""
    policy = bundle(everything("ann"))
    sources = []
    for name in SCENARIOS:
        uri = str(tmp_path_factory.mktemp("served") / f"{name}.omni")
        og.init(uri, SCHEMA, actor="ann").close()
        sources.append(GraphSource(name, uri, policy=policy))
    with running(open_graphs(Hosting(tuple(sources)), TokenRegistry.of(TOKENS))) as found:
        yield found


def perform(name: str, graph: og.Graph, folder: Path) -> list[tuple[str, Any]]:
    """Run a scenario and return its record."""
    folder.mkdir()
    fill(graph)
    recorder = Recorder(folder)
    SCENARIOS[name](recorder, graph, folder)
    return recorder.record


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_served_graph_behaves_like_local_graph(name: str, served: Running, tmp_path: Path) -> None:
    with og.init(str(tmp_path / "here.omni"), SCHEMA, actor="ann") as graph:
        here = perform(name, graph, tmp_path / "here")
    with og.connect(served.url, name, token=TOKENS["ann"]) as graph:
        there = perform(name, graph, tmp_path / "there")
    refusals = [item for item in here if isinstance(item[1], tuple) and item[1][0] == "raised"]
    assert len(refusals) >= LEAST["refusals"]
    assert len(here) - len(refusals) >= LEAST["answers"]
    for ours, theirs in zip(here, there, strict=True):
        assert theirs == ours


def test_async_client_behaves_like_local_graph(served: Running) -> None:
    import asyncio

    async def ask() -> list[str]:
        name = f"b{uuid4().hex[:8]}"
        async with og.aio.connect(served.url, "entities", token=TOKENS["ann"]) as graph:
            await graph.branches.create(name)
            found = await graph.branches.list()
            await graph.branches.delete(name)
            return [item for item in found if item != name]

    assert asyncio.run(ask()) == ["main"]
