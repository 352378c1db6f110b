"""Files are read back when they are staged: truncated, missing and altered ones are refused, on disk and on S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.errors import StorageError
from omnigraph.store.file_digests import FileDigest, digest_chunks, digest_file
from omnigraph.store.lance.lance_files import data_file_sizes
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.tables.staged_table import StagedTable
from omnigraph.store.tables.tables import Tables
from tests.support.places import fresh_memory
from tests.support.rows import PATH, SCHEMA, arrow
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]


class Place:
    """A table on a local disk or in a bucket, whose files can be replaced."""

    def __init__(self, tables: Tables, folder: Path | None, bucket: Bucket | None) -> None:
        self.tables = tables
        self._folder = folder
        self._bucket = bucket

    def read(self, name: str) -> bytes:
        if self._folder is not None:
            return (self._folder / PATH / name).read_bytes()
        assert self.tables.root.objects is not None
        return self.tables.root.objects.get(f"{PATH}/{name}").data

    def put(self, name: str, data: bytes) -> None:
        if self._folder is not None:
            (self._folder / PATH / name).write_bytes(data)
        else:
            assert self._bucket is not None
            self._bucket.server.objects.put(self._bucket.name, f"{PATH}/{name}", data)


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, s3: Bucket) -> Iterator[Place]:
    if request.param == "disk":
        yield Place(Tables(LanceRoot.from_uri(str(tmp_path), {}, "os")), tmp_path, None)
    else:
        yield Place(Tables(LanceRoot.from_uri(s3.uri, s3.options, "full")), None, s3)


def staged(tables: Tables) -> StagedTable:
    """A version with a data file, a deletion file and an index."""
    made = tables.create(PATH, SCHEMA)
    first = tables.stage(made.pin("c"), insert=arrow({f"r{number}": "x" for number in range(9)}))
    index = tables.stage_index(first.pin("c"), "id", "BTREE")
    return (
        made.followed_by(first)
        .followed_by(index)
        .followed_by(tables.stage(index.pin("c"), delete_ids=["r1"], insert=arrow({"new": "y"})))
    )


def test_staged_version_has_the_digest_of_every_new_file(place: Place) -> None:
    files = staged(place.tables).files
    kinds = sorted(file.name.split("/")[0] for file in files)
    assert kinds == ["_deletions", "_indices", "_indices", "_transactions", "_versions", "data", "data"]
    assert len({file.name for file in files}) == len(files)
    for file in files:
        assert file == digest_chunks(file.name, [place.read(file.name)])


def test_seal_truncated_file_of_every_kind_is_refused(place: Place) -> None:
    root = place.tables.root
    for file in staged(place.tables).files:
        if file.name.startswith("_transactions/"):
            continue
        whole = place.read(file.name)
        assert root.seal(PATH, {file.name: file.size})[0] == file
        for size in (0, 1, len(whole) // 2, len(whole) - 1):
            place.put(file.name, whole[:size])
            with pytest.raises(StorageError, match="is incomplete"):
                root.seal(PATH, {file.name: None})


def test_seal_file_of_another_size_than_its_writer_reported_is_refused(place: Place) -> None:
    root = place.tables.root
    for file in staged(place.tables).files:
        if file.name.startswith(("data/", "_indices/")):
            whole = place.read(file.name)
            # A truncated file that ends with the magic number by chance.
            place.put(file.name, whole[:20] + whole[-20:])
            with pytest.raises(StorageError, match=f"40 bytes in storage, {file.size} bytes written"):
                root.seal(PATH, {file.name: file.size})


def test_seal_missing_file_is_refused(place: Place) -> None:
    place.tables.create(PATH, SCHEMA)
    with pytest.raises(StorageError, match=r"gone\.lance cannot be read back"):
        place.tables.root.seal(PATH, {"data/gone.lance": 7})


def test_data_file_sizes_are_those_of_the_files(place: Place) -> None:
    made = place.tables.create(PATH, SCHEMA)
    version = place.tables.stage(made.pin("c"), insert=arrow({"a": "1"})).version
    fragments = [item.metadata for item in place.tables.open(PATH, version).get_fragments()]
    ((name, size),) = data_file_sizes(fragments).items()
    assert size == len(place.read(name))


def test_files_of_a_graph_in_memory_have_no_digests() -> None:
    tables = Tables(LanceRoot.from_uri(fresh_memory(), {}, "os"))
    assert staged(tables).files == ()


def test_digest_of_a_local_file_equals_that_of_the_object(place: Place, tmp_path: Path) -> None:
    for file in staged(place.tables).files:
        (tmp_path / "copy").write_bytes(place.read(file.name))
        assert digest_file(tmp_path / "copy", file.name) == FileDigest(file.name, file.size, file.digest)
