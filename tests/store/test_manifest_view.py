"""A damaged list of files in the newest version of `__manifest` is detected, and never read as another state."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import StorageError
from omnigraph.maintain.manifest_repair import repair_manifest
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.manifest import LOG_COMPACT_AT, PATH, Manifest
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_files import (
    WEIGHT_MODULUS,
    ManifestFile,
    balance,
    head_name,
    log_name,
    parse_file,
    registry_name,
)
from omnigraph.store.objects.object_store import ObjectStore
from tests.support.manifests import make_manifest, move, reopen
from tests.support.places import fresh_memory
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]

SCHEMA = "node Person { name: String @key }"


def total(files: Iterator[ManifestFile] | tuple[ManifestFile, ...] | list[ManifestFile]) -> int:
    return sum(file.weight for file in files) % WEIGHT_MODULUS


# --- weights ------------------------------------------------------------------------------------------------

NAMES: list[Callable[[], str]] = [
    registry_name,
    lambda: head_name("01J"),
    lambda: log_name("commit", 0, ["01A", "01B"]),
]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_balance_any_order_of_swaps_keeps_the_sum_at_zero(data: st.DataObject) -> None:
    files: list[ManifestFile] = []
    for _ in range(data.draw(st.integers(1, 6))):
        count = data.draw(st.integers(0, len(files)))
        removed, kept = files[:count], files[count:]
        names = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3))
        rows = data.draw(st.integers(1, 3))
        new = balance([(name(), {str(row): "" for row in range(rows)}) for name in names], removed)
        files = [*kept, *(parse_file(0, name, len(items)) for name, items in new)]
        assert total(files) == 0


@pytest.mark.parametrize("position", [0, 1])
def test_parse_file_any_other_name_or_number_of_rows_has_another_weight(position: int) -> None:
    new = balance([(registry_name(), {"registry": ""}), (head_name("01J"), {"head": ""})], [])
    name, _ = new[position]
    weight = parse_file(0, name, 1).weight
    assert weight
    for place in range(len(name.removesuffix(".lance"))):
        for bit in range(7):
            changed = f"{name[:place]}{chr(ord(name[place]) ^ 1 << bit)}{name[place + 1 :]}"
            assert parse_file(0, changed, 1).weight != weight
    assert parse_file(0, name, 2).weight != weight


def test_every_version_of_a_manifest_lists_files_whose_weights_add_up_to_zero() -> None:
    manifest = make_manifest(fresh_memory())
    for _ in range(LOG_COMPACT_AT):
        move(manifest, manifest.view)
        assert total(manifest.view.files) == 0
    assert manifest.compact_log()
    assert total(reopen(manifest).view.files) == 0
    assert all(file.weight for file in manifest.view.files)


# --- damaged version files ----------------------------------------------------------------------------------


@dataclass
class Stored:
    """A graph whose newest version file can be replaced."""

    uri: str
    options: dict[str, str]
    key: str
    version: int
    whole: bytes
    put: Callable[[bytes], None]

    def state(self) -> tuple[Any, ...]:
        """Read everything that the newest version leads to, with a new handle."""
        manifest = Manifest.open(LanceRoot.from_uri(self.uri, self.options, "os"))
        view = manifest.refresh()
        registry = manifest.registry(view)
        heads = {name: manifest.head(view, name) for name in manifest.branches(view)}
        commits = sorted(commit.id for commit in manifest.all_commits(view))
        found = [manifest.find_commit(view, id_) is not None for id_ in commits]
        return view.version, registry, heads, commits, found, dict(manifest.recorded_files(view))

    def names(self) -> list[str]:
        manifest = Manifest.open(LanceRoot.from_uri(self.uri, self.options, "os"))
        return [file.name for file in manifest.view.files]

    def silent_flips(self, bits: list[int]) -> list[int]:
        """Flip bits one at a time; return those with which another state is read. Other errors are raised."""
        expected, silent = self.state(), []
        for bit in bits:
            data = bytearray(self.whole)
            data[bit // 8] ^= 1 << bit % 8
            self.put(bytes(data))
            try:
                if self.state() != expected:
                    silent.append(bit)
            except StorageError:
                continue
        self.put(self.whole)
        return silent


def build(uri: str, options: dict[str, str]) -> ObjectStore:
    with og.init(uri, schema=SCHEMA, storage_options=options, durability="os") as graph:
        for name in "abc":
            graph.load({"Person": [{"name": name}]})
        graph.branches.create("side")
        graph.load({"Person": [{"name": "d"}]}, branch="side")
    return ObjectStore.open(uri, options)


def stored_at(uri: str, options: dict[str, str], put: Callable[[str, bytes], None]) -> Stored:
    objects = build(uri, options)
    version = Manifest.open(LanceRoot.from_uri(uri, options, "os")).view.version
    key = f"{PATH}/{version_file(version)}"
    whole = objects.get(key).data
    return Stored(uri, options, key, version, whole, lambda data: put(key, data))


@pytest.fixture
def on_disk(tmp_path: Path) -> Stored:
    return stored_at(str(tmp_path / "g"), {}, lambda key, data: _write(tmp_path / "g" / key, data))


@pytest.fixture
def in_bucket(s3: Bucket) -> Stored:
    put = s3.server.objects.put
    return stored_at(f"{s3.uri}/g", s3.options, lambda key, data: _put(put, s3.name, f"g/{key}", data))


def _write(file: Path, data: bytes) -> None:
    file.write_bytes(data)


def _put(put: Callable[..., Any], bucket: str, key: str, data: bytes) -> None:
    put(bucket, key, data)


def test_flipped_bits_in_the_newest_version_on_s3_are_never_read_as_another_state(in_bucket: Stored) -> None:
    rng = random.Random(7)
    bits = [rng.randrange(len(in_bucket.whole) * 8) for _ in range(24)]
    # The kind of a file, the id of a branch or of a commit, the tag and the length before the name, and before the
    # two lengths of two bytes the id of the fragment.
    for name in in_bucket.names():
        start = in_bucket.whole.rindex(name.encode())
        bits += [8 * (start + place) for place in (0, 10, 30, -1, -2)]
        bits += [8 * (start - 7) + bit for bit in range(1, 4) if name.startswith("commit-")]
    assert in_bucket.silent_flips(bits) == []


@pytest.mark.faults
@pytest.mark.long
@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_in_the_newest_version_is_never_read_as_another_state(
    on_disk: Stored, bit: int
) -> None:
    assert on_disk.silent_flips(list(range(bit, len(on_disk.whole) * 8, 8))) == []


def test_newest_version_that_states_another_version_is_refused(on_disk: Stored) -> None:
    # Field 3 of the message is the version.
    place = on_disk.whole.rindex(bytes([3 << 3, on_disk.version])) + 1
    bits = [8 * place + bit for bit in range(4)]
    assert on_disk.silent_flips(bits) == []
    # Lance compares the number when it opens a version, and not when a handle moves on to a version.
    root = LanceRoot.from_uri(on_disk.uri, {}, "os")
    manifest = Manifest(root, root.open(PATH, on_disk.version - 1))
    damaged = bytearray(on_disk.whole)
    damaged[place] ^= 1
    on_disk.put(bytes(damaged))
    with pytest.raises(
        StorageError, match=f"states version {on_disk.version ^ 1}, expected {on_disk.version}"
    ):
        manifest.refresh()


def test_hidden_commit_file_is_reported_and_repair_lists_it_again(on_disk: Stored) -> None:
    expected = on_disk.state()
    name = next(name for name in on_disk.names() if name.startswith("commit-"))
    start = on_disk.whole.rindex(name.encode())
    damaged = bytearray(on_disk.whole)
    damaged[start] ^= 1
    on_disk.put(bytes(damaged))
    with pytest.raises(
        StorageError, match="the files that it lists are not those that were committed"
    ) as caught:
        on_disk.state()
    assert caught.value.details["file"] == on_disk.key
    root, objects = LanceRoot.from_uri(on_disk.uri, {}, "os"), ObjectStore.open(on_disk.uri)
    (found,) = repair_manifest(root, objects, confirm=False)
    assert (found.part, found.rebuilt) == (f"{PATH}/_versions", False)
    (found,) = repair_manifest(root, objects, confirm=True)
    assert found.rebuilt
    assert on_disk.state()[1:] == expected[1:]


def test_swap_of_a_copied_file_keeps_the_sum_at_zero() -> None:
    source, target = make_manifest(fresh_memory()), make_manifest(fresh_memory())
    move(source, source.view)
    (file,) = source.view.of_kind("commit")[-1:]
    copied = [
        item.metadata for item in source.view.dataset.get_fragments() if item.fragment_id == file.fragment
    ]
    view = target.view
    change = ManifestChange(registry=target.registry(view))
    fragments = target._write(change, view.of_kind("registry"), copied)
    added = [parse_file(0, item.files[0].path, item.physical_rows) for item in (*fragments, *copied)]
    assert total(added) == total(view.of_kind("registry"))
