"""Pages for people: the landing page and the API reference. Neither needs a token."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from omnigraph import __version__
from omnigraph.server.api_reference import HEADERS, render_landing, render_reference
from omnigraph.server.http.request_context import accepts

router = APIRouter(include_in_schema=False)


@router.get("/")
async def landing(request: Request) -> Response:
    """Return where to find what: as HTML for browsers, otherwise as JSON."""
    if accepts(request, "text/html"):
        return HTMLResponse(render_landing(request.app.openapi()), headers={**HEADERS, "Vary": "Accept"})
    links = {"documentation": "/docs", "openapi": "/openapi.json", "graphs": "/graphs", "health": "/healthz"}
    return JSONResponse({"name": "OmniGraph", "version": __version__, **links}, headers={"Vary": "Accept"})


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Return the API reference."""
    state = request.app.state
    if getattr(state, "reference", None) is None:
        state.reference = render_reference(request.app.openapi())
    return HTMLResponse(state.reference, headers=HEADERS)
