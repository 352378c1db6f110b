"""The data files of `__manifest`: small files with rows of a key and a text, read with a cache and written once."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache
from lance.fragment import FragmentMetadata, LanceFragment

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.file_digests import digest_bytes, digest_file
from omnigraph.store.lance.lance_files import file_name, get_fragment
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.lance.page_layout import read_single_row
from omnigraph.store.manifest.manifest_errors import MANIFEST, reading_file
from omnigraph.store.manifest.manifest_files import BUCKET_KINDS, ManifestFile, Rows, is_head_name
from omnigraph.store.manifest.manifest_rows import StoredRows, decode_row, encode_row, parse_row
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.manifest_writer import FileLayout, write_named_file
from omnigraph.store.manifest.records import Body, HeadRecord
from omnigraph.store.request_counts import attribute_requests_to
from omnigraph.store.shared_reads import SharedReads

T = TypeVar("T")

_TEXT: Final = pa.string()
ROW_SCHEMA: Final = pa.schema(
    [pa.field("key", _TEXT, nullable=False), pa.field("body", _TEXT, nullable=False)]
)
_BUCKET_NAMES: Final = tuple(f"{kind}-" for kind in BUCKET_KINDS)
# From some 250 rows on Lance compresses texts, which takes ten times as long as writing them. A bucket of branches
# is rewritten for every branch that is created.
_BUCKET: Final = FileLayout(
    pa.schema(field.with_metadata({"lance-encoding:compression": "none"}) for field in ROW_SCHEMA)
)
_SMALL: Final = FileLayout(ROW_SCHEMA)
_MAX_ROWS_TO_TAKE = 512
# Large files of the log are compressed. Version 2.0 of the file format compresses pages; later versions compress
# each value by itself, and the rows of the log repeat each other.
COMPRESSED_ROWS: Final = 512
# Pages are small, because a page is decoded as a whole to read one of its rows. A batch of rows is never split.
_LARGE_LOG: Final = FileLayout(
    pa.schema(
        [
            ROW_SCHEMA.field("key"),
            ROW_SCHEMA.field("body").with_metadata({"lance-encoding:compression": "zstd"}),
        ]
    ),
    file_format="2.0",
    page_bytes=1 << 20,
)
_BATCH_ROWS = 1_024
_MAX_ROWS_TO_CACHE_FILE = 2_048
# Characters of cached rows. The rows of a commit have about 1,100, and a process that writes adds them all.
_CACHED_CHARACTERS = 8 << 20
_CACHED_SINGLE_ROWS = 4_096
_ROWS_BEFORE = 511
_CACHED_RECORDS = 1_024


class SupersededFile(StorageError):
    """A file of an old view was removed, because newer views do not need it. The newest view has its rows."""


class RowFiles:
    """The data files of a manifest, with a cache. `refresh` returns the newest view. Safe for several threads."""

    def __init__(self, root: LanceRoot, refresh: Callable[[], ManifestView]) -> None:
        self._root = root
        self._session = root.file_session(MANIFEST)
        self._refresh = refresh
        self._lock = threading.Lock()
        self._reads = SharedReads()
        self._files: LRUCache[str, Rows] = LRUCache(_CACHED_CHARACTERS, getsizeof=_count_characters)
        # Stored bodies of rows of large files.
        self._found: LRUCache[str, str] = LRUCache(_CACHED_SINGLE_ROWS)
        # Parsed records of files with one row, by file name. A commit needs its head several times.
        self._records: LRUCache[str, Any] = LRUCache(_CACHED_RECORDS)

    @property
    def cached(self) -> frozenset[str]:
        """The names of the files in the cache."""
        with self._lock:
            return frozenset(self._files)

    def read(self, view: ManifestView, file: ManifestFile) -> Rows:
        """Return the rows of a file; `SupersededFile` if the view is too old, `StorageError` if it is damaged."""
        rows = self._cached_rows(file)
        if rows is not None:
            return rows
        # After a commit many threads need its head at the same time.
        with self._reads.alone(file.name):
            rows = self._cached_rows(file)
            if rows is None:
                rows = self._read(view, file)
                self._cache(file.name, rows)
            return rows

    def _cached_rows(self, file: ManifestFile) -> Rows | None:
        with self._lock:
            return self._files.get(file.name)

    def _read(self, view: ManifestView, file: ManifestFile) -> Rows:
        rows: Rows
        with self._reading("read", file):
            keys, stored = self._read_row(file) or self._read_table(view, file)
            path = file_path(file)
            if file.kind in BUCKET_KINDS and self._is_intact(file):
                rows = StoredRows.sort(keys, stored)
            elif file.kind in BUCKET_KINDS:
                rows = StoredRows.check(path, keys, stored)
            else:
                rows = {key: decode_row(path, key, body) for key, body in zip(keys, stored, strict=True)}
        return rows

    def _read_row(self, file: ManifestFile) -> tuple[list[str], list[str]] | None:
        """Return the key and the stored body of a local file with one row; None if Lance must read it.

        Heads and the newest commits are such files, and reading them through Lance is the larger part of finding a
        commit. The digest in the name of the file covers every byte.
        """
        if self._root.local is None or file.rows != 1 or file.digest is None:
            return None
        try:
            with open(f"{self._root.local}/{file_path(file)}", "rb", 0) as stream:  # noqa: PTH123 - every read
                data = stream.read()
            if digest_bytes("", data).digest != file.digest:
                return None
            key, body = read_single_row(data)
        except (OSError, ValueError, struct.error):
            return None
        return [key.decode()], [body.decode()]

    def _read_table(self, view: ManifestView, file: ManifestFile) -> tuple[list[str], list[str]]:
        """Return the keys and the stored bodies of a file."""
        fragment = self._open_fragment(view, file)
        # A scan is prepared in the time in which a small file is read.
        is_small = file.rows <= _MAX_ROWS_TO_TAKE
        table = fragment.take(range(file.rows)) if is_small else fragment.to_table()
        return table["key"].to_pylist(), table["body"].to_pylist()

    def _open_fragment(self, view: ManifestView, file: ManifestFile) -> LanceFragment:
        """Return the fragment of a file. A view whose version is gone is read through the newest one."""
        try:
            dataset = view.dataset
        except NotFound:
            newest = self._refresh()
            if all(item.fragment != file.fragment for item in newest.files):
                raise
            dataset = newest.dataset
        return get_fragment(dataset, file.fragment)

    def _is_intact(self, file: ManifestFile) -> bool:
        """Return whether a local file has the digest that its name states.

        This takes a tenth of the time of checking the rows of a full bucket. If not, the row that is damaged is
        found by its checksum.
        """
        if self._root.local is None or file.digest is None:
            return False
        try:
            return digest_file(self._root.local / file_path(file), "").digest == file.digest
        except StorageError:
            return False

    def read_stored(self, view: ManifestView, file: ManifestFile) -> StoredRows:
        """Return the rows of a bucket. Raises the errors of `read`."""
        rows = self.read(view, file)
        assert isinstance(rows, StoredRows)
        return rows

    def forget(self, files: Iterable[ManifestFile]) -> None:
        """Remove the rows of replaced files from the cache. Few views still refer to them."""
        with self._lock:
            for file in files:
                self._files.pop(file.name, None)

    def read_record(self, view: ManifestView, file: ManifestFile, parse: Callable[[Body], T]) -> T:
        """Return the record of a file that must hold exactly one. Records are immutable and shared."""
        with self._lock:
            known: T | None = self._records.get(file.name)
        if known is not None:
            return known
        rows = self.read(view, file)
        if len(rows) != 1:
            raise StorageError(f"{file_path(file)}: expected 1 row, got {len(rows)}")
        ((key, text),) = rows.items()
        record = parse_row(file_path(file), key, text, parse)
        with self._lock:
            self._records[file.name] = record
        return record

    def keep_heads(self, written: Iterable[FragmentMetadata], heads: Sequence[HeadRecord]) -> None:
        """Keep the records of new head files, given all new files. The next write begins with them."""
        names = [name for name in (file_name(item.files[0]) for item in written) if is_head_name(name)]
        with self._lock:
            for name, head in zip(names, heads, strict=True):
                self._records[name] = head.without_details()

    def find(self, view: ManifestView, file: ManifestFile, key: str) -> str | None:
        """Return one row of a log file, or None.

        A large file is searched and not cached. The rows before the row are read with it: they are the commits
        before it, which a walk along parents needs next, and a compressed page is decoded as a whole.
        """
        if file.rows <= _MAX_ROWS_TO_CACHE_FILE:
            return self.read(view, file).get(key)
        with self._lock:
            body = self._found.get(key)
        if body is None:
            with self._reading("search", file):
                fragment = self._open_fragment(view, file)
                position = pc.index(fragment.to_table(columns=["key"])["key"], key).as_py()
                if position < 0:
                    return None
                table = fragment.take(range(max(0, position - _ROWS_BEFORE), position + 1))
            found = dict(zip(table["key"].to_pylist(), table["body"].to_pylist(), strict=True))
            body = found[key]
            with self._lock:
                # Rows of the log never change.
                self._found.update(found)
        return decode_row(file_path(file), key, body)

    def keys(self, view: ManifestView, file: ManifestFile) -> Sequence[str]:
        """Return the keys of the rows of a log file. The bodies of a large file are not read."""
        if file.rows <= _MAX_ROWS_TO_CACHE_FILE:
            return list(self.read(view, file))
        with self._reading("search", file):
            keys: list[str] = self._open_fragment(view, file).to_table(columns=["key"])["key"].to_pylist()
        return keys

    def write_file(self, file: tuple[str, Rows]) -> FragmentMetadata:
        """Write a file, given as its name and its rows."""
        return self.write(*file)

    def write(self, name: str, rows: Rows) -> FragmentMetadata:
        """Write a file. The caller must sync it before a commit names it."""
        bodies: Sequence[str]
        if isinstance(rows, StoredRows):
            bodies = rows.stored
        else:
            bodies = [encode_row(key, text) for key, text in rows.items()]
        layout = _choose_layout(name, len(rows))
        fragment = self._write(name, [_make_table(list(rows), bodies, layout)], layout)
        self._cache(file_name(fragment.files[0]), rows)
        return fragment

    def merge(self, view: ManifestView, name: str, files: Sequence[ManifestFile]) -> FragmentMetadata:
        """Write the rows of log files to one file. The caller must sync it before a commit names it.

        Rows are checked, and some of them are in memory at a time, whatever the length of the log.
        """
        count = sum(file.rows for file in files)
        layout = _choose_layout(name, count)
        kept: dict[str, str] = {}

        def batches() -> Iterator[pa.Table]:
            keys: list[str] = []
            bodies: list[str] = []
            for index, file in enumerate(files):
                with self._lock:
                    known = self._files.get(file.name)
                rows = self._read(view, file) if known is None else known
                keys.extend(rows)
                bodies.extend(encode_row(key, text) for key, text in rows.items())
                if count <= _MAX_ROWS_TO_CACHE_FILE:
                    kept.update(rows)
                if len(keys) >= _BATCH_ROWS or index + 1 == len(files):
                    yield _make_table(keys, bodies, layout)
                    keys, bodies = [], []

        fragment = self._write(name, batches(), layout)
        if fragment.physical_rows != count:
            # The name states the number of rows.
            raise StorageError(
                f"{MANIFEST}: expected {count} rows in log files, got {fragment.physical_rows}"
            )
        if kept:
            self._cache(file_name(fragment.files[0]), kept)
        return fragment

    def _write(self, name: str, batches: Iterable[pa.Table], layout: FileLayout) -> FragmentMetadata:
        return write_named_file(self._root, MANIFEST, self._session, name, batches, layout, with_digest=True)

    @contextmanager
    def _reading(self, action: str, file: ManifestFile) -> Iterator[None]:
        """Report a file that cannot be read. `SupersededFile` if it is missing because the view is too old."""
        # A read of a known commit can be the first of its call.
        attribute_requests_to(self._root.request_counter)
        try:
            with reading_file(action, file_path(file)):
                yield
        except StorageError as error:
            if not isinstance(error.__cause__, NotFound):
                raise
            if any(item.name == file.name for item in self._refresh().files):
                raise
            raise SupersededFile(
                f"{file_path(file)} was replaced and removed while it was being read", kind="transient"
            ) from error

    def _cache(self, name: str, rows: Rows) -> None:
        with self._lock:
            # A larger file would evict all others, and lookups in it do not read it whole.
            if _count_characters(rows) <= self._files.maxsize:
                self._files[name] = rows


def _choose_layout(name: str, rows: int) -> FileLayout:
    """Return how a file is stored, given its name and the number of its rows."""
    if name.startswith(_BUCKET_NAMES):
        return _BUCKET
    return _LARGE_LOG if rows >= COMPRESSED_ROWS else _SMALL


def _make_table(keys: Sequence[str], bodies: Sequence[str], layout: FileLayout) -> pa.Table:
    # From arrays: a table of texts by name takes five times as long, and every commit writes two files.
    return pa.table([pa.array(keys, _TEXT), pa.array(bodies, _TEXT)], schema=layout.schema)


def _count_characters(rows: Rows) -> int:
    bodies = rows.stored if isinstance(rows, StoredRows) else rows.values()
    return sum(map(len, bodies))


def file_path(file: ManifestFile) -> str:
    """Return the path of a data file from the root of the graph."""
    return f"{MANIFEST}/data/{file.name}"
