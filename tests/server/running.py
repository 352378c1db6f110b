"""HTTP servers for tests, each on a free port, with graphs in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from fastapi import FastAPI
from pydantic import BaseModel

import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.api.hosting.stored_queries import QuerySources
from omnigraph.policy.bundle import PolicyBundle, read_bundle
from omnigraph.protocol.error_output import ErrorOutput
from omnigraph.server.app import AppOptions, create_app
from omnigraph.server.hosted_graphs import HostedGraph, ServerResources, open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from omnigraph.server.limits import ServerLimits
from omnigraph.server.run import create_server, listening
from tests.support.waiting import HANG

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n"
ALL = "query all() { match { $p: Person } return { $p.name as name, $p.age as age } order { name asc } }"
ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
STORED = """\
query everybody() @description("All people.") { match { $p: Person } return { $p.name as name } order { name asc } }
query older($a: I32, $names: [String]?, $big: I64?) { match { $p: Person  $p.age > $a } return { $p.name as name } }
query hire($n: String) { insert Person { name: $n } }
"""
PEOPLE = (
    '{"type":"Person","data":{"name":"Ann","age":30}}\n{"type":"Person","data":{"name":"Bob","age":25}}\n'
)
TOKENS = {"ann": "token-of-ann", "bob": "token-of-bob", "eve": "token-of-eve", "dan": "token-of-dan"}


def everything(*actors: str, actions: list[str] | None = None) -> dict[str, Any]:
    """Return a policy that allows actors all actions, or the given ones and all branch actions."""
    allowed = actions or ["read", "export", "change", "invoke_query", "admin"]
    branches = ["schema_apply", "branch_create", "branch_delete", "branch_merge"]
    return {
        "version": 1,
        "groups": {"all": list(actors)},
        "rules": [
            {"id": "data", "allow": {"actors": {"group": "all"}, "actions": allowed}},
            {"id": "branches", "allow": {"actors": {"group": "all"}, "actions": branches}},
        ],
    }


# Ann may do everything. Bob may read, invoke queries, and write to branches other than main. Eve is in no group.
POLICY = {
    "version": 1,
    "groups": {"admins": ["ann"], "team": ["ann", "bob"], "writers": ["bob"]},
    "protected_branches": ["main"],
    "rules": [
        {"id": "a", "allow": {"actors": {"group": "team"}, "actions": ["read", "invoke_query"]}},
        {
            "id": "b",
            "allow": {"actors": {"group": "writers"}, "actions": ["change"], "branch_scope": "unprotected"},
        },
        {"id": "c", "allow": {"actors": {"group": "admins"}, "actions": ["change", "export"]}},
        {
            "id": "d",
            "allow": {
                "actors": {"group": "admins"},
                "actions": ["schema_apply", "branch_create", "branch_delete", "branch_merge"],
            },
        },
    ],
}
LISTING = {
    "version": 1,
    "groups": {"admins": ["ann"]},
    "rules": [{"id": "l", "allow": {"actors": {"group": "admins"}, "actions": ["graph_list"]}}],
}


@dataclass(frozen=True)
class Running:
    """A running server."""

    url: str
    hosted: ServerResources
    app: FastAPI

    def client(self, actor: str | None = None, prefix: str = "/graphs/team") -> httpx.Client:
        """Return a client with the token of an actor."""
        headers = {} if actor is None else {"Authorization": f"Bearer {TOKENS[actor]}"}
        # Loading certificates takes longer than most tests, and is not needed without TLS.
        return httpx.Client(base_url=self.url + prefix, headers=headers, timeout=HANG, verify=False)


@contextmanager
def running(hosted: ServerResources, **options: Any) -> Iterator[Running]:
    """Run a server while the context is open. `options` are members of `AppOptions`."""
    app = create_app(hosted, AppOptions(**options))
    with running_app(app) as url:
        yield Running(url, hosted, app)


@contextmanager
def running_app(app: FastAPI) -> Iterator[str]:
    """Run a server of an application while the context is open, and return its address."""
    server = create_server(app)
    with listening("127.0.0.1", 0) as bound:
        thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                thread.join(0.005)
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(HANG)
            assert not thread.is_alive()


def bundle(document: Mapping[str, Any] | None) -> PolicyBundle | None:
    """Return the policy bundle of a document."""
    return None if document is None else read_bundle(document)


def host(
    policy: Mapping[str, Any] | None = None,
    *,
    tokens: Mapping[str, str] | None = None,
    server_policy: Mapping[str, Any] | None = None,
    queries: Path | None = None,
    limits: ServerLimits | None = None,
) -> ServerResources:
    """Return the resources of a server with one graph `team` in memory."""
    registry = TokenRegistry.of(tokens or {})
    hosting = Hosting((people_graph("team", policy, queries),), bundle(server_policy))
    return open_graphs(hosting, registry, limits=limits)


def host_graph(
    id_: str, policy: Mapping[str, Any] | None, registry: TokenRegistry, queries: Path | None = None
) -> HostedGraph:
    """Return a further hosted graph."""
    return open_graphs(Hosting((people_graph(id_, policy, queries),)), registry).graphs[id_]


def people_graph(id_: str, policy: Mapping[str, Any] | None, queries: Path | None = None) -> GraphSource:
    """Return the source of a new graph with two people."""
    uri = f"memory://server-{uuid4().hex}"
    with og.init(uri, SCHEMA) as graph:
        graph.load([json.loads(line) for line in PEOPLE.splitlines()])
    places = None if queries is None else QuerySources((queries,))
    return GraphSource(id_, uri, places, bundle(policy))


def rows(client: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    """Return all people on a branch or at a commit."""
    response = client.post("/query", json={"query": ALL, **body})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["rows"]
    return found


def names(client: httpx.Client, **body: Any) -> list[str]:
    """Return the names of all people on a branch or at a commit."""
    return [row["name"] for row in rows(client, **body)]


def success_body(response: httpx.Response, model: type[BaseModel]) -> dict[str, Any]:
    """Return the body of a successful response, checked against a model."""
    assert response.status_code == 200, response.text
    model.model_validate(response.json())
    found: dict[str, Any] = response.json()
    return found


def error_body(response: httpx.Response, status: int) -> dict[str, Any]:
    """Return the body of an error response, checked against the status and the error model."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    ErrorOutput.model_validate(response.json())
    found: dict[str, Any] = response.json()
    return found
