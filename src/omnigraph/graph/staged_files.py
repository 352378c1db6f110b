"""The check, just before a commit becomes visible, that the files it introduces still exist.

Garbage collection removes unreferenced files that are older than its grace. A writer that was suspended for longer
than that, by a debugger or with its machine, continues after its files are gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from omnigraph.errors import Conflict, NotFound, StorageError
from omnigraph.graph.write_plan import WritePlan
from omnigraph.store.boot_clock import boot_clock
from omnigraph.store.file_digests import FileDigest
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context
from omnigraph.store.sync import storage_error_from_os

# Files on an object store are looked up only if they were staged longer ago, because each costs a request.
RECENT_SECONDS: Final = 300.0
_THREADS = 8


class StagedFilesRemoved(Conflict):
    """Staged files no longer exist, so the plan can never be published. Nothing is visible."""


def check_staged_files(root: LanceRoot, plan: WritePlan) -> None:
    """Raise `StagedFilesRemoved` if a file that a plan introduces is gone, `StorageError` if its size changed.

    On an object store files that were staged within the last five minutes are not looked up.
    """
    if root.local is not None:
        for path, file in _files(plan):
            _check_size(plan, path, file, _local_size(f"{root.local}/{path}/{file.name}"))
    elif root.objects is not None and not _is_recent(plan):
        _check_objects(root.objects, plan)


def _is_recent(plan: WritePlan) -> bool:
    return plan.staged_at is not None and boot_clock() - plan.staged_at < RECENT_SECONDS


def _files(plan: WritePlan) -> Iterator[tuple[str, FileDigest]]:
    return ((path, file) for path, files in plan.files.items() for file in files)


def _local_size(file: str) -> int | None:
    try:
        return os.stat(file).st_size  # noqa: PTH116 - twice as fast, and a load has thousands of files
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error_from_os(error, f"cannot read {file}") from error


def _check_objects(objects: ObjectStore, plan: WritePlan) -> None:
    def check(item: tuple[str, FileDigest]) -> None:
        path, file = item
        try:
            size: int | None = objects.head(f"{path}/{file.name}").size
        except NotFound:
            size = None
        _check_size(plan, path, file, size)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="omnigraph-staged") as threads:
        for _ in threads.map(propagate_context(check), _files(plan)):
            pass


def _check_size(plan: WritePlan, path: str, file: FileDigest, size: int | None) -> None:
    if size == file.size:
        return
    name = f"{path}/{file.name}"
    if size is None:
        raise StagedFilesRemoved(
            f"{name} was removed before this {plan.operation} was published",
            details={"branch": plan.branch, "file": name},
            hint=f"run the {plan.operation} again; garbage collection removes files that are older than its grace",
        )
    raise StorageError(
        f"{name} has {size} bytes, expected {file.size}: it changed before this {plan.operation} was published",
        details={"file": name, "expected": file.size, "actual": size},
        hint="nothing was committed; check the storage, then try again",
    )
