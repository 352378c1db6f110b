"""Scans that do not depend on indexes: rows are read without an index that is damaged.

An index repeats what the data files hold, so its damage costs time and no rows: the scan is repeated without
indexes, and a warning is logged. `repair` builds the index again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any, Final

import lance
import pyarrow as pa

from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.store.lance.lance_errors import translate_lance_errors

_LOG: Final = logging.getLogger(__name__)


class DamagedIndexes:
    """The table versions whose indexes a handle does not use. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._versions: set[tuple[str, int]] = set()

    def add(self, path: str, version: int, problem: str) -> None:
        """Do not use the indexes of a version any more, and log the reason once."""
        with self._lock:
            if (path, version) in self._versions:
                return
            self._versions.add((path, version))
        _LOG.warning(
            "an index of %s is damaged, its rows are scanned instead: %s;"
            " run `omnigraph repair --confirm` to build the index again",
            path,
            problem,
        )

    def inherit(self, path: str, base: int, version: int) -> None:
        """Do not use the indexes of a version if those of the version that it was made from are not used."""
        with self._lock:
            if (path, base) in self._versions:
                self._versions.add((path, version))

    def read_table(self, path: str, dataset: lance.LanceDataset, **options: Any) -> pa.Table:
        """Return the rows of a scan. `options` are those of `LanceDataset.scanner`."""
        if not self._uses_indexes(path, dataset, options):
            return _read_table(path, dataset, options, use_indexes=False)
        try:
            return _read_table(path, dataset, options, use_indexes=True)
        except (NotFound, StorageError) as error:
            if not _may_be_an_index(error):
                raise
            rows = _read_table(path, dataset, options, use_indexes=False)
            self.add(path, dataset.version, _problem(error))
            return rows

    def read_batches(
        self, path: str, dataset: lance.LanceDataset, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a scan in batches. An index is read before the first batch."""
        if not self._uses_indexes(path, dataset, options):
            yield from _read_batches(path, dataset, options, use_indexes=False)
            return
        started = False
        try:
            for batch in _read_batches(path, dataset, options, use_indexes=True):
                started = True
                yield batch
        except (NotFound, StorageError) as error:
            if started or not _may_be_an_index(error):
                raise
            for batch in _read_batches(path, dataset, options, use_indexes=False):
                self.add(path, dataset.version, _problem(error))
                yield batch

    def search(self, path: str, dataset: lance.LanceDataset, **options: Any) -> pa.Table | None:
        """Return the rows that a vector index finds; None if the indexes of the version are not used."""
        if not self.is_intact(path, int(dataset.version)):
            return None
        try:
            with translate_lance_errors(f"search {path}"):
                return dataset.scanner(**options).to_table()
        except (NotFound, StorageError) as error:
            if not _may_be_an_index(error):
                raise
            self.add(path, int(dataset.version), _problem(error))
            return None

    def is_intact(self, path: str, version: int) -> bool:
        """Return whether no index of a version is known to be damaged."""
        with self._lock:
            return (path, version) not in self._versions

    def _uses_indexes(self, path: str, dataset: lance.LanceDataset, options: dict[str, Any]) -> bool:
        """Return whether a scan may read an index: it has a filter, and no index is known to be damaged."""
        return options.get("filter") is not None and (path, dataset.version) not in self._versions


def _read_table(
    path: str, dataset: lance.LanceDataset, options: dict[str, Any], *, use_indexes: bool
) -> pa.Table:
    with translate_lance_errors(f"read {path}"):
        return dataset.scanner(use_scalar_index=use_indexes, **options).to_table()


def _read_batches(
    path: str, dataset: lance.LanceDataset, options: dict[str, Any], *, use_indexes: bool
) -> Iterator[pa.RecordBatch]:
    with translate_lance_errors(f"read {path}"):
        yield from dataset.scanner(use_scalar_index=use_indexes, **options).to_batches()


def _may_be_an_index(error: OmnigraphError) -> bool:
    """Return whether an error may be due to an index. Lance does not always name the file."""
    file = str(error.details.get("file", "_indices/"))
    is_refusal = isinstance(error, StorageError) and error.is_refusal
    return file.startswith("_indices/") and not is_refusal


def _problem(error: OmnigraphError) -> str:
    return str(error.details.get("cause") or error.message).splitlines()[0][:200]
