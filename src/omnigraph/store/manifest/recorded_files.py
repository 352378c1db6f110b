"""The digests that `__manifest` holds, by file: those of commits, and those that were recorded later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from omnigraph.store.file_digests import FileDigest, format_digests, parse_digests
from omnigraph.store.manifest.manifest_files import ManifestFile, new_id
from omnigraph.store.manifest.manifest_rows import parse_row
from omnigraph.store.manifest.records import Body, DigestRecord

# Bounds the size of one row.
_FILES_PER_RECORD = 10_000
_KINDS = ("commit", "digests")


class RecordedFiles:
    """The recorded digests, read incrementally: every file of the log is read once. Safe to share between threads.

    Log rows are never removed, so the digests of one view are also part of every later view.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_files: set[str] = set()
        self._digests: dict[tuple[str, str], FileDigest] = {}

    def of(
        self, files: Iterable[ManifestFile], read: Callable[[ManifestFile], Mapping[str, str]]
    ) -> Mapping[tuple[str, str], FileDigest]:
        """Return the digests by table path and file name. `read` returns the rows of a manifest file.

        A file that has several digests keeps the first: that of its commit, else the oldest one.
        """
        with self._lock:
            new = [item for item in files if item.kind in _KINDS and item.name not in self._read_files]
            if not new:
                return self._digests
            # Callers use the mapping that they got, so it is never changed.
            digests = dict(self._digests)
            for file in sorted(new, key=lambda item: (_KINDS.index(item.kind), item.parts[1])):
                for key, text in read(file).items():
                    for path, digest in parse_row(file.name, key, text, _parse):
                        digests.setdefault((path, digest.name), digest)
            self._digests = digests
            self._read_files.update(item.name for item in new)
            return digests


def _parse(body: Body) -> list[tuple[str, FileDigest]]:
    return list(parse_digests(body.get("files", "")))


def new_digest_records(files: Mapping[str, Sequence[FileDigest]], now: int) -> Iterator[DigestRecord]:
    """Yield records that hold the digests, each of bounded size."""
    pairs = iter([(path, item) for path, items in sorted(files.items()) for item in items])
    while part := list(islice(pairs, _FILES_PER_RECORD)):
        by_path: dict[str, list[FileDigest]] = {}
        for path, item in part:
            by_path.setdefault(path, []).append(item)
        yield DigestRecord(new_id(), now, format_digests(by_path))
