"""Routes of tags."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.api.interface.tags import Tag
from omnigraph.lang.temporal import parse_moment
from omnigraph.protocol import responses
from omnigraph.protocol.codec import encode
from omnigraph.protocol.requests import TagCreateRequest
from omnigraph.protocol.result_bodies import tag_body
from omnigraph.server.http.request_context import Context, Segment
from omnigraph.server.http.routing import (
    SUCCESS,
    WRITE_ERRORS,
    error_responses,
    graph_router,
    reject_if_commit_header,
)

router = graph_router("tags")

# Larger than any number of tags.
_MAX_LIMIT = 2**53


@router.get(
    "/tags",
    operation_id="cluster_listTags",
    response_model=responses.TagListOutput,
    response_model_exclude_none=True,
    responses=SUCCESS,
)
async def list_tags(
    context: Context,
    prefix: Annotated[str, Query(description="Only names that begin with this text.")] = "",
    after: Annotated[str | None, Query(description="Only names that come after this one.")] = None,
    limit: Annotated[int | None, Query(ge=0, le=_MAX_LIMIT, description="Maximum number of tags.")] = None,
) -> Response:
    """List tags, sorted by name. With `limit`, `next_after` is the value of `after` for the next page."""
    context.authorize("read")

    # One tag more shows whether there is another page.
    count = None if limit is None else limit + 1

    def to_body(found: list[Tag]) -> dict[str, Any]:
        tags = found[:limit]
        more = {"next_after": tags[-1].name} if tags and len(found) > len(tags) else {}
        return {"tags": [tag_body(tag) for tag in tags], **more}

    return await context.read(
        lambda graph: graph.tags.list(prefix=prefix, after=after, limit=count),
        to_body,
        lambda found: encode(found[:limit]),
    )


@router.post(
    "/tags",
    operation_id="cluster_createTag",
    response_model=responses.TagOutput,
    responses={**SUCCESS, **error_responses(*WRITE_ERRORS)},
)
async def create_tag(context: Context, body: TagCreateRequest) -> Response:
    """Give a state a name: the head of a branch, a commit, or a time on `main`. A tag is never moved."""
    reject_if_commit_header(context.request)
    context.authorize("branch_create", target=body.name)
    moment = parse_moment(body.at)
    at = body.at if moment is None else moment
    return await context.write(lambda graph: graph.tags.create(body.name, at, message=body.message), tag_body)


@router.delete(
    "/tags/{tag}",
    operation_id="cluster_deleteTag",
    response_model=responses.TagDeleteOutput,
    responses={**SUCCESS, **error_responses(409, 429)},
)
async def delete_tag(context: Context, tag: Segment) -> Response:
    """Delete a tag. Garbage collection may then remove the data of its commit."""
    reject_if_commit_header(context.request)
    name = tag.strip()
    context.authorize("branch_delete", target=name)

    def work(graph: Graph) -> dict[str, Any]:
        graph.tags.delete(name)
        return {"name": name, "actor_id": context.actor}

    return await context.write(work)
