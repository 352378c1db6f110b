"""Shared servers, and clients of a new graph for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import LISTING, POLICY, STORED, TOKENS, Running, host, host_graph, running


@pytest.fixture(scope="session")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with stored queries."""
    folder = tmp_path_factory.mktemp("queries")
    (folder / "people.gq").write_text(STORED, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def guarded(queries: Path) -> Iterator[Running]:
    """Return a shared server with tokens and policies. Tests must not change its graph."""
    hosted = host(POLICY, tokens=TOKENS, server_policy=LISTING, queries=queries)
    with running(hosted) as found:
        yield found


@pytest.fixture(scope="session")
def open_server(queries: Path) -> Iterator[Running]:
    """Return a shared server without tokens."""
    with running(host(queries=queries)) as found:
        yield found


@pytest.fixture
def client(open_server: Running, queries: Path) -> Iterator[httpx.Client]:
    """Return a client of a new graph on the server without tokens."""
    id_ = uuid4().hex
    graphs = open_server.hosted.graphs
    assert isinstance(graphs, dict)
    graphs[id_] = host_graph(id_, None, TokenRegistry(), queries)
    with open_server.client(prefix=f"/graphs/{id_}") as found:
        yield found
    del graphs[id_]
