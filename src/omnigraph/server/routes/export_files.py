"""The route that sends a state as the many files of an export, in one archive."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any, Final

from starlette.responses import Response

from omnigraph.api.exports import ExportFormat
from omnigraph.api.graph import Graph
from omnigraph.protocol.requests import ExportRequest
from omnigraph.read.export.export_folder import MARKER
from omnigraph.server.http.request_context import Called
from omnigraph.server.http.routing import SENT, Responses, graph_router
from omnigraph.server.routes.exports import allow_export

router = graph_router("exports", *SENT)

TAR: Final = "application/x-tar"
_BLOCK = 64 << 10
_ARCHIVE: Responses = {200: {"description": "An archive of the files.", "content": {TAR: {}}}}


class FilesRequest(ExportRequest):
    """What to export, and as which files."""

    format: ExportFormat = "ndjson"


@router.post("/export/files", response_class=Response, responses=_ARCHIVE)
async def export_files(call: Called, body: FilesRequest | None = None) -> Response:
    """The files of an export, and last `_SUCCESS`: an archive without it is incomplete.

    They are complete before the first is sent, so what goes wrong is refused in the ordinary way.
    """
    wanted = body or FilesRequest()
    place = allow_export(call, wanted)

    def produce(graph: Graph, file: IO[Any]) -> None:
        with tempfile.TemporaryDirectory(prefix="omnigraph-export-", ignore_cleanup_errors=True) as home:
            types, form = wanted.type_names, wanted.format
            graph.export(f"{home}/", types=types, format=form, engine="local", **place)
            write_archive(Path(home), file)

    return await call.stream(produce, TAR)


def write_archive(folder: Path, file: IO[Any]) -> None:
    """Write an archive of an export, its mark last. Each file is gone once it has been written."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    found.sort(key=lambda path: path.name == MARKER)
    with tarfile.open(fileobj=file, mode="w|", bufsize=_BLOCK) as archive:
        for path in found:
            archive.add(path, path.relative_to(folder).as_posix(), recursive=False, filter=_unowned)
            path.unlink()


def _unowned(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A member that says nothing about whose process wrote it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member
