"""What a request is before its route sees it: who calls, which graph, and a body of bounded size."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import unquote

from anyio import CapacityLimiter, move_on_after, to_thread
from fastapi import Depends, Path
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import AfterValidator
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope

from omnigraph.api.hosting import check_graph_id
from omnigraph.errors import NotFound, PermissionDenied
from omnigraph.policy.gate import Access
from omnigraph.protocol.codec import EXACT, encode
from omnigraph.server.hosted_graphs import Hosted, HostedGraph
from omnigraph.server.http.error_responses import Refused, too_large
from omnigraph.server.http.origins import check_local

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.server.http.admission import Admission
    from omnigraph.server.http.streaming import Streams

T = TypeVar("T")

BODY_BYTES = 1 << 20
BATCH_BYTES = 32 << 20
BODY_RESOURCE, BATCH_RESOURCE = "request_body_bytes", "graph_batch_request_bytes"
BATCH_ROUTES = ("/load", "/ingest")
# Parsing as much takes about a millisecond, for which the loop can wait.
_PARSED_AT_ONCE = 64 << 10
# What a list or an object takes in memory, be it empty: many times as much as its text.
_VALUES_BYTES = 64
_PATIENCE = 5.0
_UNPACKED = "identity"
_UNWANTED = re.compile(r"q\s*=\s*0(\.0*)?")


def decode_segment(text: str) -> str:
    """A segment of a path as it was meant: ``feature%2Fx`` is one name."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise ValueError("what is percent-encoded is not valid text") from error


# Paths are matched before they are decoded, so that no name can reach into the next segment.
Segment = Annotated[str, AfterValidator(decode_segment)]


class BoundedRequest(Request):
    """A request with a JSON body that is refused when it is too large, or something else."""

    def __init__(self, scope: Scope, receive: Receive, limit: int, resource: str) -> None:
        super().__init__(scope, receive)
        self._limit = limit
        self._resource = resource
        self._whole: bytes | None = None

    async def body(self) -> bytes:
        """The bytes of the body."""
        if self._whole is None:
            chunks = []
            async for chunk in bounded(self, self._limit, self._resource):
                self.scope["place"].hold(len(chunk))
                chunks.append(chunk)
            self._whole = b"".join(chunks)
            kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
            if self._whole and kind != "application/json" and not kind.endswith("+json"):
                raise Refused(415, "Content-Type must be application/json")
        return self._whole

    async def json(self) -> Any:
        """The document; large ones are parsed aside, so that nobody waits for them."""
        data = await self.body()
        if len(data) < _PARSED_AT_ONCE:
            return parse_json(data)
        self.scope["place"].hold(_VALUES_BYTES * await run_in_threadpool(_count_values, data))
        return await run_in_threadpool(parse_json, data)


async def bounded(request: Request, limit: int, resource: str) -> AsyncIterator[bytes]:
    """The chunks of a body; a 413 as soon as it is known to be too large."""
    packed = request.headers.get("content-encoding", _UNPACKED).strip().lower()
    if packed != _UNPACKED:
        # How much is in it is known only to those who unpack it.
        raise Refused(415, f"Content-Encoding must be {_UNPACKED}", headers={"Accept-Encoding": _UNPACKED})
    stream = request.stream()
    declared = request.headers.get("content-length", "")
    actual = int(declared) if declared.isdigit() else 0
    size = 0
    while actual <= limit:
        chunk = await anext(stream, None)
        if chunk is None:
            return
        size += len(chunk)
        actual = max(actual, size)
        if size <= limit:
            yield chunk
    await _discard(stream, limit)
    raise too_large(resource, limit, actual)


async def _discard(stream: AsyncIterator[bytes], most: int) -> None:
    """Read some of what nobody wants: who is still sending would not see the answer before the end of it."""
    with move_on_after(_PATIENCE):
        async for chunk in stream:
            most -= len(chunk)
            if most < 0:
                return


def _count_values(data: bytes) -> int:
    """How many lists and objects a document may have; those that stand in its texts count too."""
    return data.count(b"[") + data.count(b"{")


def parse_json(data: bytes) -> Any:
    """A JSON document of which every text is one: escapes can spell half a character."""
    # Bytes would also be taken for UTF-16, in which the next line sees nothing.
    found = json.loads(data.decode())
    if b"\\u" in data:
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise Refused(400, "the body has a text that is not valid Unicode") from error
    return found


def accepts(request: Request, media_type: str) -> bool:
    """Whether a caller asks for a media type by its name; ``*/*`` asks for nothing in particular."""
    for item in ",".join(request.headers.getlist("accept")).split(","):
        kind, *params = (part.strip().lower() for part in item.split(";"))
        if kind == media_type:
            return not any(_UNWANTED.fullmatch(param) for param in params)
    return False


