"""Records of idempotency keys: an altered record is found, and never applies a request twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import StorageError
from omnigraph.graph.idempotency import PREFIX, find_key_problem
from tests.maintain.damage import find_damage, verify_path

ROWS = {"City": [{"name": "Bern"}]}
COUNT = "query q() { match { $c: City } return { count($c) as cities } }"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Return the record of a key of a graph with one load."""
    with og.init(tmp_path / "g", schema="node City { name: String }", durability="os") as graph:
        graph.load(ROWS, idempotency_key="once")
    (file,) = (tmp_path / "g" / PREFIX).iterdir()
    return file


def test_every_flipped_bit_of_a_record_is_found(record: Path) -> None:
    data = record.read_bytes()
    assert find_key_problem(f"{PREFIX}{record.name}", data) is None
    for bit in range(len(data) * 8):
        altered = bytearray(data)
        altered[bit // 8] ^= 1 << bit % 8
        assert find_key_problem(f"{PREFIX}{record.name}", bytes(altered)), bit


@pytest.mark.parametrize("damage", ["commit id", "no JSON", "of another key"])
def test_request_with_an_altered_record_is_refused_and_verify_names_it(record: Path, damage: str) -> None:
    body = json.loads(record.read_bytes())
    id_ = body["commit_id"]
    if damage == "commit id":
        record.write_bytes(record.read_bytes().replace(id_.encode(), f"1{id_[1:]}".encode()))
    else:
        record.write_text("{" if damage == "no JSON" else json.dumps({**body, "key": "other"}))
    path = record.parents[1]
    with og.open(path, durability="os") as graph:
        with pytest.raises(StorageError, match="is damaged") as caught:
            graph.load(ROWS, idempotency_key="once")
        assert caught.value.details["file"] == f"{PREFIX}{record.name}"
        assert graph.query(COUNT).scalar() == 1
    found = find_damage(verify_path(path), f"{PREFIX}{record.name}")
    assert found is not None
    assert (found.kind, found.blocks_reads) == ("altered", False)


def test_record_of_an_earlier_release_has_no_checksum_and_is_used(record: Path) -> None:
    body = json.loads(record.read_bytes())
    del body["checksum"]
    record.write_text(json.dumps(body, separators=(",", ":")))
    path = record.parents[1]
    assert verify_path(path).ok
    with og.open(path, durability="os") as graph:
        graph.load(ROWS, idempotency_key="once")
        assert graph.query(COUNT).scalar() == 1
