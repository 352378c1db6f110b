"""One typed tool for each stored query of a served graph."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from pydantic import Field, create_model

from omnigraph.api.graph import Graph
from omnigraph.api.results.receipts import Receipt
from omnigraph.client.graph import RemoteGraph
from omnigraph.client.stored_query_calls import QueryEntry, QueryParam
from omnigraph.errors import NotFound, PermissionDenied
from omnigraph.mcp.read_tools import At, Branch, read_at, result_page
from omnigraph.mcp.tool import Arguments, Json, Paged, Tool
from omnigraph.mcp.write_tools import WriteBranch
from omnigraph.protocol.result_bodies import change_body

# A 64-bit integer may be text, because JSON numbers of some clients have 53 bits. Dates and blobs are text.
_TYPES: Final[dict[str, Any]] = {
    "bool": bool,
    "int": int,
    "bigint": int | str,
    "float": float,
    "vector": list[float],
}


def stored_query_tools(graph: Graph, taken: Collection[str]) -> list[Tool[Any]]:
    """Return the tools of the stored queries that the caller may list, none for a graph in storage.

    A query whose name is in `taken` gets the prefix ``stored_``.
    """
    if not isinstance(graph, RemoteGraph):
        return []
    try:
        entries = graph.queries()
    except (NotFound, PermissionDenied):
        return []
    return [_tool(entry, taken) for entry in entries]


def _tool(entry: QueryEntry, taken: Collection[str]) -> Tool[Any]:
    kind = "mutation" if entry.mutation else "query"
    texts = [entry.description or f"Run the stored {kind} `{entry.name}`.", entry.instruction]
    name = f"stored_{entry.tool_name}" if entry.tool_name in taken else entry.tool_name
    params = _params_model(entry)
    required = any(not param.nullable for param in entry.params)
    field: Any = (params, Field(...) if required else Field(default_factory=params))

    def run(graph: Graph, given: Any) -> Json:
        return _invoke(graph, entry, given)

    arguments: type[Arguments]
    if entry.mutation:
        arguments = create_model(
            f"{entry.name}_arguments", __base__=Arguments, params=field, branch=(WriteBranch, ...)
        )
    else:
        arguments = create_model(
            f"{entry.name}_arguments",
            __base__=Paged,
            params=field,
            branch=(Branch, "main"),
            at=(At, None),
        )
    description = "\n\n".join(text for text in texts if text)
    return Tool(name, description, arguments, run, writes=entry.mutation, destructive=entry.mutation)


def _params_model(entry: QueryEntry) -> type[Arguments]:
    # A parameter can have a name that a field cannot have, so that the name is an alias.
    fields: dict[str, Any] = {
        f"param_{number}": (_type_of(param), Field(alias=param.name, **_default_of(param)))
        for number, param in enumerate(entry.params)
    }
    return create_model(f"{entry.name}_params", __base__=Arguments, **fields)


def _type_of(param: QueryParam) -> Any:
    if param.kind == "list":
        found: Any = list[_TYPES.get(param.item_kind or "string", str)]  # type: ignore[misc]
    else:
        found = _TYPES.get(param.kind, str)
    return found | None if param.nullable else found


def _default_of(param: QueryParam) -> dict[str, Any]:
    return {"default": None} if param.nullable else {}


def _invoke(graph: Graph, entry: QueryEntry, given: Any) -> Json:
    assert isinstance(graph, RemoteGraph)
    params = given.params.model_dump(by_alias=True, exclude_unset=True)
    if entry.mutation:
        found = graph.invoke(entry.name, params, branch=given.branch, expect_mutation=True)
        assert isinstance(found, Receipt)
        return change_body(found, given.branch, graph.actor)
    found = graph.invoke(entry.name, params, branch=given.branch, at=read_at(given.at), expect_mutation=False)
    assert not isinstance(found, Receipt)
    return result_page(found, given.offset, given.limit)
