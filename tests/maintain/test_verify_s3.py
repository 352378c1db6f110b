"""Verification and repair of a graph on an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import StorageError
from omnigraph.maintain.verification.report import Damage
from omnigraph.store.lance.lance_files import version_file
from tests.maintain.test_verify import strip_digests
from tests.support.s3 import Bucket
from tests.support.s3_graphs import upload_graph
from tests.support.s3_seam import How

pytest_plugins = ["tests.support.s3_fixtures"]

NAMES = "query q() { match { $c: City } return { $c.name as name } }"


@pytest.fixture
def graph(s3: Bucket) -> og.LocalGraph:
    handle = og.init(f"{s3.uri}/g", schema="node City { name: String @key }", storage_options=s3.options)
    handle.load({"City": [{"name": "Bern"}]})
    handle.load({"City": [{"name": "Rome"}]})
    return handle


def newest(handle: og.LocalGraph, pattern: str) -> str:
    """Return the key of the newest object whose name contains a text."""
    objects = handle._repository.objects
    # Times have a resolution of one second; names of manifest files sort by time.
    return max((item.last_modified, item.key) for item in objects.list() if pattern in item.key)[1]


@pytest.mark.parametrize("pattern", ["nodes/", "__manifest/data/head-"])
def test_verify_changed_object_is_named(graph: og.LocalGraph, pattern: str) -> None:
    assert graph.verify(all_commits=True).ok
    objects = graph._repository.objects
    pattern = f"{graph.snapshot().pin('node:City').path}/data/" if pattern == "nodes/" else pattern
    key = newest(graph, pattern)
    data = bytearray(objects.get(key).data)
    data[len(data) // 2] ^= 1
    objects.put(key, bytes(data))
    (found,) = graph.verify().damage
    assert (found.file, found.kind, found.branches) == (key, "altered", ("main",))


def flip_time(graph: og.LocalGraph, s3: Bucket, folder: str = "g") -> tuple[str, bytes]:
    """Return the key of the newest version of `__manifest`, and its content with one bit of its time flipped."""
    version = graph._repository.manifest.refresh().version
    key = f"{folder}/__manifest/{version_file(version)}"
    data = bytearray(s3.server.objects.get(s3.name, key))
    # The time is the field after the version.
    data[data.rindex(b"\x18" + bytes([version]) + b":") + 6] ^= 1
    return key, bytes(data)


def test_verify_decayed_bit_of_the_newest_version_is_found_by_its_entity_tag(
    graph: og.LocalGraph, s3: Bucket
) -> None:
    key, data = flip_time(graph, s3)
    s3.server.objects.decay(s3.name, key, data)
    (found,) = graph.verify(quick=True).damage
    assert (f"g/{found.file}", found.kind) == (key, "altered")
    assert graph.verify(record=True).recorded == 0


def test_verify_record_finds_a_newest_version_that_is_replaced_later(
    graph: og.LocalGraph, s3: Bucket
) -> None:
    assert graph.verify().not_recorded == 1
    assert graph.verify(record=True).recorded == 1
    assert graph.verify().not_recorded == 0
    key, data = flip_time(graph, s3)
    s3.server.objects.put(s3.name, key, data)
    (found,) = graph.verify().damage
    assert (f"g/{found.file}", found.kind) == (key, "altered")


def test_verify_of_a_backup_finds_a_newest_version_that_is_replaced(graph: og.LocalGraph, s3: Bucket) -> None:
    graph.backup(f"{s3.uri}/copy", storage_options=s3.options)
    with og.open(f"{s3.uri}/copy", "r", storage_options=s3.options) as copy:
        assert copy.verify().not_recorded == 0
        key, data = flip_time(copy, s3, "copy")
        s3.server.objects.put(s3.name, key, data)
        (found,) = copy.verify().damage
        assert (f"copy/{found.file}", found.kind) == (key, "altered")


@pytest.mark.parametrize("part", [b"string", b".txn", b"LANC"])
def test_verify_unrecorded_newest_version_is_compared_with_the_files_around_it(
    graph: og.LocalGraph, s3: Bucket, part: bytes
) -> None:
    key, _ = flip_time(graph, s3)
    data = bytearray(s3.server.objects.get(s3.name, key))
    # A description of a column, the name of its transaction file, and the format in its footer.
    data[data.rindex(part) - (2 if part == b"LANC" else 1 if part == b".txn" else -7)] ^= 1
    s3.server.objects.put(s3.name, key, bytes(data))
    (found,) = graph.verify(quick=True).damage
    assert (f"g/{found.file}", found.kind) == (key, "altered")


def test_verify_missing_newest_version_is_found_if_recorded_and_hinted_at_if_not(
    graph: og.LocalGraph, s3: Bucket
) -> None:
    assert graph.verify(quick=True).notes == ()
    key, _ = flip_time(graph, s3)
    data = graph._repository.objects.get(key.removeprefix("g/")).data
    graph._repository.objects.delete(key.removeprefix("g/"))
    report = graph.verify(quick=True)
    assert report.ok
    (note,) = report.notes
    assert "newest version of __manifest is missing" in note
    graph._repository.objects.put(key.removeprefix("g/"), data)
    graph.verify(record=True)
    graph._repository.objects.delete(key.removeprefix("g/"))
    (found,) = graph.verify(quick=True).damage
    assert (f"g/{found.file}", found.kind) == (key, "missing")


def test_graph_without_any_version_is_damaged_and_init_creates_nothing(
    graph: og.LocalGraph, s3: Bucket
) -> None:
    objects = graph._repository.objects
    objects.delete_many([item.key for item in objects.list("__manifest/_versions")])
    with pytest.raises(StorageError, match="every version is missing"):
        og.open(f"{s3.uri}/g", storage_options=s3.options)
    with pytest.raises(StorageError, match="every version is missing"):
        og.init(f"{s3.uri}/g", schema="node City { name: String }", storage_options=s3.options)
    assert [*objects.list("__manifest/_versions")] == []


def test_verify_missing_object_is_named_and_the_branch_can_be_reset(graph: og.LocalGraph) -> None:
    objects = graph._repository.objects
    folder = f"{graph.snapshot().pin('node:City').path}/data"
    before = {item.key for item in objects.list(folder)}
    graph.load({"City": [{"name": "Oslo"}]})
    (key,) = {item.key for item in objects.list(folder)} - before
    objects.delete(key)
    (found,) = graph.verify(quick=True).damage
    assert (found.file, found.kind, found.type_key) == (key, "missing", "node:City")
    assert graph.repair(reset_branch="main", confirm=True).reset is not None
    assert sorted(row["name"] for row in graph.query(NAMES)) == ["Bern", "Rome"]
    assert graph.verify().ok


@pytest.mark.usefixtures("graph")
def test_verify_with_one_refused_read_raises_and_reports_no_damage(s3: Bucket) -> None:
    raised: list[str] = []
    damage: list[Damage] = []
    with og.open(f"{s3.uri}/g", "r", storage_options={**s3.options, "max_retries": "0"}) as handle:
        with s3.seam.recording() as log:
            assert handle.verify(all_commits=True).ok
        for nth in range(1, len(log.requests) + 1):
            with s3.seam.fail(403, nth=nth):
                try:
                    damage += handle.verify(all_commits=True).damage
                except StorageError as error:
                    raised.append(error.kind)
    assert damage == []
    assert {*raised} == {"configuration"}


@pytest.mark.parametrize("how", [500, "reset"])
def test_verify_record_whose_swap_fails_once_records_every_digest(
    s3: Bucket, tmp_path: Path, how: How | int
) -> None:
    with og.init(tmp_path / "g", schema="node City { name: String @key }", durability="os") as local:
        local.load({"City": [{"name": "Bern"}]})
    strip_digests(tmp_path / "g")
    uri = upload_graph(tmp_path / "g", s3, "g")
    with og.open(uri, storage_options={**s3.options, "max_retries": "0"}) as graph:
        with s3.seam.fail(how, method="PUT", key="__manifest/_versions/") as fault:
            report = graph.verify(record=True)
        assert fault.hits == 1
        assert (report.recorded, report.not_recorded) == (2, 0)
        assert graph.verify(record=True).recorded == 0
        assert graph.verify().ok