@dataclass(frozen=True)
class Call:
    """One request to a graph, by somebody who is known by now."""

    request: Request
    actor: str | None
    hosted: HostedGraph
    admission: Admission

    @property
    def graph(self) -> Graph:
        """The graph on behalf of the caller."""
        return self.hosted.graph.acting_as(self.actor)

    def allow(self, action: str, branch: str | None = None, target: str | None = None) -> None:
        """Return when the caller may do it, else `PermissionDenied`."""
        if self.hosted.gate is not None:
            self.hosted.gate.check(self.actor, Access(action, branch, target))

    @property
    def exact(self) -> bool:
        """Whether the caller wants what the library gives and raises, and can read it."""
        return accepts(self.request, EXACT)

    async def read(
        self,
        work: Callable[[Graph], T],
        plain: Callable[[T], Any] | None = None,
        exact: Callable[[T], Any] = encode,
    ) -> Response:
        """Do the work aside and answer with what it gives, which is rendered there too.

        `plain` makes the body that is for everybody, `exact` the one for callers who want the very object. Without
        `plain` the work gives a body, the same for all.
        """
        return await self._answer(work, plain, exact)

    async def write(
        self,
        work: Callable[[Graph], T],
        plain: Callable[[T], Any] | None = None,
        exact: Callable[[T], Any] = encode,
    ) -> Response:
        """The same for what changes the graph, of which each actor may have so much in flight."""
        with self.admission.admit(self.actor, self.size):
            return await self.write_admitted(work, plain, exact)

    async def write_admitted(
        self,
        work: Callable[[Graph], T],
        plain: Callable[[T], Any] | None = None,
        exact: Callable[[T], Any] = encode,
    ) -> Response:
        """The same for what has its place already. Writes wait for one another, and must not keep reads waiting."""
        return await self._answer(work, plain, exact, self.writers)

    @property
    def writers(self) -> CapacityLimiter:
        """The threads that write."""
        found: CapacityLimiter = self.request.app.state.writers
        return found

    async def stream(self, produce: Callable[[Graph, IO[Any]], object], media_type: str) -> Response:
        """Answer with what is written to a file, while it is written, by one of the threads for streams."""
        streams: Streams = self.request.app.state.streams
        graph = self.graph
        return await streams.begin(lambda file: self._do(lambda: produce(graph, file)), media_type)

    def _do(self, work: Callable[[], T]) -> T:
        """Do the work. What it finds that the caller may not use is refused in the words for what is not there."""
        try:
            return work()
        except PermissionDenied as error:
            # All that the request names has been asked about before. Whoever may do it on no branch in
            # particular may do it on all, so this refuses.
            self.allow(error.details["action"])
            raise

    async def _answer(
        self,
        work: Callable[[Graph], T],
        plain: Callable[[T], Any] | None,
        exact: Callable[[T], Any],
        threads: CapacityLimiter | None = None,
    ) -> Response:
        graph, media_type = self.graph, EXACT if self.exact else JSONResponse.media_type

        def respond() -> Response:
            found = self._do(lambda: work(graph))
            if isinstance(found, Response):
                return found
            body = found if plain is None else exact(found) if self.exact else plain(found)
            return JSONResponse(body, media_type=media_type)

        return await to_thread.run_sync(respond, limiter=threads)

    @property
    def size(self) -> int:
        """How large the body says it is."""
        declared = self.request.headers.get("content-length", "")
        return int(declared) if declared.isdigit() else 0


class GraphRoute(APIRoute):
    """A route below a graph: the token and the graph are looked at before anything that was sent."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler with what comes first."""
        handle = super().get_route_handler()
        batch = self.path.endswith(BATCH_ROUTES)
        limit, resource = (BATCH_BYTES, BATCH_RESOURCE) if batch else (BODY_BYTES, BODY_RESOURCE)

        async def handle_call(request: Request) -> Response:
            call = _identify(request)
            request.state.call = call
            if self.body_field is None:
                return await handle(request)
            return await handle(BoundedRequest(request.scope, request.receive, limit, resource))

        return handle_call


def authenticate(request: Request) -> str | None:
    """The actor of a request, by its token alone; None on an open server."""
    hosted: Hosted = request.app.state.hosted
    if request.app.state.is_local:
        check_local(request.headers)
    if not hosted.identities:
        return None
    actor = hosted.identities.authenticate(request.headers.getlist("authorization"))
    request.scope["actor"] = actor
    return actor


def _identify(request: Request) -> Call:
    actor = authenticate(request)
    hosted: Hosted = request.app.state.hosted
    try:
        id_ = check_graph_id(decode_segment(request.path_params["graph_id"]))
    except ValueError as error:
        raise Refused(400, "the graph id is not valid text") from error
    found = hosted.graphs.get(id_)
    if found is None:
        raise NotFound(f"graph '{id_}' not found", details={"graph_id": id_})
    request.scope["graph_id"] = id_
    return Call(request, actor, found, request.app.state.admission)


# Looked at before anything else, so this only tells: here it would be judged before it is decoded.
GraphId = Annotated[str, Path(alias="graph_id", json_schema_extra={"pattern": "^[a-zA-Z0-9-]{1,64}$"})]


# What is no coroutine, the framework runs on a thread of its own.
async def _call(request: Request, _graph_id: GraphId) -> Call:
    found: Call = request.state.call
    return found


Called = Annotated[Call, Depends(_call)]
