"""The usual `AWS_*` variables in the Python API, without storage options."""

from __future__ import annotations

import pytest

import omnigraph as og
from omnigraph.errors import StorageError
from tests.support.s3 import ACCESS_KEY, Bucket

pytest_plugins = ["tests.support.s3_fixtures"]

SCHEMA = "node City { name: String @key }"
NAMES = "query names() { match { $c: City } return { $c.name } }"


@pytest.fixture
def environment(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
    return s3


def test_graph_opened_without_options_uses_the_variables(environment: Bucket) -> None:
    uri = f"{environment.uri}/graph"
    with og.init(uri, SCHEMA) as graph:
        graph.load([{"type": "City", "data": {"name": "Oslo"}}])
    with og.open(uri, "r") as graph:
        assert graph.query(NAMES).rows() == [{"c.name": "Oslo"}]


def test_files_are_loaded_and_exported_with_the_variables(environment: Bucket) -> None:
    environment.server.objects.put(environment.name, "in.csv", b"name\nOslo\n")
    with og.init("memory://storage-environment", SCHEMA) as graph:
        graph.load({"City": f"{environment.uri}/in.csv"})
        graph.export(f"{environment.uri}/out.ndjson")
    assert "out.ndjson" in environment.keys


def test_explicit_option_wins_over_its_variable(environment: Bucket) -> None:
    uri = f"{environment.uri}/graph"
    og.init(uri, SCHEMA).close()
    with pytest.raises(StorageError, match="InvalidAccessKeyId") as caught:
        og.open(uri, storage_options={"access_key_id": "other", "secret_access_key": "x"})
    assert caught.value.kind == "configuration"
