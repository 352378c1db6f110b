"""An unauthenticated server accepts local requests and rejects cross-site requests of a browser."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.server.running import ADD, Running, error_body, host, running
from tests.support.waiting import HANG

BODY = {"query": ADD, "params": {"n": "Cy"}}


@pytest.fixture(scope="module")
def open_server() -> Iterator[Running]:
    with running(host(), is_local=True) as server:
        yield server


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost.evil.example"},
        {"Host": "evil.example:8080"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "["},
        {"Host": ""},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/graphs/team/mutate"),
        ("GET", "/graphs/team/branches"),
        ("GET", "/graphs/team"),
        ("GET", "/metrics"),
    ],
)
def test_unauthenticated_server_rejects_cross_site_requests(
    open_server: Running, method: str, path: str, headers: dict[str, str]
) -> None:
    with open_server.client(prefix="") as client:
        before = client.get("/graphs/team/snapshot").json()
        body = BODY if method == "POST" else None
        found = client.request(method, path, json=body, headers=headers)
        assert error_body(found, 403)["code"] == "forbidden"
        assert client.get("/graphs/team/snapshot").json() == before


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost"},
        {"Host": "LocalHost:99"},
        {"Host": "[::1]:8080"},
        {"Origin": "http://localhost:3000"},
    ],
    ids=str,
)
def test_unauthenticated_server_accepts_loopback_names(open_server: Running, headers: dict[str, str]) -> None:
    with open_server.client() as client:
        assert client.get("/branches", headers=headers).json() == {"branches": ["main"]}


def test_forced_server_accepts_any_host(open_server: Running) -> None:
    with running(open_server.hosted) as forced:
        headers = {"Host": "graph.example.org", "Origin": "https://graph.example.org"}
        found = httpx.get(f"{forced.url}/graphs/team/branches", headers=headers, timeout=HANG, verify=False)
        assert found.json() == {"branches": ["main"]}
