"""The MCP server of one graph: handlers of the protocol, and its transports."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import mcp_types as types
from anyio import CapacityLimiter, to_thread
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from omnigraph.api.graph import Graph
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.mcp.pages import take_page
from omnigraph.mcp.prompts import PROMPTS, PromptText
from omnigraph.mcp.read_tools import READ_TOOLS
from omnigraph.mcp.resources import RESOURCES
from omnigraph.mcp.stored_query_tools import stored_query_tools
from omnigraph.mcp.tool import Json, Tool
from omnigraph.mcp.write_tools import WRITE_TOOLS
from omnigraph.protocol.codec import encode_error

# Calls that run at the same time. Each is a thread, and a handle can be shared between threads.
_THREADS: Final = 4

INSTRUCTIONS: Final = (
    "OmniGraph is a typed property graph with branches, commits and time travel. Read the schema before the first "
    "query. Results are pages: `next_page` has the arguments of the next one. "
)
READ_ONLY: Final = "This server is read-only."
REVIEW: Final = (
    "Make changes on a branch of your own: create_branch, mutate or load_records, review with diff_branches, then "
    "merge_branch. Write to main directly only if the user asks for it."
)

T = TypeVar("T")
Context = ServerRequestContext[Any]


@dataclass(frozen=True)
class GraphServer:
    """The tools and prompts of a graph, and the handlers of the requests of a client."""

    graph: Graph
    tools: Mapping[str, Tool[Any]]
    prompts: Mapping[str, PromptText]
    threads: CapacityLimiter

    async def list_tools(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe(tool) for tool in self.tools.values()])

    async def call_tool(self, _context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Run a tool. An error of OmniGraph is a result with `is_error`, which the model can read and react to."""
        tool = self.tools.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"no tool `{params.name}`")
        try:
            body = await self._run(partial(tool.call, self.graph, params.arguments or {}))
        except OmnigraphError as error:
            return error_result(error)
        return _result(json.dumps(body, ensure_ascii=False), body)

    async def list_resources(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        found = [
            types.Resource(
                uri=item.uri, name=item.name, description=item.description, mime_type=item.mime_type
            )
            for item in RESOURCES
        ]
        return types.ListResourcesResult(resources=found)

    async def read_resource(
        self, _context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        for item in RESOURCES:
            if item.uri == params.uri:
                text = await self._run_or_fail(partial(item.read, self.graph))
                content = types.TextResourceContents(uri=item.uri, mime_type=item.mime_type, text=text)
                return types.ReadResourceResult(contents=[content])
        raise MCPError(types.INVALID_PARAMS, f"no resource {params.uri}")

    async def list_prompts(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        found = [
            types.Prompt(
                name=prompt.name,
                description=prompt.description,
                arguments=[
                    types.PromptArgument(name=name, description=text, required=True)
                    for name, text in prompt.arguments.items()
                ],
            )
            for prompt in self.prompts.values()
        ]
        return types.ListPromptsResult(prompts=found)

    async def get_prompt(
        self, _context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        prompt = self.prompts.get(params.name)
        if prompt is None:
            raise MCPError(types.INVALID_PARAMS, f"no prompt `{params.name}`")
        text = await self._run_or_fail(partial(prompt.fill, params.arguments or {}))
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(description=prompt.description, messages=[message])

    async def _run(self, work: Callable[[], T]) -> T:
        # A cancelled call runs to its end, so that no write is left without an answer while it still commits.
        return await to_thread.run_sync(work, limiter=self.threads)

    async def _run_or_fail(self, work: Callable[[], T]) -> T:
        try:
            return await self._run(work)
        except OmnigraphError as error:
            code = types.INVALID_PARAMS if isinstance(error, NotFound) else types.INTERNAL_ERROR
            raise MCPError(code, f"{error.code}: {error}", encode_error(error)) from error


def serve_stdio(graph: Graph, *, read_only: bool = False) -> None:
    """Serve a graph on stdin and stdout until the client closes stdin.

    `read_only` leaves out the tools and prompts that write.
    """
    anyio.run(_serve_stdio, graph, read_only)


def find_tools(graph: Graph, *, read_only: bool) -> dict[str, Tool[Any]]:
    """Return the tools of a graph by name, with one for each stored query. Requests the stored queries."""
    fixed = (*READ_TOOLS, *WRITE_TOOLS)
    tools = [*fixed, *stored_query_tools(graph, {tool.name for tool in fixed})]
    return {tool.name: tool for tool in tools if not (read_only and tool.writes)}


def make_server(graph: Graph, tools: Mapping[str, Tool[Any]], *, read_only: bool) -> Server[Any]:
    """Return the MCP server of a graph, without a transport. Call it in the event loop."""
    from omnigraph import __version__

    handlers = GraphServer(
        graph,
        tools,
        {} if read_only else {prompt.name: prompt for prompt in PROMPTS},
        CapacityLimiter(_THREADS),
    )
    return Server(
        "omnigraph",
        version=__version__,
        instructions=INSTRUCTIONS + (READ_ONLY if read_only else REVIEW),
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )


def error_result(error: OmnigraphError) -> types.CallToolResult:
    """Return an error as the result of a tool: code and text for the model, and all details as data.

    Conflicts of a merge and violations of a load are bounded like any other page.
    """
    document = encode_error(error)
    for member in ("conflicts", "violations"):
        if member in document:
            page = take_page(document[member], 0, 100)
            document[member] = page.items
            if page.next_offset is not None:
                document[f"more_{member}"] = True
    text = f"{error.code}: {error}"
    # A client that does not use structured content still sees what is in conflict.
    if document.get("conflicts"):
        text += "\n" + json.dumps({"conflicts": document["conflicts"]}, ensure_ascii=False)
    return _result(text, {"error": document}, is_error=True)


def _result(text: str, body: Json, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=body, is_error=is_error
    )


def _describe(tool: Tool[Any]) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema(),
        annotations=types.ToolAnnotations(
            read_only_hint=not tool.writes, destructive_hint=tool.destructive, open_world_hint=False
        ),
    )


async def _serve_stdio(graph: Graph, read_only: bool) -> None:
    server = make_server(graph, find_tools(graph, read_only=read_only), read_only=read_only)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


async def serve_request(
    graph: Graph, scope: MutableMapping[str, Any], receive: Any, send: Any, *, read_only: bool, max_bytes: int
) -> None:
    """Answer one request of the streamable HTTP transport (ASGI), without a session.

    Every request stands for itself, so that any process of a server can answer it.
    """
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    tools = await to_thread.run_sync(partial(find_tools, graph, read_only=read_only))
    manager = StreamableHTTPSessionManager(
        make_server(graph, tools, read_only=read_only),
        json_response=True,
        stateless=True,
        max_request_body_size=max_bytes,
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)
