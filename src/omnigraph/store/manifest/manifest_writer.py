"""Writing of single data files with chosen names, which become fragments of `__manifest`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from lance.file import LanceFileSession, LanceFileWriter
from lance.fragment import DataFile, FragmentMetadata

from omnigraph.store.file_digests import FileDigest
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import FILE_FORMAT
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.lance.read_back import digest_new_file
from omnigraph.store.manifest.manifest_files import name_with_digest
from omnigraph.store.request_counts import count_requests


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How the rows of a file are stored: columns, file format, and bytes of rows in a page if they are limited.

    A page is the unit of compression. Reading a row decodes its page.
    """

    schema: pa.Schema
    file_format: str = FILE_FORMAT
    page_bytes: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of a Lance file writer."""
        return {"schema": self.schema, "version": self.file_format, "data_cache_bytes": self.page_bytes}


def write_named_file(
    root: LanceRoot,
    path: str,
    session: LanceFileSession,
    name: str,
    batches: Iterable[pa.Table],
    layout: FileLayout,
    *,
    with_digest: bool = False,
) -> FragmentMetadata:
    """Write rows into a data file of a chosen name and return it as a fragment.

    Memory holds one batch of rows and one page. With `with_digest` the digest of the content is added to the name.
    The file is complete on return. On a local disk the caller must sync it before a commit names it. A file that no
    commit names is garbage.
    """
    # The request statistics of Lance do not include single files.
    count_requests(writes=1)
    with translate_lance_errors(f"write {path}/data/{name}"):
        if root.local is not None:
            # One path object and no more: every commit does it twice. The session creates the directory.
            target = Path(f"{root.local}/{path}/data/{name}")
            found, rows = _encode(session.open_writer(name, **layout.options), target, batches)
            if with_digest:
                name = name_with_digest(name, found.digest)
                target.rename(f"{root.local}/{path}/data/{name}")
        else:
            # A temporary file first: its size saves a request at commit, and the upload is one put.
            with tempfile.TemporaryDirectory(prefix="omnigraph-") as scratch:
                target = Path(scratch) / name
                found, rows = _encode(LanceFileWriter(str(target), **layout.options), target, batches)
                name = name_with_digest(name, found.digest) if with_digest else name
                session.upload_file(str(target), name)
    return _describe(name, found.size, rows, layout)


def _encode(writer: LanceFileWriter, target: Path, batches: Iterable[pa.Table]) -> tuple[FileDigest, int]:
    """Write a file; return its size and its digest, and the number of its rows."""
    rows = 0
    for batch in batches:
        writer.write_batch(batch)
        rows += batch.num_rows
    writer.close()
    # Here and not only at the sync: a truncated temporary file must not be uploaded as a complete object.
    return digest_new_file(target, target.name), rows


def _describe(name: str, size: int, rows: int, layout: FileLayout) -> FragmentMetadata:
    columns = list(range(len(layout.schema)))
    major, minor = (int(part) for part in layout.file_format.split("."))
    file = DataFile(name, columns, columns, major, minor, file_size_bytes=size)
    return FragmentMetadata(id=0, files=[file], physical_rows=rows)
