"""Writing of single data files with chosen names, which become fragments of `__manifest`."""

from __future__ import annotations

import tempfile
from pathlib import Path

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


def write_named_file(
    root: LanceRoot,
    path: str,
    session: LanceFileSession,
    name: str,
    rows: pa.Table,
    *,
    with_digest: bool = False,
    file_format: str = FILE_FORMAT,
) -> FragmentMetadata:
    """Write rows into a data file of a chosen name and return it as a fragment.

    With `with_digest` the digest of the content is added to the name. `file_format` is the version of the Lance
    file format. The file is complete on return. On a local disk the caller must sync it before a commit names it. A
    file that no commit names is garbage.
    """
    # The request statistics of Lance do not include single files.
    count_requests(writes=1)
    with translate_lance_errors(f"write {path}/data/{name}"):
        if root.local is not None:
            # One path object and no more: every commit does it twice. The session creates the directory.
            target = Path(f"{root.local}/{path}/data/{name}")
            writer = session.open_writer(name, schema=rows.schema, version=file_format)
            found = _encode(writer, target, rows)
            if with_digest:
                name = name_with_digest(name, found.digest)
                target.rename(f"{root.local}/{path}/data/{name}")
        else:
            # A temporary file first: its size saves a request at commit, and the upload is one put.
            with tempfile.TemporaryDirectory(prefix="omnigraph-") as scratch:
                target = Path(scratch) / name
                writer = LanceFileWriter(str(target), rows.schema, version=file_format)
                found = _encode(writer, target, rows)
                name = name_with_digest(name, found.digest) if with_digest else name
                session.upload_file(str(target), name)
    return _describe(name, found.size, rows, file_format)


def _encode(writer: LanceFileWriter, target: Path, rows: pa.Table) -> FileDigest:
    """Write a file and return its size and its digest."""
    writer.write_batch(rows)
    writer.close()
    # Here and not only at the sync: a truncated temporary file must not be uploaded as a complete object.
    return digest_new_file(target, target.name)


def _describe(name: str, size: int, rows: pa.Table, file_format: str) -> FragmentMetadata:
    columns = list(range(rows.num_columns))
    major, minor = (int(part) for part in file_format.split("."))
    file = DataFile(name, columns, columns, major, minor, file_size_bytes=size)
    return FragmentMetadata(id=0, files=[file], physical_rows=rows.num_rows)
