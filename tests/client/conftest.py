"""One server that all tests of the client share, and for each test a graph of its own, seen from both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

import omnigraph as og
from omnigraph.client.graph import RemoteGraph
from tests.server.running import LISTING, STORED, TOKENS, Running, everything, host, host_graph, running

# Ann may do everything, Bob reads and invokes, Eve may nothing.
POLICY = everything("ann")
POLICY["groups"]["readers"] = ["bob"]
POLICY["rules"].append(
    {"id": "r", "allow": {"actors": {"group": "readers"}, "actions": ["read", "invoke_query"]}}
)


@dataclass(frozen=True)
class Served:
    """A graph on a server: over HTTP for some actor, and the same one as Ann has it at hand."""

    url: str
    graph_id: str
    local: og.Graph

    def connect(self, actor: str = "ann", timeout: float | None = 30) -> RemoteGraph:
        """The graph over HTTP."""
        return og.connect(self.url, self.graph_id, token=TOKENS[actor], timeout=timeout)


@pytest.fixture(scope="session")
def stored_queries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of stored queries."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "people.gq").write_text(STORED, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def server(stored_queries: Path) -> Iterator[Running]:
    """A server with tokens; its graph `team` stays as it is."""
    with running(host(POLICY, tokens=TOKENS, server_policy=LISTING, queries=stored_queries)) as found:
        yield found


@pytest.fixture(scope="session")
def team(server: Running) -> Served:
    """The graph that tests share which change nothing."""
    return Served(server.url, "team", server.hosted.graphs["team"].graph.acting_as("ann"))


@pytest.fixture(scope="session")
def remote_team(team: Served) -> Iterator[RemoteGraph]:
    """That graph as Ann has it over HTTP."""
    with team.connect() as found:
        yield found


@pytest.fixture
def served(server: Running, stored_queries: Path) -> Iterator[Served]:
    """A graph that nobody else uses."""
    id_ = uuid4().hex
    graphs = server.hosted.graphs
    assert isinstance(graphs, dict)
    graphs[id_] = host_graph(id_, POLICY, server.hosted.tokens, stored_queries)
    yield Served(server.url, id_, graphs[id_].graph.acting_as("ann"))
    del graphs[id_]


@pytest.fixture
def remote(served: Served) -> Iterator[RemoteGraph]:
    """That graph as Ann has it over HTTP."""
    with served.connect() as found:
        yield found


@pytest.fixture
def local(served: Served) -> og.Graph:
    """The same graph, at hand."""
    return served.local
