"""CORS over real sockets: preflight requests, headers of responses, and invalid origins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput
from omnigraph.server.http.cors import parse_origins
from tests.cli.running import run
from tests.server.running import ALL, POLICY, SCHEMA, TOKENS, Running, error_body, host, running
from tests.support.waiting import HANG

APP = "https://app.example.org"
FOREIGN = "https://evil.example.org"
ASK = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(host(POLICY, tokens=TOKENS), cors_origins=parse_origins([APP])) as found:
        yield found


def preflight(server: Running, origin: str) -> httpx.Response:
    return httpx.options(
        f"{server.url}/graphs/team/query", headers={"Origin": origin, **ASK}, timeout=HANG, verify=False
    )


def query(server: Running, origin: str | None, actor: str | None = "ann") -> httpx.Response:
    with server.client(actor) as client:
        return client.post(
            "/query", json={"query": ALL}, headers={} if origin is None else {"Origin": origin}
        )


def names(response: httpx.Response, header: str) -> set[str]:
    return {name.strip().lower() for name in response.headers.get(header, "").split(",")}


def test_preflight_of_listed_origin_is_allowed_without_token(server: Running) -> None:
    found = preflight(server, APP)
    assert (found.status_code, found.content) == (204, b"")
    assert found.headers["access-control-allow-origin"] == APP
    assert "post" in names(found, "access-control-allow-methods")
    assert {"authorization", "content-type", "omnigraph-if-graph-commit"} <= names(
        found, "access-control-allow-headers"
    )
    assert "origin" in names(found, "vary")
    assert "access-control-allow-credentials" not in found.headers


@pytest.mark.parametrize(
    "origin", [FOREIGN, "http://app.example.org", f"{APP}:8443", f"{APP}.evil.org", "null"]
)
def test_preflight_of_other_origin_is_refused(server: Running, origin: str) -> None:
    found = preflight(server, origin)
    assert "origin" in error_body(found, 403)["error"]
    assert "access-control-allow-origin" not in found.headers
    assert "origin" in names(found, "vary")


def test_responses_to_listed_origin_can_be_read_by_scripts(server: Running) -> None:
    found, denied = query(server, APP), query(server, APP, None)
    assert (found.status_code, denied.status_code) == (200, 401)
    for response in (found, denied):
        assert response.headers["access-control-allow-origin"] == APP
        assert {"x-request-id", "retry-after"} <= names(response, "access-control-expose-headers")
        assert "access-control-allow-credentials" not in response.headers
        assert "origin" in names(response, "vary")


@pytest.mark.parametrize("origin", [FOREIGN, None])
def test_responses_to_other_origins_have_no_cors_headers_but_vary(
    server: Running, origin: str | None
) -> None:
    found = query(server, origin)
    assert found.status_code == 200
    assert "access-control-allow-origin" not in found.headers
    assert {"origin", "accept-encoding"} <= names(found, "vary")


def test_server_without_origins_has_no_cors_headers(guarded: Running) -> None:
    assert preflight(guarded, APP).status_code == 405
    found = query(guarded, APP)
    assert "access-control-allow-origin" not in found.headers
    assert "origin" not in names(found, "vary")


def test_unauthenticated_server_refuses_foreign_origins_with_cors() -> None:
    origins = parse_origins(["http://localhost:3000"], is_local=True)
    with running(host(), is_local=True, cors_origins=origins) as server:
        assert query(server, "http://localhost:3000", None).status_code == 200
        found = query(server, APP, None)
    assert found.status_code == 403
    assert "access-control-allow-origin" not in found.headers


@pytest.mark.parametrize(
    "text",
    ["*", "app.example.org", "https://app.example.org/path", "ftp://x", "https://*.example.org", "null"],
)
def test_invalid_origin_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="origin"):
        parse_origins([text])


def test_server_does_not_start_with_invalid_or_foreign_origins(tmp_path: Path) -> None:
    og.init(str(tmp_path / "team.omni"), SCHEMA).close()
    command = ("serve", str(tmp_path), "--unauthenticated", "--bind", "127.0.0.1:0")
    assert "`*` is not supported" in run(*command, "--cors-origin", "*").stderr
    assert "accepts only local requests" in run(*command, env={"OMNIGRAPH_CORS_ORIGINS": APP}).stderr
