"""Context of a request to a graph: actor, graph, authorization, and execution on worker threads."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from urllib.parse import unquote

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Path
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import AfterValidator
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from omnigraph.api.hosting.graph_sources import check_graph_id
from omnigraph.budget.deadline import check_deadline, current_deadline
from omnigraph.budget.query_budget import QueryLimits
from omnigraph.errors import Cancelled, NotFound, PermissionDenied, ResourceLimit
from omnigraph.policy.gate import Access
from omnigraph.protocol.codec import EXACT, encode
from omnigraph.server.hosted_graphs import HostedGraph, ServerResources
from omnigraph.server.http.connections import Disconnection
from omnigraph.server.http.direct_routes import Handler, call_directly
from omnigraph.server.http.error_responses import HttpError
from omnigraph.server.http.origins import check_local
from omnigraph.server.http.request_body import (
    BATCH_BYTES,
    BATCH_RESOURCE,
    BODY_BYTES,
    BODY_RESOURCE,
    LimitedBodyRequest,
)
from omnigraph.server.running_queries import RunningQueries, RunningQuery

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.server.http.admission import Admission
    from omnigraph.server.http.rate_limits import RateLimiter
    from omnigraph.server.http.streaming import StreamPool

T = TypeVar("T")

_BATCH_ROUTES = ("/load", "/ingest")
# The actions that the routes with a body need, by operation; one of them is enough.
_ACTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("query", "read", "explain", "lint", "planSchema"), ("read",)),
    **dict.fromkeys(("mutate", "mutate_if_graph_commit", "change", "load", "ingest"), ("change",)),
    **dict.fromkeys(("optimize", "revertCommit"), ("change",)),
    **dict.fromkeys(("export", "exportFiles", "captureChangeBaseline"), ("export",)),
    **dict.fromkeys(("invoke_query", "invoke_query_if_graph_commit"), ("invoke_query",)),
    **dict.fromkeys(("setSettings", "verify"), ("admin",)),
    **dict.fromkeys(("cleanup", "repair"), ("admin", "change")),
    **dict.fromkeys(("createBranch", "createTag"), ("branch_create",)),
    "mergeBranches": ("branch_merge",),
    "applySchema": ("schema_apply",),
}
TextKind = Literal["query", "mutation", "schema"]
_SMALLER_TEXT: Mapping[TextKind, str] = {
    "query": "pass long lists and texts as parameters",
    "mutation": "pass values as parameters, split the mutation, or load the rows",
    "schema": "apply the schema in several migrations, or shorten descriptions",
}
QUERY_NOT_FOUND = "stored query not found"
_ZERO_QUALITY = re.compile(r"q\s*=\s*0(\.0*)?")


def decode_segment(text: str) -> str:
    """Return a percent-decoded path segment: ``feature%2Fx`` is one name."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise ValueError("percent-encoded text is not valid UTF-8") from error


# Paths are matched before they are decoded, so an encoded slash stays within its segment.
Segment = Annotated[str, AfterValidator(decode_segment)]


def accepts(request: Request, media_type: str) -> bool:
    """Return whether the `Accept` headers name a media type. Wildcards such as ``*/*`` do not count."""
    for item in ",".join(request.headers.getlist("accept")).split(","):
        accepted, *parameters = (part.strip().lower() for part in item.split(";"))
        if accepted == media_type:
            return not any(_ZERO_QUALITY.fullmatch(parameter) for parameter in parameters)
    return False


