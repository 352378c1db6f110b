"""The Studio: a web interface whose data all comes from the other routes. Its files need no token."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from omnigraph.server.http.error_responses import HttpError
from omnigraph.studio.site import INDEX, find_file, render_index

router = APIRouter(include_in_schema=False)


@router.get("/studio")
async def studio(request: Request) -> Response:
    """Redirect to the page, whose links are relative to its folder."""
    _check_served(request)
    return RedirectResponse("studio/", 308)


@router.get("/studio/{name}")
@router.get("/studio/")
async def studio_file(request: Request, name: str = INDEX) -> Response:
    """Return the page, or a file that it loads."""
    _check_served(request)
    file = find_file(name)
    if file is None:
        raise HttpError(404, "Not Found")
    if name == INDEX:
        body, headers = render_index(file)
        return Response(body, headers=headers, media_type=file.media_type)
    # Names do not change with the content, so browsers ask whether they have the current file.
    headers = {"ETag": file.etag, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.data, headers=headers, media_type=file.media_type)


def _check_served(request: Request) -> None:
    if not request.app.state.studio:
        raise HttpError(404, "the server does not serve the Studio; start it with --studio")
