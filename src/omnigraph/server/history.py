"""Routes of commits and of what they changed."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.api.bodies import commit_body
from omnigraph.api.changes import Kind, Op
from omnigraph.api.graph import Graph
from omnigraph.errors import InvalidInput, NotFound, PermissionDenied
from omnigraph.server import answers
from omnigraph.server.bodies import Branch
from omnigraph.server.requests import Called, Segment
from omnigraph.server.routing import graph_router

router = graph_router("history")

Kinds: TypeAlias = Annotated[list[Kind], Query(alias="kind")]
Types: TypeAlias = Annotated[list[str], Query(alias="type")]
Ops: TypeAlias = Annotated[list[Op], Query(alias="op")]
_REPEATABLE = frozenset({"kind", "type", "op"})
_PAGED = _REPEATABLE | {"page_token", "limit"}
_FEED = _PAGED | {"branch", "cursor", "start"}


@router.get("/commits", response_model=answers.Commits)
async def commits(call: Called, branch: Branch = "main") -> Response:
    """The history of a branch, newest first, with what it inherited."""
    call.allow("read", branch)
    return await call.read(
        lambda graph: {"commits": [commit_body(item) for item in graph.commits(branch, limit=None)]}
    )


@router.get("/commits/{commit_id}", response_model=answers.Commit)
async def commit(call: Called, commit_id: Segment) -> Response:
    """One commit."""
    call.allow("read")
    return await call.read(lambda graph: commit_body(graph.commit(commit_id)))


@router.get("/commits/{commit_id}/changes", response_model=answers.CommitChanges)
async def commit_changes(
    call: Called,
    commit_id: Segment,
    page_token: str | None = None,
    limit: int | None = None,
    kinds: Kinds = [],  # noqa: B006 - read as a declaration
    types: Types = [],  # noqa: B006
    ops: Ops = [],  # noqa: B006
) -> Response:
    """What a commit changed against its first parent."""
    _refuse_unknown(call.request, _PAGED)

    def work(graph: Graph) -> dict[str, Any]:
        try:
            page = graph.changes(commit_id, **_filter(kinds, types, ops), limit=limit, page_token=page_token)
        except PermissionDenied as error:
            # Whoever may not read it does not learn that it is there.
            raise NotFound(f"commit '{commit_id}' not found") from error
        return page.to_json()

    return await call.read(work)


@router.get("/changes", response_model=answers.Feed)
async def changes(
    call: Called,
    branch: Branch = "main",
    cursor: str | None = None,
    start: str | None = None,
    page_token: str | None = None,
    limit: int | None = None,
    kinds: Kinds = [],  # noqa: B006
    types: Types = [],  # noqa: B006
    ops: Ops = [],  # noqa: B006
) -> Response:
    """The changes of a branch, commit by commit, oldest first, from where the caller stands."""
    _refuse_unknown(call.request, _FEED)
    if sum(item is not None for item in (cursor, start, page_token)) > 1:
        raise InvalidInput("cursor, start and page_token exclude one another")
    call.allow("read", branch)

    def work(graph: Graph) -> dict[str, Any]:
        page = graph.feed(
            branch=branch,
            start="now" if start is None else start,
            cursor=cursor,
            page_token=page_token,
            limit=limit,
            **_filter(kinds, types, ops),
        )
        return page.to_json()

    return await call.read(work)


def _filter(kinds: list[Kind], types: list[str], ops: list[Op]) -> dict[str, Any]:
    return {"kinds": kinds or None, "types": types or None, "ops": ops or None}


def _refuse_unknown(request: Request, known: frozenset[str]) -> None:
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            raise InvalidInput(f"unknown query parameter '{name[:80]}'", hint=f"known are {sorted(known)}")
        if name in seen and name not in _REPEATABLE:
            raise InvalidInput(f"query parameter '{name}' is given more than once")
        seen.add(name)
