"""The route that exports files in a tar archive."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any, Final

from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.protocol.requests import ExportFilesRequest
from omnigraph.read.export.export_folder import MARKER
from omnigraph.server.http.request_context import Context
from omnigraph.server.http.routing import BODY_ERRORS, Responses, graph_router
from omnigraph.server.routes.exports import authorize_export

router = graph_router("exports", *BODY_ERRORS)

TAR: Final = "application/x-tar"
_BLOCK_BYTES = 64 << 10
_ARCHIVE: Responses = {200: {"description": "Tar archive of the exported files.", "content": {TAR: {}}}}


@router.post("/export/files", operation_id="cluster_exportFiles", response_class=Response, responses=_ARCHIVE)
async def export_files(context: Context, body: ExportFilesRequest | None = None) -> Response:
    """Export a snapshot as files in a tar archive.

    The last member is `_SUCCESS`; an archive without it is incomplete. The export is complete before the response
    starts, so that its errors have an error status.
    """
    request = body or ExportFilesRequest()
    snapshot = authorize_export(context, request)

    def produce(graph: Graph, file: IO[Any]) -> None:
        with tempfile.TemporaryDirectory(prefix="omnigraph-export-", ignore_cleanup_errors=True) as folder:
            graph.export(
                f"{folder}/",
                types=request.types(exact=context.exact),
                format=request.format,
                engine="local",
                **snapshot,
            )
            write_archive(Path(folder), file)

    return await context.stream(produce, TAR)


def write_archive(folder: Path, file: IO[Any]) -> None:
    """Write the files of a folder to a tar archive, the success marker last. Each file is removed when written."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    paths.sort(key=lambda path: path.name == MARKER)
    with tarfile.open(fileobj=file, mode="w|", bufsize=_BLOCK_BYTES) as archive:
        for path in paths:
            archive.add(path, path.relative_to(folder).as_posix(), recursive=False, filter=_remove_owner)
            path.unlink()


def _remove_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the user and the file mode of the server process."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member
