"""Routes that read: queries, entities, snapshots, the schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Query
from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.errors import InvalidInput
from omnigraph.protocol import responses
from omnigraph.protocol.codec import ARROW, EXACT, encode_snapshot, write_result
from omnigraph.protocol.requests import Branch, Moment, QueryRequest, ReadRequest, StateRequest
from omnigraph.protocol.result_bodies import snapshot_body
from omnigraph.server.http.request_context import Call, Called, accepts
from omnigraph.server.http.routing import EXACTLY, SENT, Responses, graph_router, refusals, tell_successor
from omnigraph.server.routes.query_choice import choose_query

router = graph_router("reads")

ROWS: Responses = {
    200: {
        "description": "The rows.",
        "content": {ARROW: {"schema": {"type": "string", "format": "binary"}}, EXACT: {}},
    }
}


@dataclass(frozen=True, slots=True)
class State:
    """The state that a request names: the newest of a branch, that of a commit, or of a branch at a moment."""

    branch: str | None = None
    snapshot: str | None = None
    at: datetime | None = None

    def __post_init__(self) -> None:
        for name, given in (("branch", self.branch), ("at", self.at)):
            if self.snapshot is not None and given is not None:
                raise InvalidInput(f"{name} and snapshot exclude each other")

    @classmethod
    def of(cls, body: StateRequest) -> State:
        """The state that a body names."""
        return cls(body.branch, body.snapshot, body.at)

    @property
    def place(self) -> dict[str, Any]:
        """The same as calls of the library take it."""
        return {"branch": self.branch or "main", "at": self.at if self.snapshot is None else self.snapshot}

    def check(self, call: Call) -> State:
        """Itself when it may be read; about a commit the handle decides, which has to look it up first."""
        if self.snapshot is None:
            call.allow("read", self.branch or "main")
        return self


async def _named_state(
    branch: Branch | None = None, snapshot: str | None = None, at: Moment | None = None
) -> State:
    return State(branch, snapshot, at)


NamedState: TypeAlias = Annotated[State, Depends(_named_state)]
TypeQuery: TypeAlias = Annotated[str, Query(alias="type")]
IdQuery: TypeAlias = Annotated[str, Query(alias="id")]


@router.get("/snapshot", response_model=responses.Snapshot, responses=EXACTLY)
async def snapshot(call: Called, named: NamedState) -> Response:
    """Each type of a state with the version of its data and its number of entities."""
    named.check(call)
    return await call.read(
        lambda graph: graph.snapshot(**named.place),
        lambda found: snapshot_body(found, found.branch if named.snapshot is None else found.commit.branch),
        encode_snapshot,
    )


@router.post("/query", response_model=responses.Read, responses={**ROWS, **refusals(*SENT)})
async def query(call: Called, body: QueryRequest) -> Response:
    """Run a read on one consistent state. Who accepts Arrow gets a stream of it."""
    return await _query(call, body, body.query, body.name)


@router.post("/read", response_model=responses.Read, responses={**ROWS, **refusals(*SENT)}, deprecated=True)
async def read(call: Called, body: ReadRequest) -> Response:
    """What `/query` used to be."""
    found = await _query(call, body, body.query_source, body.query_name, tell_commit=False)
    return tell_successor(call.request, found)


@router.post("/explain", response_model=responses.Explained, responses={**EXACTLY, **refusals(*SENT)})
async def explain(call: Called, body: QueryRequest) -> Response:
    """How a read would be run."""
    named = State.of(body).check(call)

    def work(graph: Graph) -> dict[str, Any]:
        name = chosen_name(call, body.query, body.name, mutation=False)
        return {"plan": graph.explain(body.query, body.params, name=name, **named.place)}

    return await call.read(work)


@router.get("/entity", response_model=responses.Entity, responses=EXACTLY)
async def entity(call: Called, type_name: TypeQuery, id_: IdQuery, named: NamedState) -> Response:
    """One node or edge by its id, or null."""
    named.check(call)
    return await call.read(lambda graph: {"entity": graph.get(type_name, id_, **named.place)})


@router.get("/schema", response_model=responses.Schema, responses=EXACTLY)
async def schema(call: Called, named: NamedState) -> Response:
    """The text of the schema that was accepted."""
    call.allow("read")
    return await call.read(lambda graph: {"schema_source": graph.schema.source(**named.place)})


async def _query(
    call: Call, body: QueryRequest | ReadRequest, text: str, name: str | None, *, tell_commit: bool = True
) -> Response:
    named = State.of(body).check(call)

    def work(graph: Graph) -> Response | dict[str, Any]:
        chosen = chosen_name(call, text, name, mutation=False)
        return run_read(call, graph, text, chosen, body.params, named, tell_commit=tell_commit)

    return await call.read(work)


def chosen_name(call: Call, text: str, name: str | None, *, mutation: bool) -> str | None:
    """The name of the query that is meant. Who wants exact answers gets the refusals of the library instead."""
    return name if call.exact else choose_query(text, name, mutation=mutation)


def check_state(call: Call, branch: str | None, commit: str | None) -> None:
    """Return when the state may be read that a request names by a branch or a commit, of which one decides."""
    State(branch, commit).check(call)


def run_read(
    call: Call,
    graph: Graph,
    text: str,
    name: str | None,
    params: Mapping[str, Any] | None,
    named: State,
    *,
    tell_commit: bool = True,
) -> Response | dict[str, Any]:
    """Run a read; the handle looks up which branch a commit belongs to, and whether that may be read."""
    # Starting Spark is for whoever has a process to spare.
    found = graph.query(text, params, name=name, engine="local", **named.place)
    if accepts(call.request, ARROW):
        return Response(write_result(found), media_type=ARROW)
    body = found.to_json()
    if not tell_commit:
        del body["graph_commit_id"]
    return body
