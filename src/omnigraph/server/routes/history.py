"""Routes of commits and of what they changed."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Query
from starlette.responses import Response

from omnigraph.api.changes import Kind, Op
from omnigraph.api.commits import Recovery
from omnigraph.api.graph import Graph
from omnigraph.changes.change_pages import ChangePage
from omnigraph.changes.feed import DEFAULT_COMMITS, FeedPage
from omnigraph.errors import InvalidInput, NotFound, PermissionDenied
from omnigraph.protocol import maintenance_responses, responses
from omnigraph.protocol.requests import Branch
from omnigraph.protocol.result_bodies import commit_body
from omnigraph.server.http.request_context import Called, Segment
from omnigraph.server.http.routing import EXACTLY, REPEATABLE, graph_router, refusals, refuse_unknown
from omnigraph.store.tables.table_files import epoch_micros

router = graph_router("history")

_PAGED = REPEATABLE | {"page_token", "limit"}
_FEED = _PAGED | {"branch", "cursor", "start", "max_commits"}
# More commits than any graph has: what is larger is a mistake.
_MOST = 2**53


async def _wanted(
    kinds: Annotated[list[Kind], Query(alias="kind")] = [],  # noqa: B006 - read as a declaration
    types: Annotated[list[str], Query(alias="type")] = [],  # noqa: B006
    ops: Annotated[list[Op], Query(alias="op")] = [],  # noqa: B006
) -> dict[str, Any]:
    return {"kinds": kinds or None, "types": types or None, "ops": ops or None}


# Which changes are asked for, as calls of the library take it.
Wanted: TypeAlias = Annotated[dict[str, Any], Depends(_wanted)]


@router.get("/commits", response_model=responses.Commits, responses=EXACTLY)
async def commits(
    call: Called,
    branch: Branch = "main",
    limit: Annotated[int | None, Query(ge=0, le=_MOST)] = None,
    actor: str | None = None,
) -> Response:
    """The history of a branch, newest first, with what it inherited; of one actor, if one is named."""
    call.allow("read", branch)
    return await call.read(
        lambda graph: graph.commits(branch, limit, actor),
        lambda found: {"commits": [commit_body(item) for item in found]},
    )


@router.get("/commits/{commit_id}", response_model=responses.Commit, responses=EXACTLY)
async def commit(call: Called, commit_id: Segment) -> Response:
    """One commit."""
    call.allow("read")
    return await call.read(lambda graph: graph.commit(commit_id), commit_body)


@router.get("/recoveries", response_model=maintenance_responses.Recoveries, responses=EXACTLY)
async def recoveries(call: Called) -> Response:
    """What became of bulk writes that were interrupted, newest first."""
    call.allow("read")
    return await call.read(
        lambda graph: graph.recoveries(), lambda found: {"recoveries": [_show(item) for item in found]}
    )


@router.get(
    "/commits/{commit_id}/changes",
    response_model=responses.CommitChanges,
    responses={**EXACTLY, **refusals(409, 410)},
)
async def commit_changes(
    call: Called,
    commit_id: Segment,
    wanted: Wanted,
    page_token: str | None = None,
    limit: int | None = None,
) -> Response:
    """What a commit changed against its first parent."""
    refuse_unknown(call.request, _PAGED)

    def work(graph: Graph) -> ChangePage:
        try:
            return graph.changes(commit_id, **wanted, limit=limit, page_token=page_token)
        except PermissionDenied as error:
            # Whoever may not read it does not learn that it is there.
            raise NotFound(f"commit '{commit_id}' not found") from error

    return await call.read(work, ChangePage.to_json)


@router.get("/changes", response_model=responses.Feed, responses={**EXACTLY, **refusals(409, 410)})
async def changes(
    call: Called,
    wanted: Wanted,
    branch: Branch = "main",
    cursor: str | None = None,
    start: str | None = None,
    page_token: str | None = None,
    limit: int | None = None,
    max_commits: int = DEFAULT_COMMITS,
) -> Response:
    """The changes of a branch, commit by commit, oldest first, from where the caller stands."""
    refuse_unknown(call.request, _FEED)
    if sum(item is not None for item in (cursor, start, page_token)) > 1:
        raise InvalidInput("`cursor`, `page_token` and `start` exclude one another")
    call.allow("read", branch)

    def work(graph: Graph) -> FeedPage:
        return graph.feed(
            branch=branch,
            start="now" if start is None else start,
            cursor=cursor,
            page_token=page_token,
            limit=limit,
            max_commits=max_commits,
            **wanted,
        )

    return await call.read(work, FeedPage.to_json)


def _show(recovery: Recovery) -> dict[str, Any]:
    return {
        "operation_id": recovery.id,
        "outcome": recovery.outcome,
        "graph_branch": recovery.branch,
        "operation": recovery.operation,
        "actor_id": recovery.actor,
        "graph_commit_id": recovery.commit_id,
        "reason": recovery.reason,
        "created_at": epoch_micros(recovery.created_at),
    }
