"""Errors of a `__manifest` that is missing or damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.lance.lance_root import LanceRoot

MANIFEST = "__manifest"


def damaged_file(file: str, problem: str) -> StorageError:
    """Return the error of a file of `__manifest` that is missing or cannot be read."""
    return StorageError(
        f"{file} is damaged: {problem}",
        kind="permanent",
        details={"reason": "damaged", "file": file, "problem": problem},
        hint="run `omnigraph verify` for the extent of the damage, and restore the file from a backup",
    )


@contextmanager
def reading_file(action: str, file: str) -> Iterator[None]:
    """Report a file of `__manifest` that is missing or cannot be read.

    No process removes files that the newest version needs.
    """
    try:
        with translate_lance_errors(f"{action} {file}"):
            yield
    except NotFound as error:
        raise damaged_file(file, "it is missing") from error
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"it does not have the columns of {MANIFEST} ({type(error).__name__}: {error})"
        raise damaged_file(file, problem) from error
    except StorageError as error:
        if error.kind != "unknown":
            raise
        raise damaged_file(
            file, f"it cannot be read ({error.details.get('cause', error.message)})"
        ) from error


def vanished_error() -> StorageError:
    """Return the error for a graph whose storage is gone while a handle is open."""
    return StorageError(
        "the storage of the graph is gone: its manifest does not exist any more",
        kind="not_found",
        details={"reason": "vanished"},
        hint="mount the volume again, or restore the graph; the handle recovers when the files are back",
    )


def replaced_error(found: int, known: int) -> StorageError:
    """Return the error for a graph whose newest manifest versions are gone while a handle is open."""
    return StorageError(
        f"the newest commits of the graph are gone: its manifest has version {found} and had version {known}",
        kind="permanent",
        details={
            "reason": "damaged",
            "file": f"{MANIFEST}/{version_file(known)}",
            "problem": "it is missing",
        },
        hint="restore the files from a backup; if the graph was restored to an older state, open it again",
    )


def unreadable_error(root: LanceRoot, error: StorageError) -> StorageError:
    """Return the error for a manifest that cannot be opened; name the newest version file if it is to blame."""
    if error.kind != "unknown":
        return error
    newest = None
    if root.local is not None:
        names = sorted(file.name for file in (root.local / MANIFEST / "_versions").glob("*.manifest"))
        newest = f"_versions/{names[0]}" if names else None
    file = error.details.get("file") or newest or "_versions"
    return damaged_file(
        f"{MANIFEST}/{file}", f"it cannot be read ({error.details.get('cause', error.message)})"
    )


def has_lost_versions(root: LanceRoot) -> bool:
    """Return whether a root without a version holds files of a graph. A new graph gets its versions first."""
    if root.local is not None:
        return any((root.local / MANIFEST / "data").glob("registry-*"))
    folder = f"{MANIFEST}/data"
    listed = () if root.objects is None else root.objects.list(folder)
    return any(item.key.startswith(f"{folder}/registry-") for item in listed)
