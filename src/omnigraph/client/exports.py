"""Export of a remote graph: one stream of records, or an archive of files that is unpacked into a folder."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, Final, cast

from omnigraph.api.files.export_files import ExportOptions, ExportTarget, folder_of, write_one
from omnigraph.client.request_names import place_of
from omnigraph.client.server_decisions import refuse_spark
from omnigraph.client.streamed_lines import lines_to_end
from omnigraph.errors import StorageError
from omnigraph.graph.progress import Progress

if TYPE_CHECKING:
    from omnigraph.client.transport import Transport
    from omnigraph.read.export.export_folder import ExportFolder
    from omnigraph.store.storage_options import StorageOptions

_CHUNK_BYTES: Final = 1 << 20
_INCOMPLETE = "the archive of the server is not a complete export"


def fetch_export(
    transport: Transport,
    target: ExportTarget,
    options: ExportOptions,
    storage_options: StorageOptions | None = None,
) -> int:
    """Write a state of a remote graph to the target and return the number of records.

    A file or folder appears when it is complete. `progress` receives the number of bytes since its last call.
    """
    refuse_spark(options.engine, options.spark)
    folder = folder_of(target, options)
    body: dict[str, Any] = {
        **place_of(transport, options.branch, options.at),
        "type_names": None if options.types is None else list(options.types),
    }
    if folder is not None:
        body["format"] = options.format
        return _fetch_folder(transport, folder, body, options, storage_options or {})
    with transport.stream("POST", "/export", body=body) as chunks:
        lines = _report_bytes(lines_to_end(chunks), options.progress)
        return write_one(target, ((data.count(b"\n"), data) for data in lines), storage_options or {})


def _fetch_folder(
    transport: Transport,
    target: str,
    body: dict[str, Any],
    options: ExportOptions,
    storage_options: StorageOptions,
) -> int:
    from omnigraph.read.export.export_folder import ExportFolder
    from omnigraph.store.location import Location

    def prepare() -> ExportFolder:
        return ExportFolder.prepare(target, storage_options, overwrite=options.overwrite)

    # Prepare the folder before the request, so that the server does no work for a target that is refused. On an
    # object store overwriting deletes the existing files, so there it happens after the response has started.
    early = prepare() if Location.parse(target).is_local or not options.overwrite else None
    with transport.stream("POST", "/export/files", body=body) as chunks:
        return _unpack(_report_bytes(chunks, options.progress), early or prepare())


def _unpack(chunks: Iterator[bytes], folder: ExportFolder) -> int:
    """Write the files of an archive to a folder, then its success marker. On failure remove the files."""
    from omnigraph.read.export.export_folder import MARKER

    names: list[str] = []
    report: dict[str, Any] | None = None
    try:
        for name, file in _members(chunks):
            if report is not None:
                raise StorageError(f"{_INCOMPLETE}: `{name}` follows the success marker")
            if name == MARKER:
                report = _parse_report(file.read())
                continue
            names.append(name)
            with folder.store.open_write(folder.prefix + name) as target:
                while data := file.read(_CHUNK_BYTES):
                    target.write(data)
        if report is None:
            raise StorageError(_INCOMPLETE, transient=True)
        folder.publish(names, report)
    except BaseException as error:
        folder.discard(names, error)
        if isinstance(error, tarfile.TarError):
            raise StorageError(f"{_INCOMPLETE}: {error}", transient=True) from error
        raise
    return sum(report["rows"].values())


def _members(chunks: Iterator[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the files of an archive. Each must be read before the next. Any other member is an error."""
    from omnigraph.read.export.export_folder import is_export_file

    reader = cast(IO[bytes], _ChunkReader(chunks))
    with tarfile.open(fileobj=reader, mode="r|", bufsize=_CHUNK_BYTES) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            if file is None or not is_export_file(member.name):
                raise StorageError(f"{_INCOMPLETE}: unexpected member `{member.name}`")
            yield member.name, file


def _parse_report(data: bytes) -> dict[str, Any]:
    try:
        report = json.loads(data)
    except ValueError as error:
        raise StorageError(f"{_INCOMPLETE}: its success marker is invalid") from error
    if not isinstance(report, dict) or not isinstance(report.get("rows"), dict):
        raise StorageError(f"{_INCOMPLETE}: its success marker is invalid")
    return report


def _report_bytes(chunks: Iterator[bytes], progress: Progress | None) -> Iterator[bytes]:
    for chunk in chunks:
        if progress is not None:
            progress("receive", len(chunk))
        yield chunk


class _ChunkReader:
    """A readable file over an iterator of chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        chunks = [self._rest]
        missing = size - len(self._rest)
        while missing > 0 and (chunk := next(self._chunks, None)) is not None:
            chunks.append(chunk)
            missing -= len(chunk)
        data = b"".join(chunks)
        self._rest = data[size:]
        return data[:size]
