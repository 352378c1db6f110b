"""Rejected records in an object store: files, folders, and targets that cannot be written."""

from __future__ import annotations

import json
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation, OmnigraphError
from omnigraph.store.objects.object_store import ObjectStore
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]

SCHEMA = "node City { name: String @key  size: I64?  @range(size, 0..9) }"
ROWS = [{"name": "Bern", "size": 1}, {"name": "Rome", "size": 99}, {"name": "Bern", "size": 2}]


def lines(s3: Bucket, address: str) -> list[dict[str, Any]]:
    store, key = ObjectStore.split_uri(address, s3.options)
    return [json.loads(line) for line in store.get(key).data.splitlines()]


@pytest.mark.parametrize("mode", ["merge", "patch"])
def test_load_writes_rejects_to_a_file_and_a_folder_in_a_bucket(s3: Bucket, mode: Any) -> None:
    graph = og.init(f"{s3.uri}/graph", schema=SCHEMA, storage_options=s3.options)
    records = [{"type": "City", "data": row} for row in ROWS[:2]]
    rules = ["range"] if mode == "patch" else ["range", "unique"]
    source = records if mode == "patch" else {"City": ROWS}
    in_folder = graph.load(source, mode, branch="a", create_from="main", rejects=f"{s3.uri}/rejects/")
    assert in_folder.commit is not None
    assert in_folder.rejects == f"{s3.uri}/rejects/rejects-{in_folder.commit.id}.ndjson"
    in_file = graph.load(source, mode, branch="b", create_from="main", rejects=f"{s3.uri}/rejects.ndjson")
    assert in_file.rejects == f"{s3.uri}/rejects.ndjson"
    found = lines(s3, in_folder.rejects)
    assert found == lines(s3, in_file.rejects)
    assert sorted(item["rule"] for item in found) == rules
    # Each load replaces the file of a target that is no folder; without rejected records none is written.
    assert (
        graph.load(records[1:], mode, branch="c", create_from="main", rejects=in_file.rejects).rejected == 1
    )
    assert len(lines(s3, in_file.rejects)) == 1
    assert (
        graph.load(records[:1], mode, branch="d", create_from="main", rejects=f"{s3.uri}/none/").rejects
        is None
    )
    assert not [key for key in s3.keys if key.startswith("none/")]


def test_load_above_max_rejects_names_the_object_and_commits_nothing(s3: Bucket) -> None:
    graph = og.init(f"{s3.uri}/graph", schema=SCHEMA, storage_options=s3.options)
    with pytest.raises(ConstraintViolation) as caught:
        graph.load({"City": ROWS}, "merge", rejects=f"{s3.uri}/rejects.ndjson", max_rejects=0)
    assert caught.value.details["rejects"] == f"{s3.uri}/rejects.ndjson"
    assert len(lines(s3, f"{s3.uri}/rejects.ndjson")) == 2
    assert len(graph.commits()) == 1


def test_load_with_rejects_in_a_missing_bucket_commits_nothing(s3: Bucket) -> None:
    graph = og.init(f"{s3.uri}/graph", schema=SCHEMA, storage_options=s3.options)
    with pytest.raises(OmnigraphError, match="NoSuchBucket"):
        graph.load({"City": ROWS}, "merge", rejects="s3://no-such-bucket/rejects/")
    assert len(graph.commits()) == 1