@dataclass(frozen=True)
class RequestContext:
    """A request to a graph by an authenticated actor.

    A route authorizes what the request names, before it reads the body and before the limits of the actor apply.
    The graph handle does not check the policy for that again. It authorizes what it has to look up, such as the
    branch of a commit.
    """

    request: Request
    actor: str | None
    hosted: HostedGraph
    admission: Admission
    running: RunningQuery
    _granted: set[Access] = field(default_factory=set, repr=False)

    @property
    def graph(self) -> Graph:
        """A handle of the graph that acts for the caller."""
        return self.hosted.graph.authorized_view(self.actor, frozenset(self._granted), self.hosted.gate)

    def authorize(self, action: str, branch: str | None = None, target: str | None = None) -> None:
        """Raise `PermissionDenied` unless the policy allows the action."""
        if self.hosted.gate is not None:
            access = Access(action, branch, target)
            self.hosted.gate.check(self.actor, access)
            self._granted.add(access)

    @property
    def uri(self) -> str:
        """The address of the graph on this server. The address of its storage is not for every caller."""
        return f"/graphs/{self.hosted.id}"

    @property
    def exact(self) -> bool:
        """Whether the client requests the exact encoding of results and errors."""
        return accepts(self.request, EXACT)

    @property
    def body_size(self) -> int:
        """The declared size of the body; 0 if it is not declared."""
        declared = self.request.headers.get("content-length", "")
        return int(declared) if declared.isdigit() else 0

    @property
    def write_threads(self) -> CapacityLimiter:
        """The threads that execute writes."""
        limiter: CapacityLimiter = self.request.app.state.write_threads
        return limiter

    def check_text(self, kind: TextKind, text: str) -> None:
        """Raise `ResourceLimit` if a text is too large to be parsed."""
        limit: int = getattr(self.request.app.state.resources.limits, f"{kind}_text_bytes")
        # UTF-8 has at most four bytes for a character, so that most texts need not be encoded.
        if 4 * len(text) > limit and (size := len(text.encode("utf-8", "surrogatepass"))) > limit:
            raise ResourceLimit(
                f"the {kind} text has {size:,} bytes, the limit is {limit:,}",
                details={"resource": f"{kind}_text_bytes", "limit": limit, "actual": size},
                hint=_SMALLER_TEXT[kind],
            )

    def limited(self, text: str, requested: QueryLimits, explain: Callable[[], str]) -> Any:
        """Return a context in which a query runs with the limits of the server and of the request.

        Raises `ResourceLimit` if the text is too large. `explain` returns the plan for the slow-query log.
        """
        self.check_text("query", text)
        queries: RunningQueries = self.request.app.state.queries
        return queries.limit(self.running, text, requested, explain)

    async def read(
        self,
        work: Callable[[Graph], T],
        to_body: Callable[[T], Any] | None = None,
        to_exact: Callable[[T], Any] = encode,
    ) -> Response:
        """Run `work` on a worker thread and return its result as a response.

        `to_body` makes the JSON body of the result, and `to_exact` the body in the exact encoding. Without
        `to_body` the result is the body of both.
        """
        async with self.admission.readers(self.actor):
            return await self._run(work, to_body, to_exact)

    async def write(
        self,
        work: Callable[[Graph], T],
        to_body: Callable[[T], Any] | None = None,
        to_exact: Callable[[T], Any] = encode,
    ) -> Response:
        """Like `read`, for work that changes the graph. The limits of the actor apply."""
        with self.admission.admit(self.actor, self.body_size):
            return await self.write_admitted(work, to_body, to_exact)

    async def write_admitted(
        self,
        work: Callable[[Graph], T],
        to_body: Callable[[T], Any] | None = None,
        to_exact: Callable[[T], Any] = encode,
    ) -> Response:
        """Like `write`, for a request that is already admitted.

        Writes have threads of their own, because writes to one branch wait for each other and reads must not.
        """
        return await self._run(work, to_body, to_exact, self.write_threads)

    async def stream(self, produce: Callable[[Graph, IO[Any]], object], media_type: str) -> Response:
        """Return a response that streams what `produce` writes to a file, on a thread for streams."""
        streams: StreamPool = self.request.app.state.streams
        graph = self.graph
        return await streams.start(lambda file: self._execute(lambda: produce(graph, file)), media_type)

    def _execute(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except PermissionDenied as error:
            # The branches that the request names were authorized before. This denial is about another branch, such
            # as that of a commit, and its message must not name it. An actor without access to one branch fails the
            # check without a branch too, so this raises.
            self.authorize(error.details["action"])
            raise

    async def _run(
        self,
        work: Callable[[Graph], T],
        to_body: Callable[[T], Any] | None,
        to_exact: Callable[[T], Any],
        threads: CapacityLimiter | None = None,
    ) -> Response:
        graph, media_type = self.graph, EXACT if self.exact else JSONResponse.media_type

        def respond() -> Response:
            self.running.is_waiting = False
            check_deadline()
            result = self._execute(lambda: work(graph))
            if isinstance(result, Response):
                return result
            # Bodies are rendered here too, because large ones would delay the event loop.
            if to_body is None:
                return JSONResponse(result, media_type=media_type)
            return JSONResponse(to_exact(result) if self.exact else to_body(result), media_type=media_type)

        with self._cancelling_on_disconnect() as disconnection:
            try:
                return await to_thread.run_sync(respond, limiter=threads)
            except Cancelled as error:
                if disconnection.has_happened:
                    raise ClientDisconnect from error
                raise

    @contextmanager
    def _cancelling_on_disconnect(self) -> Iterator[Disconnection]:
        """Cancel the work when the client disconnects. A write that has begun is completed."""
        # Only connections of our own server tell it, and a task for each request would take longer.
        disconnection: Disconnection = self.request.scope.get("disconnection") or Disconnection()
        disconnection.on_happen = self._cancel
        if disconnection.has_happened:
            self._cancel()
        try:
            yield disconnection
        finally:
            disconnection.on_happen = None

    def _cancel(self) -> None:
        if self.running.deadline is not None:
            self.running.deadline.cancel("the client disconnected")


class GraphRoute(APIRoute):
    """A graph route. It authenticates the caller and looks up the graph before it reads the body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request."""
        handle: Handler = super().get_route_handler()
        direct = call_directly(self.dependant, handle)
        handle = handle if direct is None else direct
        is_batch = self.path.endswith(_BATCH_ROUTES)
        limit, resource = (BATCH_BYTES, BATCH_RESOURCE) if is_batch else (BODY_BYTES, BODY_RESOURCE)

        async def handle_request(request: Request) -> Response:
            context = request.state.context = _create_context(request, self.operation_id or self.name)
            queries: RunningQueries = request.app.state.queries
            with context.admission.hold(context.actor), queries.track(context.running):
                if self.body_field is None:
                    return await handle(request)
                limited = LimitedBodyRequest(request.scope, request.receive, limit, resource)
                if not _may_act(context) and not await limited.arrives_at_once():
                    _deny(context)
                return await handle(limited)

        self.direct_handler: Handler | None = None if direct is None else handle_request
        return handle_request


def authenticate(request: Request, *, is_limited: bool = True) -> str | None:
    """Return the actor that the bearer token identifies; None on an unauthenticated server.

    If `is_limited` is true, the request counts towards the rate limit of the actor.
    """
    actor = _identify(request)
    limiter: RateLimiter | None = request.app.state.rate_limiter
    if is_limited and limiter is not None:
        limiter.check(actor)
    return actor


def _identify(request: Request) -> str | None:
    resources: ServerResources = request.app.state.resources
    if request.app.state.is_local:
        check_local(request.headers)
    if not resources.tokens:
        return None
    actor = resources.tokens.authenticate(request.headers.getlist("authorization"))
    request.scope["actor"] = actor
    return actor


def _may_act(context: RequestContext) -> bool:
    """Return whether the actor may perform the action of the route on any branch.

    The body of a request that no rule allows is not waited for. One that arrives at once is still read, because the
    error can then name the branch.
    """
    actions = _ACTIONS.get(context.running.operation, ())
    gate = context.hosted.gate
    return gate is None or not actions or any(gate.may_allow(context.actor, action) for action in actions)


def _deny(context: RequestContext) -> None:
    """Raise the error of an actor that may not perform the action of the route on any branch."""
    action = _ACTIONS[context.running.operation][-1]
    try:
        context.authorize(action)
    except PermissionDenied as error:
        if action == "invoke_query":
            raise NotFound(QUERY_NOT_FOUND) from error
        raise


def _create_context(request: Request, operation: str) -> RequestContext:
    actor = authenticate(request)
    resources: ServerResources = request.app.state.resources
    try:
        graph_id = check_graph_id(decode_segment(request.path_params["graph_id"]))
    except ValueError as error:
        raise HttpError(400, "the graph id is not valid UTF-8") from error
    graph = resources.graphs.get(graph_id)
    if graph is None:
        raise NotFound(f"graph '{graph_id}' not found", details={"graph_id": graph_id})
    request.scope["graph_id"] = graph_id
    running = RunningQuery(
        graph_id, actor, request.scope["request_id"], operation.removeprefix("cluster_"), current_deadline()
    )
    return RequestContext(request, actor, graph, request.app.state.admission, running)


# The pattern is documentation only. FastAPI would apply it before the id is percent-decoded.
GraphId = Annotated[str, Path(alias="graph_id", json_schema_extra={"pattern": "^[a-zA-Z0-9-]{1,64}$"})]


# Async, because FastAPI runs other dependencies on a worker thread.
async def _get_context(request: Request, _graph_id: GraphId) -> RequestContext:
    context: RequestContext = request.state.context
    return context


Context = Annotated[RequestContext, Depends(_get_context)]
