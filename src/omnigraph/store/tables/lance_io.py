"""What every Lance dataset of a graph shares: its place, the session, its files, its errors, its durability."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import lance
import pyarrow as pa
from lance.commit import CommitConflictError
from lance.file import LanceFileSession, LanceFileWriter
from lance.fragment import DataFile, FragmentMetadata
from lance.lance import _Session as Session

from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.store.location import Location
from omnigraph.store.request_counts import (
    LanceCall,
    LanceRequestCounter,
    attribute_requests_to,
    count_requests,
)
from omnigraph.store.storage_options import StorageOptions, lance_options
from omnigraph.store.sync import Durability, sync_files, sync_tree

# The file format of everything a graph writes, named so that a newer Lance cannot change it behind our back.
FILE_FORMAT: Final = "2.2"

# How Lance says that an object is not there; a missing bucket, host or column is none of these.
_MISSING = re.compile(
    r"\bNot found: |\bwas not found: |Object at location \S+ not found|No data in memory|NoSuchKey"
)
# How it says what the operating system said.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_RUST_PLACES = re.compile(r", /[^,]*\.rs:\d+")
# What a scan says when the user has interrupted it; everything else in Lance raises the interrupt itself.
_INTERRUPTED = "External error: KeyboardInterrupt"
_U64_MAX = 2**64 - 1
_DETACHED_BIT = 1 << 63
_TRANSIENT = (
    "timed out",
    "timeout",
    "connection",
    "503",
    "500",
    "502",
    "504",
    "slow down",
    "reset",
    "retries",
)


@dataclass(frozen=True)
class LanceRoot:
    """Where a graph's datasets live, as Lance addresses them.

    `local` is the directory on a local disk, where making a commit durable is our own work; an object store is
    durable by its put.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)
    local: Path | None = None
    durable: bool = True
    session: Session = field(default_factory=Session, compare=False)
    request_counter: LanceRequestCounter = field(
        default_factory=LanceRequestCounter, compare=False, repr=False
    )
    _durable_folders: set[Path] = field(default_factory=set, compare=False, repr=False)

    @classmethod
    def at(cls, location: Location, options: StorageOptions, durability: Durability) -> LanceRoot:
        """The root at a location."""
        return cls(
            uri=location.lance_uri,
            options=lance_options(options) if location.scheme == "s3" else {},
            local=Path(location.path) if location.is_local else None,
            durable=durability == "full",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # To its address: sessions belong to a process.
        return type(self), (self.uri, dict(self.options), self.local, self.durable)

    def dataset_uri(self, path: str) -> str:
        """The address of a dataset below the root."""
        return f"{self.uri.rstrip('/')}/{path}"

    def open(self, path: str, version: int | None = None) -> lance.LanceDataset:
        """Open a dataset, at a version when one is given."""
        attribute_requests_to(self.request_counter)
        with translate_lance_errors(f"open {path}"):
            found = lance.dataset(
                self.dataset_uri(path),
                version=version,
                storage_options=dict(self.options) or None,
                session=self.session,
            )
            self.request_counter.add_source("opened", found.io_stats_snapshot)
            return found

    def create(self, path: str, data: pa.Table) -> lance.LanceDataset:
        """Create a dataset at a path that is nobody else's: a rival who looked earlier would overwrite it."""
        attribute_requests_to(self.request_counter)
        with LanceCall():
            found = lance.write_dataset(
                data,
                self.dataset_uri(path),
                mode="create",
                data_storage_version=FILE_FORMAT,
                storage_options=dict(self.options) or None,
                session=self.session,
            )
            self.request_counter.add_source("created", found.io_stats_snapshot)
            return found

    def file_session(self, path: str) -> LanceFileSession:
        """Writes single Lance files into a dataset's data directory."""
        return LanceFileSession(self.dataset_uri(f"{path}/data"), storage_options=dict(self.options) or None)

    def sync_all(self, path: str) -> None:
        """Make everything durable that a new dataset consists of."""
        if self.local is not None and self.durable:
            folder = self.local / path
            self.sync(path, [str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()])

    def sync(self, path: str, names: Iterable[str]) -> None:
        """Make files of a dataset and their directory entries durable on a local disk; nothing elsewhere."""
        if self.local is None or not self.durable:
            return
        files = [self.local / path / name for name in names]
        folders = {file.parent for file in files}
        if folders <= self._durable_folders:
            sync_files(files)
        else:
            # A folder seen for the first time may be new: its own name, and those above, must last too.
            sync_tree(self.local.parent, files)
            self._durable_folders.update(folders)


def fragment_of(dataset: lance.LanceDataset, id_: int) -> lance.LanceFragment:
    """A fragment that is known to be there."""
    found = dataset.get_fragment(id_)
    if found is None:
        raise StorageError(f"{dataset.uri} has no fragment {id_} at version {dataset.version}")
    return found


def quote_string(text: str) -> str:
    """A string literal of Lance's filter language.

    >>> quote_string("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def version_file(version: int) -> str:
    """The manifest file of a version, relative to its dataset."""
    if version & _DETACHED_BIT:
        return f"_versions/d{version}.manifest"
    return f"_versions/{_U64_MAX - version:020d}.manifest"


def transaction_file(transaction: lance.Transaction, parent: int | None = None) -> str:
    """The file that a commit records its transaction in, relative to its dataset.

    Lance rebases a commit that others have overtaken and names the file after the version that it came to stand
    on: on a HEAD lineage that is `parent`, the version before the committed one.
    """
    version = transaction.read_version if parent is None else parent
    return f"_transactions/{version}-{transaction.uuid}.txn"


def data_files(fragments: Iterable[FragmentMetadata]) -> list[str]:
    """The data files of fragments, relative to their dataset."""
    return [f"data/{item.path}" for fragment in fragments for item in fragment.files]


def write_named_file(
    root: LanceRoot, path: str, session: LanceFileSession, name: str, rows: pa.Table
) -> FragmentMetadata:
    """Write rows into a data file of a chosen name and describe it as a fragment.

    The file is complete when this returns; on a local disk the caller has to sync it before anything refers to
    it. Should the caller fail, it is garbage.
    """
    # Single files go past what Lance counts for a dataset.
    count_requests(writes=1)
    with translate_lance_errors(f"write {path}/data/{name}"):
        if root.local is not None:
            target = root.local / path / "data" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            size = _encode(target, rows)
        else:
            # Encoded aside first: the size saves a request at commit, and a store takes one put per file.
            with tempfile.TemporaryDirectory(prefix="omnigraph-") as scratch:
                target = Path(scratch) / name
                size = _encode(target, rows)
                session.upload_file(str(target), name)
    return _describe(name, size, rows)


def _encode(target: Path, rows: pa.Table) -> int:
    writer = LanceFileWriter(str(target), rows.schema, version=FILE_FORMAT)
    writer.write_batch(rows)
    writer.close()
    return target.stat().st_size


def _describe(name: str, size: int, rows: pa.Table) -> FragmentMetadata:
    columns = list(range(rows.num_columns))
    major, minor = (int(part) for part in FILE_FORMAT.split("."))
    file = DataFile(name, columns, columns, major, minor, file_size_bytes=size)
    return FragmentMetadata(id=0, files=[file], physical_rows=rows.num_rows)


@contextmanager
def translate_lance_errors(doing: str) -> Iterator[None]:
    """Turn what Lance raises into our own errors; commit conflicts pass, their handlers know them."""
    try:
        with LanceCall():
            yield
    except (OmnigraphError, CommitConflictError):
        raise
    except (OSError, ValueError, RuntimeError) as error:
        if str(error).startswith(_INTERRUPTED):
            raise KeyboardInterrupt from error
        raise storage_error_from_lance(error, doing) from error


def storage_error_from_lance(error: BaseException, doing: str) -> OmnigraphError:
    """The error of ours that says what a handler can do about one of Lance's."""
    # Lance ends its messages with the places in its own source that they passed through.
    text = _RUST_PLACES.split(str(error), maxsplit=1)[0].strip()
    details: dict[str, Any] = {"doing": doing, "cause": text[:500]}
    if isinstance(error, FileNotFoundError) or _MISSING.search(text):
        return NotFound(f"could not {doing}: not found", details=details)
    system = _OS_ERROR.search(text)
    if system is not None:
        details["errno"] = int(system[1])
    transient = any(word in text.lower() for word in _TRANSIENT)
    line = text.splitlines()[0] if text else type(error).__name__
    return StorageError(f"could not {doing}: {line[:300]}", details=details, transient=transient)
