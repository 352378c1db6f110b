"""Routes of diffs between two commits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import IO, Annotated, Any, TypeAlias

from fastapi import Depends
from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.api.local.local_changes import LocalDiff
from omnigraph.api.results.changes import ChangeFilter, Diff, EntityChange
from omnigraph.errors import NotFound
from omnigraph.graph.snapshot import Snapshot
from omnigraph.protocol import responses
from omnigraph.protocol.change_responses import EntityChangeOutput
from omnigraph.protocol.codec import END, dump_json
from omnigraph.server.http.request_context import Context
from omnigraph.server.http.routing import (
    REPEATABLE,
    SUCCESS,
    NdjsonResponse,
    Responses,
    check_query_parameters,
    graph_router,
)
from omnigraph.server.routes.changes import ChangeFilterParameters
from omnigraph.server.routes.exports import NDJSON_UTF8

router = graph_router("diffs")

_STREAM: Responses = {200: {"description": "Changes, one JSON object per line.", "model": EntityChangeOutput}}
_ENDPOINTS = frozenset({"before", "after", "before_commit", "after_commit"})


@dataclass(frozen=True, slots=True)
class DiffEndpoints:
    """The two states of a diff, each a branch or a commit id.

    `before_commit` and `after_commit` are the commits that a client has resolved the names to. They are used if a
    branch has moved since.
    """

    before: str
    after: str
    before_commit: str | None = None
    after_commit: str | None = None

    def open(self, graph: Graph, change_filter: dict[str, Any]) -> Diff:
        """Return the diff if both states may be read. No rows are read yet."""
        wanted = ChangeFilter.of(**change_filter)
        before, _ = _resolve(graph, self.before, self.before_commit)
        after, branch = _resolve(graph, self.after, self.after_commit)
        wanted.check_types(
            table.name for snapshot in (before, after) for table in snapshot.catalog.tables.values()
        )
        return LocalDiff(before, after, wanted, branch)


async def _diff_endpoints(
    before: str, after: str, before_commit: str | None = None, after_commit: str | None = None
) -> DiffEndpoints:
    return DiffEndpoints(before, after, before_commit, after_commit)


DiffEndpointParameters: TypeAlias = Annotated[DiffEndpoints, Depends(_diff_endpoints)]


@router.get("/diff", operation_id="cluster_diff", response_class=NdjsonResponse, responses=_STREAM)
async def diff(
    context: Context, endpoints: DiffEndpointParameters, change_filter: ChangeFilterParameters
) -> Response:
    """Stream the changes between two states. A stream that breaks off is incomplete."""
    check_query_parameters(context.request, _ENDPOINTS | REPEATABLE)
    render = dump_json if context.exact else _render_json

    def produce(graph: Graph, file: IO[bytes]) -> None:
        for change in endpoints.open(graph, change_filter):
            file.write(render(change) + b"\n")
        if context.exact:
            file.write(END)

    return await context.stream(produce, NDJSON_UTF8)


@router.get(
    "/diff/stats",
    operation_id="cluster_getDiffStats",
    response_model=responses.DiffStatsOutput,
    responses=SUCCESS,
)
async def get_diff_stats(
    context: Context, endpoints: DiffEndpointParameters, change_filter: ChangeFilterParameters
) -> Response:
    """Count the changes between two states by type and operation."""
    check_query_parameters(context.request, _ENDPOINTS | REPEATABLE)

    def work(graph: Graph) -> dict[str, Any]:
        opened = endpoints.open(graph, change_filter)
        before, after = opened.commits
        return {"before": before, "after": after, "branch": opened.branch, "stats": opened.stats()}

    return await context.read(work)


def _render_json(change: EntityChange) -> bytes:
    return json.dumps(change.to_json(), ensure_ascii=False, separators=(",", ":")).encode()


def _resolve(graph: Graph, name: str, commit: str | None) -> tuple[Snapshot, str | None]:
    """Return the snapshot of a name if it may be read, and the branch if the name is one.

    With `commit`, return that commit if the name refers to another one now.
    """
    try:
        resolved = graph.diff(name, name)
    except NotFound:
        if commit is None:
            raise
    else:
        if commit in (None, resolved.after.commit_id):
            return resolved.after, resolved.branch
    return graph.snapshot(at=commit), None
