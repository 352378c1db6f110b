"""`omnigraph mcp` as a process, with the client of the MCP SDK over stdio."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters

import omnigraph as og
from omnigraph.mcp.pages import MAX_BYTES
from tests.server.running import POLICY, STORED, TOKENS, host, running
from tests.support.waiting import HANG

SCHEMA = "node Person { name: String @key  age: I32?  note: String? }\nedge Knows: Person -> Person\n"
NAMES = "query names() { match { $p: Person } return { $p.name as name } order { name asc } }"
ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
AGE = 'query birthday($a: I32) { update Person set { age: $a } where name = "Ana" }'
PROGRAM = "import sys\nfrom omnigraph_command import main\nsys.argv[0] = 'omnigraph'\nmain()"
READS = {"query", "get_schema", "list_branches", "list_commits", "diff_branches"}
WRITES = {"mutate", "load_records", "create_branch", "merge_branch"}


def talk(session: Callable[[Client], Awaitable[None]], *arguments: str, token: str | None = None) -> None:
    """Start `omnigraph mcp` with arguments and run a session of a client with it."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {"PYTHONPATH": path, "OMNIGRAPH_UPKEEP": "off"}
    if token is not None:
        environment["OMNIGRAPH_BEARER_TOKEN"] = token
    command = StdioServerParameters(
        command=sys.executable, args=["-c", PROGRAM, "mcp", *arguments], env=environment
    )

    async def run() -> None:
        async with Client(command, read_timeout_seconds=HANG) as client:
            await session(client)

    asyncio.run(run())


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Return the structured result of a tool that must succeed."""
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    return found.structured_content


async def fail(client: Client, tool: str, **arguments: Any) -> tuple[str, Any]:
    """Return the text and the structured error of a tool that must fail."""
    found = await client.call_tool(tool, arguments)
    assert found.is_error
    return getattr(found.content[0], "text"), found.structured_content["error"]  # noqa: B009 - a union


@pytest.fixture
def graph(tmp_path: Path) -> str:
    place = tmp_path / "team.omni"
    with og.init(place, SCHEMA) as g:
        g.load({"Person": [{"name": "Ana", "age": 30}, {"name": "Bo", "age": 25}]})
    return str(place)


def test_mcp_change_on_branch_is_reviewed_and_conflict_is_resolved(graph: str) -> None:
    async def session(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == READS | WRITES
        assert "node Person" in (await call(client, "get_schema"))["schema_source"]

        await call(client, "create_branch", name="review")
        await call(client, "mutate", query=ADD, params={"n": "Cy"}, branch="review", message="add Cy")
        record = '{"edge": "Knows", "from": "Cy", "to": "Ana"}'
        assert (await call(client, "load_records", records=record, branch="review"))["total_entities"] == 1
        assert len((await call(client, "query", query=NAMES))["rows"]) == 2
        assert len((await call(client, "query", query=NAMES, branch="review"))["rows"]) == 3
        diff = await call(client, "diff_branches", after="review", limit=1)
        assert [change["id"] for change in diff["changes"]] == ["Cy"]
        rest = await call(client, "diff_branches", **diff["next_page"])
        assert [change["type"]["name"] for change in rest["changes"]] == ["Knows"]
        assert (await call(client, "list_commits", branch="review"))["commits"][1]["message"] == "add Cy"

        await call(client, "mutate", query=AGE, params={"a": 31}, branch="main")
        await call(client, "mutate", query=AGE, params={"a": 32}, branch="review")
        text, error = await fail(client, "merge_branch", source="review")
        assert text.startswith("merge_conflicts: ")
        (conflict,) = error["conflicts"]
        assert (conflict["base"], conflict["ours"], conflict["theirs"]) == (30, 31, 32)
        merged = await call(client, "merge_branch", source="review", resolve={conflict["id"]: "theirs"})
        assert merged["outcome"] == "merged"

        schema = await client.read_resource("omnigraph://schema")
        assert "edge Knows" in getattr(schema.contents[0], "text")  # noqa: B009 - a union
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == [
            "change_with_review",
            "resolve_merge_conflicts",
        ]
        values = {"task": "add {braces}", "branch": "b"}
        prompt = await client.get_prompt("change_with_review", values)
        assert "add {braces}" in getattr(prompt.messages[0].content, "text")  # noqa: B009 - a union

    talk(session, graph, "--as", "agent")
    with og.open(graph, "r") as g:
        age = g.get("Person", "Ana")
        assert age is not None
        assert age["age"] == 32
        assert g.commits()[0].actor == "agent"


def test_mcp_read_only_bounds_results_and_reports_errors(graph: str) -> None:
    with og.open(graph) as g:
        g.load({"Person": [{"name": f"p{n:02}", "note": "x" * (MAX_BYTES // 4)} for n in range(10)]})

    async def session(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == READS
        with pytest.raises(MCPError, match="no tool `mutate`"):
            await client.call_tool("mutate", {"query": ADD, "branch": "main"})

        page = await call(client, "query", query=NAMES, limit=5)
        rows = page["rows"]
        while "next_page" in page:
            page = await call(client, "query", query=NAMES, limit=5, **page["next_page"])
            rows += page["rows"]
        assert [row["name"] for row in rows] == ["Ana", "Bo", *(f"p{n:02}" for n in range(10))]

        notes = "query notes() { match { $p: Person } return { $p.note as note } order { $p.name desc } }"
        wide = await call(client, "query", query=notes)
        assert (len(wide["rows"]), wide["next_page"]["offset"], wide["row_count"]) == (3, 3, 12)

        text, error = await fail(client, "query", query=NAMES.replace("$p.name", "$p.nam"))
        assert "no property `nam`; did you mean `name`?" in text
        assert error["code"] == "invalid_input"
        text, _ = await fail(client, "query", query=NAMES, limit=0)
        assert text.startswith("invalid_input: invalid arguments of the tool `query`: `limit`:")
        text, error = await fail(client, "query", query=NAMES, branch="nope")
        assert error["code"] == "not_found"

    talk(session, graph, "--read-only")


def test_mcp_served_graph_has_tools_of_stored_queries_and_applies_policy(tmp_path: Path) -> None:
    (tmp_path / "people.gq").write_text(STORED, encoding="utf-8")

    async def session(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == READS | WRITES | {"everybody", "older", "hire"}
        assert tools["everybody"].description == "All people."
        assert (await call(client, "older", params={"a": 26}))["rows"] == [{"name": "Ann"}]
        text, _ = await fail(client, "older", params={"a": "x"})
        assert "`params.a`" in text
        _, error = await fail(client, "mutate", query=ADD, params={"n": "Cy"}, branch="main")
        assert error["code"] == "permission_denied"

    with running(host(POLICY, tokens=TOKENS, queries=tmp_path)) as server:
        talk(session, f"{server.url}/graphs/team", token=TOKENS["bob"])
