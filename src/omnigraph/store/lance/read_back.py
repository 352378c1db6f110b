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
from pathlib import Path

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.file_digests import (
    FileDigest,
    digest_bytes,
    digest_chunks,
    digest_file,
    read_stored_file,
)
from omnigraph.store.lance.file_checks import (
    check_complete,
    check_content,
    check_transaction,
    incomplete_file,
    needs_whole_file,
    transaction_copy,
)
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context

_THREADS = 8
# Local files up to this size are read with one call.
_SMALL_BYTES = 1 << 18


def read_back(
    objects: ObjectStore, path: str, sizes: Mapping[str, int | None], transaction: str | None = None
) -> list[FileDigest]:
    """Check files of a table and return their digests; `StorageError` for a file that is not complete.

    `sizes` has the size that the writer of each file reported, if it reported one. With the manifest file of a
    version on an object store, the result has the digest of its transaction file as well. On a local disk,
    `transaction` is compared with its copy in the manifest file.
    """
    if objects.location.is_local:
        return _read_local(objects, path, sizes, transaction)

    def read(item: tuple[str, int | None]) -> list[FileDigest]:
        return _read_object(objects, path, *item)

    if len(sizes) == 1:
        results: Iterable[list[FileDigest]] = map(read, sizes.items())
    else:
        results = _pool(os.getpid()).map(propagate_context(read), sizes.items())
    return [digest for digests in results for digest in digests]


def digest_new_file(file: Path, name: str) -> FileDigest:
    """Return the digest of a local file after checking it; `StorageError` if it is not complete."""
    found = _read_small_file(str(file), name)
    if found is None:
        check_complete([file])
        return digest_file(file, name)
    digest, content = found
    _check(str(file), digest, content, None)
    return digest


def _read_local(
    objects: ObjectStore, path: str, sizes: Mapping[str, int | None], transaction: str | None
) -> list[FileDigest]:
    digests: list[FileDigest] = []
    kept: dict[str, bytes] = {}
    for name, size in sizes.items():
        key = f"{path}/{name}"
        whole = name == transaction or needs_whole_file(name)
        found = _read_small_file(f"{objects.location.path}/{key}", name)
        digest, content = found or _read(objects, path, name, whole)
        _check(key, digest, content, size)
        digests.append(digest)
        if transaction is not None and name.startswith(("_transactions/", "_versions/")):
            kept[name] = content
    if transaction is not None:
        (manifest,) = (content for name, content in kept.items() if name != transaction)
        check_transaction(f"{path}/{transaction}", kept[transaction], manifest)
    return digests


def _read_small_file(file: str, name: str) -> tuple[FileDigest, bytes] | None:
    """Return the digest and the content of a local file of up to one chunk; None for another one, and on errors."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # One byte more than the limit: a file of that length is read in chunks.
            data = os.read(descriptor, _SMALL_BYTES + 1)
            # A read may return less than there is.
            complete = len(data) <= _SMALL_BYTES and not os.read(descriptor, 1)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return (digest_bytes(name, data), data) if complete else None


def _read(objects: ObjectStore, path: str, name: str, whole: bool) -> tuple[FileDigest, bytes]:
    try:
        return read_stored_file(objects, path, name, keep_content=whole)
    except NotFound as error:
        key = f"{path}/{name}"
        raise StorageError(f"{key} cannot be read back: {error.message}", details={"file": key}) from error


def _check(key: str, digest: FileDigest, content: bytes, size: int | None) -> None:
    problem = check_content(digest.name, digest.size, content)
    if problem is None and size is not None and digest.size != size:
        problem = f"{digest.size} bytes in storage, {size} bytes written"
    if problem is not None:
        raise incomplete_file(key, problem)


def _read_object(objects: ObjectStore, path: str, name: str, size: int | None) -> list[FileDigest]:
    key = f"{path}/{name}"
    digest, content = _read(objects, path, name, needs_whole_file(name))
    _check(key, digest, content, size)
    if not name.endswith(".manifest"):
        return [digest]
    copy = transaction_copy(content)
    if copy is None:
        raise incomplete_file(key, "it has no copy of its transaction")
    transaction, data = copy
    return [digest, digest_chunks(transaction, [data])]


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:  # noqa: ARG001 - threads do not survive a fork: a child process needs its own pool
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="omnigraph-read-back")
