"""Writing of single data files with chosen names, which become fragments of `__manifest`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from lance.file import LanceFileSession, LanceFileWriter
from lance.fragment import DataFile, FragmentMetadata

from omnigraph.store.lance.file_checks import check_complete
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import FILE_FORMAT
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.request_counts import count_requests


def write_named_file(
    root: LanceRoot, path: str, session: LanceFileSession, name: str, rows: pa.Table
) -> FragmentMetadata:
    """Write rows into a data file of a chosen name and return it as a fragment.

    The file is complete on return. On a local disk the caller must sync it before a commit names it. A file that no
    commit names is garbage.
    """
    # The request statistics of Lance do not include single files.
    count_requests(writes=1)
    with translate_lance_errors(f"write {path}/data/{name}"):
        if root.local is not None:
            target = root.local / path / "data" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            size = _encode(target, rows)
        else:
            # A temporary file first: its size saves a request at commit, and the upload is one put.
            with tempfile.TemporaryDirectory(prefix="omnigraph-") as scratch:
                target = Path(scratch) / name
                size = _encode(target, rows)
                session.upload_file(str(target), name)
    return _describe(name, size, rows)


def _encode(target: Path, rows: pa.Table) -> int:
    writer = LanceFileWriter(str(target), rows.schema, version=FILE_FORMAT)
    writer.write_batch(rows)
    writer.close()
    # Here and not only at the sync: a truncated temporary file must not be uploaded as a complete object.
    check_complete([target])
    return target.stat().st_size


def _describe(name: str, size: int, rows: pa.Table) -> FragmentMetadata:
    columns = list(range(rows.num_columns))
    major, minor = (int(part) for part in FILE_FORMAT.split("."))
    file = DataFile(name, columns, columns, major, minor, file_size_bytes=size)
    return FragmentMetadata(id=0, files=[file], physical_rows=rows.num_rows)
