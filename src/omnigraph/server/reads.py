"""Routes that read: queries, snapshots, the schema."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from omnigraph.api.bodies import snapshot_body
from omnigraph.api.graph import Graph
from omnigraph.errors import InvalidInput
from omnigraph.server import answers
from omnigraph.server.bodies import Branch, QueryRequest, ReadRequest
from omnigraph.server.requests import Call, Called
from omnigraph.server.routing import deprecated, graph_router
from omnigraph.server.stored_queries import choose_query

router = graph_router("reads")


@router.get("/snapshot", response_model=answers.Snapshot)
async def snapshot(call: Called, branch: Branch = "main") -> Response:
    """Each type of a branch with the version of its data and its number of entities."""
    call.allow("read", branch)
    return await call.read(lambda graph: snapshot_body(graph.snapshot(branch), branch))


@router.post("/query", response_model=answers.Read)
async def query(call: Called, body: QueryRequest) -> Response:
    """Run a read on one consistent state."""
    return await _query(call, body)


@router.post("/read", response_model=answers.Read, deprecated=True)
async def read(call: Called, body: ReadRequest) -> Response:
    """What `/query` used to be."""
    request = QueryRequest(query=body.query_source, name=body.query_name, **_rest(body))
    return deprecated(await _query(call, request, tell_commit=False), "query")


@router.get("/schema", response_model=answers.Schema)
async def schema(call: Called) -> Response:
    """The text of the schema that was accepted on main."""
    call.allow("read")
    return await call.read(lambda graph: {"schema_source": graph.schema.source()})


async def _query(call: Call, body: QueryRequest, *, tell_commit: bool = True) -> Response:
    check_state(call, body.branch, body.snapshot)

    def work(graph: Graph) -> dict[str, Any]:
        name = choose_query(body.query, body.name, mutation=False)
        return run_read(graph, body.query, name, body, tell_commit=tell_commit)

    return await call.read(work)


def check_state(call: Call, branch: str | None, commit: str | None) -> None:
    """Return when the state may be read that a request names by a branch or a commit, of which one decides."""
    if branch is not None and commit is not None:
        raise InvalidInput("branch and snapshot exclude each other")
    if commit is None:
        call.allow("read", branch or "main")


def run_read(graph: Graph, text: str, name: str, body: Any, *, tell_commit: bool = True) -> dict[str, Any]:
    """Run a read; the handle looks up which branch a commit belongs to, and whether that may be read."""
    found = graph.query(
        text, body.params, name=name, branch=body.branch or "main", at=body.snapshot
    ).to_json()
    if not tell_commit:
        del found["graph_commit_id"]
    return found


def _rest(body: ReadRequest) -> dict[str, Any]:
    return {"params": body.params, "branch": body.branch, "snapshot": body.snapshot}
