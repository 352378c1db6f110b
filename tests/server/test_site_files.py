"""Site files: graphs, schemas, stored queries and external blobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from omnigraph.api.hosting.hosting_config import read_hosting
from omnigraph.errors import InvalidInput
from omnigraph.server.hosted_graphs import ServerResources, open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import LISTING, POLICY, SCHEMA, STORED, TOKENS, names, running

KNOWN = TokenRegistry.of(TOKENS)


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


ALLOW = {
    "allow": [
        {"base": "s3://assets/k/", "scope": "server_safe"},
        {"base": "file:///srv/blobs/", "scope": "embedded_only"},
    ]
}


def test_external_blob_bases_are_those_of_the_file_without_local_ones(folder: Path) -> None:
    graphs = {"team": {"uri": "t.omni", "schema": "team.pg", "external_blobs": ALLOW}}
    hosted = host(folder, {"graphs": graphs})
    assert [base.uri for base in hosted.graphs["team"].graph.external_blobs.bases] == ["s3://assets/k/"]


def test_external_blobs_without_bases_are_denied_with_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "team.pg").write_text("node Doc { name: String @key  body: Blob? }")
    graphs = {
        "team": {"uri": "t.omni", "schema": "team.pg"},
        "open": {"uri": "o.omni", "schema": "team.pg", "external_blobs": ALLOW},
    }
    with caplog.at_level("WARNING", "omnigraph"):
        host(folder, {"graphs": graphs})
    found = [record.__dict__["fields"] for record in caplog.records]
    assert found == [{"graph_id": "team", "code": "external_blob_ingress_default_deny"}]
