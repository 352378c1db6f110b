"""`serve --mcp`: streamable HTTP, with the client of the MCP SDK. The token and the policy of the caller decide."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.cli.running import serving
from tests.mcp.test_mcp_stdio import ADD, AGE, NAMES, READS, WRITES, call, fail
from tests.server.running import POLICY, STORED, TOKENS, Running, host, running
from tests.support.waiting import HANG

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("queries")
    (folder / "people.gq").write_text(STORED)
    with running(host(POLICY, tokens=TOKENS, queries=folder), mcp=True) as found:
        yield found


def talk(url: str, session: Callable[[Client], Awaitable[None]], token: str | None = None) -> None:
    """Run a session of a client of the SDK with an endpoint."""

    async def run() -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=HANG) as http,
            Client(streamable_http_client(url, http_client=http), read_timeout_seconds=HANG) as client,
        ):
            await session(client)

    asyncio.run(run())


def test_agent_changes_a_branch_reviews_and_merges_it_with_conflicts_as_data(team: Running) -> None:
    async def session(client: Client) -> None:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools >= READS | WRITES | {"everybody", "hire"}
        assert {str(item.uri) for item in (await client.list_resources()).resources} >= {"omnigraph://schema"}
        assert "change_with_review" in {item.name for item in (await client.list_prompts()).prompts}
        await call(client, "create_branch", name="review")
        added = await call(client, "mutate", query=ADD, params={"n": "Cid", "a": 7}, branch="review")
        assert added["actor_id"] == "ann"
        assert (await call(client, "diff_branches", before="main", after="review"))["changes"][0][
            "op"
        ] == "insert"
        page = await call(client, "query", query=NAMES, branch="review", limit=2)
        assert [row["name"] for row in page["rows"]] == ["Ann", "Bob"]
        rest = await call(client, "query", query=NAMES, **page["next_page"])
        assert [row["name"] for row in rest["rows"]] == ["Cid"]
        birthday = AGE.replace("Ana", "Ann")
        await call(client, "mutate", query=birthday, params={"a": 1}, branch="review")
        await call(client, "mutate", query=birthday, params={"a": 2}, branch="main")
        text, error = await fail(client, "merge_branch", source="review", into="main")
        assert text.startswith("merge_conflicts: ")
        assert [(item["ours"], item["theirs"]) for item in error["conflicts"]] == [(2, 1)]
        await call(client, "merge_branch", source="review", into="main", resolve="theirs")

    talk(f"{team.url}/graphs/team/mcp", session, "token-of-ann")


def test_token_of_the_caller_decides_what_its_tools_may_do(team: Running) -> None:
    async def session(client: Client) -> None:
        await call(client, "query", query=NAMES, branch="main")
        text, _ = await fail(client, "mutate", query=ADD, params={"n": "Dov"}, branch="main")
        assert text.startswith("permission_denied: ")

    talk(f"{team.url}/graphs/team/mcp", session, "token-of-bob")
    for headers, status in (({}, 401), ({"Authorization": "Bearer wrong"}, 401)):
        refused = httpx.post(f"{team.url}/graphs/team/mcp", json=INITIALIZE, headers={**ACCEPT, **headers})
        assert refused.status_code == status, refused.text


def test_read_only_endpoint_has_no_tools_that_write(team: Running) -> None:
    async def session(client: Client) -> None:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools >= READS
        assert not tools & (WRITES | {"hire"})

    talk(f"{team.url}/graphs/team/mcp?read_only=true", session, "token-of-ann")


def test_page_of_another_origin_is_refused(team: Running) -> None:
    headers = {**ACCEPT, "Authorization": "Bearer token-of-ann"}
    url = f"{team.url}/graphs/team/mcp"
    refused = httpx.post(url, json=INITIALIZE, headers={**headers, "Origin": "https://evil.example"})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    accepted = httpx.post(url, json=INITIALIZE, headers={**headers, "Origin": team.url})
    assert accepted.json()["result"]["serverInfo"]["name"] == "omnigraph"
    assert httpx.get(url, headers=headers).status_code == 405


def test_server_without_the_option_has_no_endpoint() -> None:
    with running(host()) as found:
        refused = httpx.post(f"{found.url}/graphs/team/mcp", json=INITIALIZE, headers=ACCEPT)
    assert refused.status_code == 404
    assert "start it with --mcp" in refused.text


def test_server_of_several_processes_serves_agents(tmp_path: Path) -> None:
    import omnigraph as og

    og.init(str(tmp_path / "g.omni"), "node Person { name: String @key  age: I32? }", durability="os").close()

    async def session(client: Client) -> None:
        await call(client, "mutate", query=ADD, params={"n": "Ann"}, branch="main")
        page = await call(client, "query", query=NAMES, branch="main")
        assert [row["name"] for row in page["rows"]] == ["Ann"]

    with serving(str(tmp_path / "g.omni"), "--unauthenticated", "--mcp", "--workers", "2") as address:
        talk(f"http://{address}/graphs/g/mcp", session)
