"""Access to Lance datasets: addresses, file names, durability and errors."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation

from omnigraph.errors import Conflict, NotFound, StorageError
from omnigraph.store.lance import lance_root as lance_root_module
from omnigraph.store.lance.lance_errors import storage_error_from_lance, translate_lance_errors
from omnigraph.store.lance.lance_files import data_files, get_fragment, transaction_file, version_file
from omnigraph.store.lance.lance_filters import quote_string
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.location import Location
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_writer import FileLayout, write_named_file
from omnigraph.store.sync import Durability
from tests.support.manifests import first_change, move
from tests.support.places import lance_root
from tests.support.rows import PATH, SCHEMA, arrow, make_table, stage


def test_a_dataset_that_is_not_there_is_not_found(uri: str) -> None:
    with pytest.raises(NotFound, match="could not open nodes/none"):
        lance_root(uri).open("nodes/none")


def test_version_and_transaction_files_have_the_names_that_lance_gives_them(tmp_path: Path) -> None:
    tables, pin = make_table(str(tmp_path))
    folder = tmp_path / PATH
    assert (folder / version_file(pin.version)).is_file()
    dataset = tables.open(pin.path, pin.version)
    transaction = lance.Transaction(dataset.version, LanceOperation.Append([]))
    detached = lance.LanceDataset.commit(dataset, transaction, detached=True)
    assert (folder / version_file(detached.version)).is_file()
    assert (folder / transaction_file(transaction)).is_file()


def test_data_files_are_named_relative_to_their_dataset(tmp_path: Path) -> None:
    tables, pin = make_table(str(tmp_path))
    pin = stage(tables, pin, {"a": "1"})
    found = data_files(item.metadata for item in tables.open(pin.path, pin.version).get_fragments())
    assert len(found) == 1
    assert (tmp_path / PATH / found[0]).is_file()


def test_a_named_file_is_a_fragment_that_lance_reads(uri: str) -> None:
    root = lance_root(uri)
    dataset = root.create(PATH, SCHEMA.empty_table())
    rows = arrow({"a": "1", "b": None})
    session, layout = root.file_session(PATH), FileLayout(rows.schema)
    fragment = write_named_file(root, PATH, session, "chosen-name.lance", [rows], layout)
    operation = LanceOperation.Append([fragment])
    after = lance.LanceDataset.commit(dataset, lance.Transaction(dataset.version, operation), detached=True)
    assert after.to_table() == rows
    assert after.get_fragments()[0].metadata.files[0].path == "chosen-name.lance"


def test_a_fragment_that_is_not_there_is_a_storage_error(uri: str) -> None:
    tables, pin = make_table(uri)
    with pytest.raises(StorageError, match="has no fragment 7"):
        get_fragment(tables.open(pin.path, pin.version), 7)


@pytest.mark.parametrize("durability", ["full", "os"])
def test_sync_missing_local_file_raises_storage_error(tmp_path: Path, durability: Durability) -> None:
    root = LanceRoot.at(Location.parse(str(tmp_path)), {}, durability)
    with pytest.raises(StorageError, match="No such file"):
        root.sync("nodes", ["missing"])


def test_sync_truncated_file_is_refused(tmp_path: Path) -> None:
    root = LanceRoot.at(Location.parse(str(tmp_path)), {}, "os")
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "v.manifest").write_bytes(b"cut")
    with pytest.raises(StorageError, match="is incomplete: its footer is missing"):
        root.sync("nodes", ["v.manifest"])


def test_sync_in_memory_does_nothing() -> None:
    root = lance_root("memory://nowhere")
    root.sync("nodes", ["missing"])
    assert root.local is None


@pytest.mark.parametrize("text", ["", "it's", "''", "a'b'c", "\\", "日本"])
def test_quoted_text_means_itself_to_lance(text: str, uri: str) -> None:
    dataset = lance_root(uri).create(PATH, arrow({text: "x", text + "y": "y"}))
    assert dataset.to_table(filter=f"id = {quote_string(text)}")["name"].to_pylist() == ["x"]


def test_errors_say_what_a_handler_can_do() -> None:
    missing = storage_error_from_lance(
        OSError("Object at location x not found: gone, /rust/io.rs:1:2"), "open x"
    )
    no_bucket = storage_error_from_lance(OSError("404 Not Found: NoSuchBucket, /rust/io.rs:1:2"), "open x")
    busy = storage_error_from_lance(OSError("request timed out\nmore"), "open x")
    broken = storage_error_from_lance(ValueError("bad magic"), "open x")
    assert isinstance(missing, NotFound)
    assert isinstance(no_bucket, StorageError)
    assert no_bucket.message == "could not open x: 404 Not Found: NoSuchBucket"
    assert isinstance(busy, StorageError)
    assert busy.transient
    assert isinstance(broken, StorageError)
    assert not broken.transient
    assert broken.message == "could not open x: bad magic"


def test_what_the_operating_system_said_is_kept_as_its_number() -> None:
    full = storage_error_from_lance(
        OSError("LanceError(IO): No space left on device (os error 28), /rust/io.rs:1:2"), "write x"
    )
    assert isinstance(full, StorageError)
    assert full.details["errno"] == errno.ENOSPC


def test_our_own_errors_and_others_defects_pass_untranslated() -> None:
    with pytest.raises(Conflict), translate_lance_errors("try"):
        raise Conflict("ours")
    with pytest.raises(KeyError), translate_lance_errors("try"):
        raise KeyError("a defect")


def test_panic_of_lance_becomes_a_storage_error() -> None:
    class PanicException(BaseException):
        """Stands for the exception of pyo3, which cannot be imported."""

    text = "could not read nodes/1: index out of bounds"
    with pytest.raises(StorageError, match=text) as caught, translate_lance_errors("read nodes/1"):
        raise PanicException("index out of bounds")
    assert caught.value.details["dataset"] == "nodes/1"
    with pytest.raises(KeyboardInterrupt), translate_lance_errors("read nodes/1"):
        raise KeyboardInterrupt


def test_errors_are_translated_in_a_process_that_imported_nothing_else() -> None:
    code = (
        "from omnigraph.errors import StorageError\n"
        "from omnigraph.store.lance.lance_errors import translate_lance_errors\n"
        "try:\n"
        "    with translate_lance_errors('x'):\n"
        "        raise OSError('y')\n"
        "except StorageError:\n"
        "    print('translated')\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "translated\n"


def test_the_schema_of_rows_is_kept(uri: str) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int32())])
    assert lance_root(uri).create(PATH, schema.empty_table()).schema == schema


def test_cache_of_a_writing_process_stays_within_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cached_bytes(bound: int, name: str) -> int:
        monkeypatch.setattr(lance_root_module, "_METADATA_CACHE_BYTES", bound)
        root = lance_root(str(tmp_path / name))
        manifest = Manifest.create(root, first_change())
        manifest._probe = None  # Lance makes the swaps.
        for _ in range(40):
            move(manifest, manifest.view)
        return int(root.session.size_bytes())

    bound = 100_000
    assert cached_bytes(bound, "bounded") < 2 * bound < cached_bytes(1 << 30, "large")
