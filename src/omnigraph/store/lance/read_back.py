"""Reading back of files that Lance has written: check each file and compute its digest, in one pass.

A local file is read from the cache of the operating system. An object is read with one streaming request. The
transaction file of a version on an object store is not read: the manifest file of the version holds the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.file_digests import FileDigest, digest_chunks, file_chunks
from omnigraph.store.lance.file_checks import (
    check_content,
    incomplete_file,
    needs_whole_file,
    transaction_copy,
)
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context

_THREADS = 8
# More than the longest footer.
_TAIL_BYTES = 64


def read_back_files(folder: Path, sizes: Mapping[str, int | None]) -> list[FileDigest]:
    """Check local files of a table and return their digests; `StorageError` for a file that is not complete.

    `sizes` has the size that the writer of each file reported, if it reported one.
    """
    return [_read_file(folder / name, name, size) for name, size in sizes.items()]


def read_back_objects(objects: ObjectStore, path: str, sizes: Mapping[str, int | None]) -> list[FileDigest]:
    """Check objects of a table and return their digests, as `read_back_files` does, with concurrent requests.

    With the manifest file of a version, the result has the digest of its transaction file as well.
    """

    def read(item: tuple[str, int | None]) -> list[FileDigest]:
        return _read_object(objects, path, *item)

    if len(sizes) == 1:
        return read(next(iter(sizes.items())))
    results = _pool(os.getpid()).map(propagate_context(read), sizes.items())
    return [digest for digests in results for digest in digests]


def _read_file(file: Path, name: str, size: int | None) -> FileDigest:
    try:
        return _check(str(file), name, size, file_chunks(file))[0]
    except OSError as error:
        raise StorageError(
            f"{file} cannot be read back: {error.strerror}",
            details={"file": str(file), "errno": error.errno},
        ) from error


def _read_object(objects: ObjectStore, path: str, name: str, size: int | None) -> list[FileDigest]:
    key = f"{path}/{name}"
    try:
        digest, content = _check(key, name, size, objects.read_chunks(key))
    except NotFound as error:
        raise StorageError(f"{key} cannot be read back: {error.message}", details={"file": key}) from error
    if not name.endswith(".manifest"):
        return [digest]
    copy = transaction_copy(content)
    if copy is None:
        raise incomplete_file(key, "it has no copy of its transaction")
    transaction, data = copy
    return [digest, digest_chunks(transaction, [data])]


def _check(
    file: str, name: str, size: int | None, chunks: Iterable[bytes | memoryview]
) -> tuple[FileDigest, bytes]:
    """Return the digest of a file, and its content if the check needs all of it, else its last bytes."""
    kept, whole = bytearray(), needs_whole_file(name)

    def keep() -> Iterator[bytes | memoryview]:
        for chunk in chunks:
            kept.extend(chunk if whole else chunk[-_TAIL_BYTES:])
            yield chunk

    digest = digest_chunks(name, keep())
    content = bytes(kept)
    problem = check_content(name, digest.size, content)
    if problem is None and size is not None and digest.size != size:
        problem = f"{digest.size} bytes in storage, {size} bytes written"
    if problem is not None:
        raise incomplete_file(file, problem)
    return digest, content


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:  # noqa: ARG001 - threads do not survive a fork: a child process needs its own pool
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="omnigraph-read-back")
