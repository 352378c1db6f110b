"""Cluster configuration files: graphs, schemas, stored queries and providers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import omnigraph as og
from omnigraph.api.hosting.hosting_config import read_hosting
from omnigraph.errors import InvalidInput
from omnigraph.server.hosted_graphs import ServerResources, open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import LISTING, POLICY, SCHEMA, STORED, TOKENS, names, running

KNOWN = TokenRegistry.of(TOKENS)
CLUSTER: dict[str, Any] = {
    "version": 1,
    "metadata": {"name": "company"},
    "state": {"backend": "cluster", "lock": True},
    "providers": {"embedding": {"default": {"kind": "mock"}}},
    "graphs": {"team": {"schema": "team.pg", "queries": "queries/", "embedding_provider": "default"}},
    "policies": {
        "base": {"file": "team.policy.yaml", "applies_to": ["graph.team"]},
        "server": {"file": "server.policy.yaml", "applies_to": ["cluster"]},
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "team.pg").write_text(SCHEMA)
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "people.gq").write_text(STORED)
    (tmp_path / "other.gq").write_text(STORED)
    (tmp_path / "team.policy.yaml").write_text(yaml.safe_dump(POLICY))
    (tmp_path / "server.policy.yaml").write_text(yaml.safe_dump(LISTING))
    return tmp_path


def host(folder: Path, document: Any, name: str = "serve.yaml") -> ServerResources:
    (folder / name).write_text(yaml.safe_dump(document))
    return open_graphs(read_hosting(folder / name), KNOWN)


def test_missing_graph_is_created_once_with_configured_schema(folder: Path) -> None:
    document = {"graphs": {"team": {"uri": "team.omni", "schema": "team.pg", "policy": "team.policy.yaml"}}}
    hosted = host(folder, document)
    with running(hosted) as server, server.client("ann") as client:
        assert names(client) == []
        assert (
            client.post("/load", json={"data": '{"type":"Person","data":{"name":"Cy"}}'}).status_code == 200
        )
    hosted.close()
    (folder / "team.pg").write_text("node Other { name: String @key }")
    with running(host(folder, document)) as server, server.client("ann") as client:
        assert names(client) == ["Cy"]


@pytest.mark.parametrize(
    ("queries", "found"),
    [
        ("queries", ["everybody", "hire", "older"]),
        ("queries/people.gq", ["everybody", "hire", "older"]),
        (["queries/people.gq"], ["everybody", "hire", "older"]),
        ({"hire": {"file": "queries/people.gq"}}, ["hire"]),
        ({"hire": {"file": "other.gq"}, "older": {"file": "queries/people.gq"}}, ["hire", "older"]),
        ([], []),
    ],
    ids=str,
)
def test_stored_queries_from_folder_files_or_names(folder: Path, queries: Any, found: list[str]) -> None:
    hosted = host(folder, {"graphs": {"team": {"uri": "t.omni", "schema": "team.pg", "queries": queries}}})
    assert list(hosted.graphs["team"].queries) == found


@pytest.mark.parametrize(
    ("queries", "text"),
    [
        ({"hire": {"file": "queries"}}, "must name the .gq file"),
        ({"hire": {}}, "must name the .gq file"),
        ({"hire": "queries/people.gq"}, "expected a mapping"),
        ([5], "expected text"),
    ],
    ids=str,
)
def test_invalid_queries_member_raises_invalid_input(folder: Path, queries: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        host(folder, {"graphs": {"team": {"uri": "t.omni", "queries": queries}}})


def test_configured_query_name_not_in_file_quarantines_graph(folder: Path) -> None:
    queries = {"fire": {"file": "queries/people.gq"}}
    graphs = {
        "team": {"uri": "t.omni", "schema": "team.pg"},
        "odd": {"uri": "o.omni", "schema": "team.pg", "queries": queries},
    }
    hosted = host(folder, {"graphs": graphs})
    assert hosted.quarantined == {"odd": "no query 'fire' in the file that it is registered from"}


def test_cluster_folder_is_served(folder: Path) -> None:
    (folder / "cluster.yaml").write_text(yaml.safe_dump(CLUSTER))
    hosted = open_graphs(read_hosting(folder), KNOWN)
    assert (folder / "graphs" / "team.omni").is_dir()
    with running(hosted) as server:
        with server.client("bob") as client:
            assert names(client) == []
            assert client.post("/queries/everybody", json={}).json()["rows"] == []
        with server.client("eve") as client:
            assert client.get("/branches").status_code == 403
        with server.client("ann", prefix="") as client:
            assert [item["graph_id"] for item in client.get("/graphs").json()["graphs"]] == ["team"]


def test_cluster_graph_uses_configured_embedding_provider(folder: Path) -> None:
    (folder / "team.pg").write_text("node Doc { slug: String @key  v: Vector(3)? }")
    graphs = {"docs": {"schema": "team.pg", "embedding_provider": "provider.embedding.default"}}
    hosted = host(folder, {"version": 1, "graphs": graphs, "providers": CLUSTER["providers"]}, "cluster.yaml")
    near = og.embedder_of({"OMNIGRAPH_EMBED_PROVIDER": "mock"}).embed(["tea"], 3, None)[0].tolist()
    graph = hosted.graphs["docs"].graph.acting_as("ann")
    og.open(graph.uri).load({"Doc": [{"slug": "a", "v": near}]})
    ask = 'query q() { match { $d: Doc } return { $d.slug as s } order { nearest($d.v, "tea") } limit 1 }'
    assert graph.query(ask).rows() == [{"s": "a"}]


def changed(**members: Any) -> dict[str, Any]:
    return {**CLUSTER, **members}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (changed(version=2), "must be 1"),
        (changed(version=True), "must be 1"),
        (changed(pipelines={}), "unknown member 'pipelines'"),
        (changed(graphs={"team": {}}), "`schema` is required"),
        (changed(graphs={"te_am": {"schema": "team.pg"}}), "is not a graph id"),
        (
            changed(graphs={"team": {"schema": "team.pg", "embedding_provider": "x"}}),
            "unknown embedding provider 'x'",
        ),
        (
            changed(graphs={"team": {"schema": "team.pg", "external_blobs": {"deny": []}}}),
            "external_blobs: expected a mapping with the member `allow`",
        ),
        (
            changed(
                graphs={
                    "team": {
                        "schema": "team.pg",
                        "external_blobs": {"allow": [{"base": "s3://assets/k", "scope": "server_safe"}]},
                    }
                }
            ),
            "invalid base 's3://assets/k' of external blobs: it does not end with '/'",
        ),
        (changed(policies={"a": {"applies_to": ["cluster"]}}), "`file` is required"),
        (
            changed(policies={"a": {"file": "team.policy.yaml", "applies_to": ["gone"]}}),
            "unknown graph 'gone'",
        ),
        (
            changed(policies={"a": {"file": "team.policy.yaml", "applies_to": ["team", "graph.team"]}}),
            "already has a policy",
        ),
        (changed(providers={"embedding": {"a": {"api_key": "s3cret"}}}), "a key must not be in a file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_cluster_file_reports_position(folder: Path, document: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text) as caught:
        host(folder, document, "cluster.yaml")
    assert "s3cret" not in str(caught.value)
    assert not (folder / "graphs").exists()


ALLOW = {
    "allow": [
        {"base": "s3://assets/k/", "scope": "server_safe"},
        {"base": "file:///srv/blobs/", "scope": "embedded_only"},
    ]
}


@pytest.mark.parametrize(
    ("document", "name"),
    [
        (changed(graphs={"team": {"schema": "team.pg", "external_blobs": ALLOW}}), "cluster.yaml"),
        (
            {"graphs": {"team": {"uri": "t.omni", "schema": "team.pg", "external_blobs": ALLOW}}},
            "serve.yaml",
        ),
    ],
    ids=["cluster", "site"],
)
def test_external_blob_bases_are_those_of_the_file_without_local_ones(
    folder: Path, document: Any, name: str
) -> None:
    hosted = host(folder, document, name)
    assert [base.uri for base in hosted.graphs["team"].graph.external_blobs.bases] == ["s3://assets/k/"]


def test_external_blobs_without_bases_are_denied_with_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "team.pg").write_text("node Doc { name: String @key  body: Blob? }")
    graphs = {"team": {"schema": "team.pg"}, "open": {"schema": "team.pg", "external_blobs": ALLOW}}
    with caplog.at_level("WARNING", "omnigraph"):
        host(folder, {"version": 1, "graphs": graphs}, "cluster.yaml")
    found = [record.__dict__["fields"] for record in caplog.records]
    assert found == [{"graph_id": "team", "code": "external_blob_ingress_default_deny"}]
