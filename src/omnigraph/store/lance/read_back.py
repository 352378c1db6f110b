"""Reading back of files that Lance has written: check each file and compute its digest, in one pass.

A local file is read from the cache of the operating system. An object is read with one streaming request, and
several objects are read at the same time. The transaction file of a version on an object store is not read: the
manifest file of the version holds the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.file_digests import FileDigest, digest_chunks, read_stored_file
from omnigraph.store.lance.file_checks import (
    check_content,
    incomplete_file,
    needs_whole_file,
    transaction_copy,
)
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context

_THREADS = 8


def read_back(objects: ObjectStore, path: str, sizes: Mapping[str, int | None]) -> list[FileDigest]:
    """Check files of a table and return their digests; `StorageError` for a file that is not complete.

    `sizes` has the size that the writer of each file reported, if it reported one. With the manifest file of a
    version on an object store, the result has the digest of its transaction file as well.
    """

    def read(item: tuple[str, int | None]) -> list[FileDigest]:
        return _read(objects, path, *item)

    if objects.location.is_local or len(sizes) == 1:
        results: Iterable[list[FileDigest]] = map(read, sizes.items())
    else:
        results = _pool(os.getpid()).map(propagate_context(read), sizes.items())
    return [digest for digests in results for digest in digests]


def _read(objects: ObjectStore, path: str, name: str, size: int | None) -> list[FileDigest]:
    key = f"{path}/{name}"
    try:
        digest, content = read_stored_file(objects, path, name, keep_content=needs_whole_file(name))
    except NotFound as error:
        raise StorageError(f"{key} cannot be read back: {error.message}", details={"file": key}) from error
    problem = check_content(name, digest.size, content)
    if problem is None and size is not None and digest.size != size:
        problem = f"{digest.size} bytes in storage, {size} bytes written"
    if problem is not None:
        raise incomplete_file(key, problem)
    if objects.location.is_local or not name.endswith(".manifest"):
        return [digest]
    copy = transaction_copy(content)
    if copy is None:
        raise incomplete_file(key, "it has no copy of its transaction")
    transaction, data = copy
    return [digest, digest_chunks(transaction, [data])]


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:  # noqa: ARG001 - threads do not survive a fork: a child process needs its own pool
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="omnigraph-read-back")
