"""Exports of a served graph: one stream of records, or the files of an archive, to wherever they are wanted."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, Final, cast

from omnigraph.api.exports import ExportRequest, check_export, folder_of, write_one
from omnigraph.client.request_names import lines_to_end, place_of
from omnigraph.client.server_decisions import refuse_spark
from omnigraph.errors import StorageError

if TYPE_CHECKING:
    from omnigraph.client.transport import Transport
    from omnigraph.read.export.export_folder import ExportFolder
    from omnigraph.store.storage_options import StorageOptions

_PIECE: Final = 1 << 20
_INCOMPLETE = "the archive that the server sent is not a complete export"


def fetch_export(transport: Transport, request: ExportRequest, options: StorageOptions | None = None) -> int:
    """Write a state where it was asked for; the number of records. A file or a folder is complete or not there.

    `options` are how to reach a store. `progress` is told how many bytes have come since it was told the last time.
    """
    check_export(request)
    refuse_spark(request.engine, request.spark)
    folder = folder_of(request)
    body: dict[str, Any] = {
        **place_of(transport, request.branch, request.at),
        "type_names": None if request.types is None else list(request.types),
    }
    if folder is not None:
        return _fetch_many(transport, request, folder, {**body, "format": request.format}, options or {})
    with transport.stream("POST", "/export", body=body) as chunks:
        lines = _watched(lines_to_end(chunks), request.progress)
        return write_one(request.target, ((data.count(b"\n"), data) for data in lines), options or {})


def _fetch_many(
    transport: Transport, request: ExportRequest, target: str, body: dict[str, Any], options: StorageOptions
) -> int:
    from omnigraph.read.export.export_folder import ExportFolder
    from omnigraph.store.location import Location

    def prepare() -> ExportFolder:
        return ExportFolder.prepare(target, options, overwrite=request.overwrite)

    # A server need not write what cannot be taken. Overwriting on a store removes what is there, so that waits.
    early = prepare() if Location.parse(target).is_local or not request.overwrite else None
    with transport.stream("POST", "/export/files", body=body) as chunks:
        return _unpack(_watched(chunks, request.progress), early or prepare())


def _unpack(chunks: Iterator[bytes], folder: ExportFolder) -> int:
    """Write the files of an archive to a folder, and its mark when all are there."""
    from omnigraph.read.export.export_folder import MARKER

    names: list[str] = []
    report: dict[str, Any] | None = None
    try:
        for name, file in _members(chunks):
            if report is not None:
                raise StorageError(f"{_INCOMPLETE}: `{name}` comes after its end")
            if name == MARKER:
                report = _report(file.read())
                continue
            names.append(name)
            with folder.store.open_write(folder.prefix + name) as target:
                while piece := file.read(_PIECE):
                    target.write(piece)
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
    """The files of an archive, in order, each to be read before the next; anything else in it is refused."""
    from omnigraph.read.export.export_folder import is_export_file

    reader = cast(IO[bytes], _Reader(chunks))
    with tarfile.open(fileobj=reader, mode="r|", bufsize=_PIECE) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            if file is None or not is_export_file(member.name):
                raise StorageError(f"{_INCOMPLETE}: `{member.name}` is of no export")
            yield member.name, file


def _report(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise StorageError(f"{_INCOMPLETE}: it has no report") from error
    if not isinstance(found, dict) or not isinstance(found.get("rows"), dict):
        raise StorageError(f"{_INCOMPLETE}: it has no report")
    return found


def _watched(chunks: Iterator[bytes], progress: Callable[[str, int], None] | None) -> Iterator[bytes]:
    for chunk in chunks:
        if progress is not None:
            progress("receive", len(chunk))
        yield chunk


class _Reader:
    """Chunks as a file to read from."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int) -> bytes:
        """So many bytes; fewer only at the end."""
        found = [self._rest]
        missing = size - len(self._rest)
        while missing > 0 and (chunk := next(self._chunks, None)) is not None:
            found.append(chunk)
            missing -= len(chunk)
        data = b"".join(found)
        self._rest = data[size:]
        return data[:size]
