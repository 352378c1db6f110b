"""Configuration, graphs, stored queries and policies in an object store."""

from __future__ import annotations

import json

import pytest

import omnigraph as og
from omnigraph.api.hosting.hosting_config import read_hosting
from omnigraph.api.hosting.stored_queries import QuerySources
from omnigraph.errors import InvalidInput, NotFound, OmnigraphError
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import LISTING, POLICY, SCHEMA, STORED, TOKENS
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]

CONFIG = """
graphs:
  team: {uri: graphs/team, queries: queries/team, policy: policies/team.json}
  club: {uri: "%s/graphs/team"}
policy: policies/server.json
"""


def put(bucket: Bucket, key: str, text: str) -> str:
    bucket.server.objects.put(bucket.name, key, text.encode())
    return f"{bucket.uri}/{key}"


@pytest.fixture
def config(s3: Bucket) -> str:
    """Return the URI of a configuration file with all files beside it."""
    og.init(f"{s3.uri}/live/graphs/team", SCHEMA, storage_options=s3.options).close()
    put(s3, "live/queries/team/people.gq", STORED)
    put(s3, "live/queries/team/deeper/broken.gq", "query")
    put(s3, "live/queries/teams.gq", "query")
    put(s3, "live/policies/team.json", json.dumps(POLICY))
    put(s3, "live/policies/server.json", json.dumps(LISTING))
    return put(s3, "live/served.yaml", CONFIG % f"{s3.uri}/live")


def test_configuration_in_bucket_is_served(config: str, s3: Bucket) -> None:
    hosting = read_hosting(config, s3.options)
    assert [item.uri for item in hosting.graphs] == [f"{s3.uri}/live/graphs/team"] * 2
    hosted = open_graphs(hosting, TokenRegistry.of(TOKENS), options=s3.options)
    assert dict(hosted.quarantined) == {}
    assert list(hosted.graphs["team"].queries) == ["everybody", "hire", "older"]
    hired = hosted.graphs["team"].graph.acting_as("ann").mutate(STORED, {"n": "Kim"}, name="hire")
    assert hired.commit is not None
    assert hosted.graphs["club"].graph.acting_as("ann").get("Person", "Kim") is not None
    assert hosted.server_gate is not None
    hosted.close()


def test_missing_or_binary_query_file_in_bucket_quarantines_graph(s3: Bucket) -> None:
    og.init(f"{s3.uri}/g", SCHEMA, storage_options=s3.options).close()
    s3.server.objects.put(s3.name, "odd/a.gq", b"\xff\xfe")
    graphs = {
        "good": {"uri": "g"},
        "none": {"uri": "g", "queries": "nowhere"},
        "odd": {"uri": "g", "queries": "odd/"},
    }
    config = put(s3, "served.json", json.dumps({"graphs": graphs}))
    hosted = open_graphs(read_hosting(config, s3.options), TokenRegistry(), options=s3.options)
    assert (list(hosted.graphs), list(hosted.quarantined)) == (["good"], ["none", "odd"])
    assert hosted.quarantined["none"] == f"no folder of queries at {s3.uri}/nowhere"
    assert "odd/a.gq is not UTF-8 text" in hosted.quarantined["odd"]
    hosted.close()


def test_configuration_paths_stay_within_bucket(s3: Bucket) -> None:
    put(s3, "policies/server.json", json.dumps(LISTING))
    graphs = {"a": {"uri": "./g", "queries": "../queries/./team/"}, "b": {"uri": "../../live/eu/g"}}
    document = {"graphs": graphs, "policy": "../../policies/server.json"}
    hosting = read_hosting(put(s3, "live/eu/served.json", json.dumps(document)), s3.options)
    assert [item.uri for item in hosting.graphs] == [f"{s3.uri}/live/eu/g"] * 2
    assert hosting.graphs[0].queries == QuerySources((f"{s3.uri}/live/queries/team",))
    assert hosting.policy is not None
    for uri in ("../../../g", "../../..", "/srv/g"):
        outside = put(s3, "live/eu/outside.json", json.dumps({"graphs": {"a": {"uri": uri}}}))
        with pytest.raises(InvalidInput, match=r"graphs\.a\.uri: .* is not a path below "):
            read_hosting(outside, s3.options)


def test_bucket_folder_needs_configuration_file(config: str, s3: Bucket) -> None:
    folder = config.rpartition("/")[0]
    for given in (s3.uri, f"{s3.uri}/", folder, f"{folder}/"):
        with pytest.raises(OmnigraphError) as caught:
            read_hosting(given, s3.options)
        assert caught.value.message == f"there is no file at {given}"
        assert "a site file" in str(caught.value.hint)
    with pytest.raises(InvalidInput, match="no valid bucket") as refused:
        read_hosting("s3://KEY:SECRET@bucket/", s3.options)
    assert "SECRET" not in str(refused.value)


def test_missing_or_invalid_configuration_in_bucket_raises(s3: Bucket) -> None:
    with pytest.raises(NotFound):
        read_hosting(f"{s3.uri}/nothing.yaml", s3.options)
    with pytest.raises(InvalidInput, match="unknown member 'graph'"):
        read_hosting(put(s3, "wrong.yaml", "graph: {}"), s3.options)
