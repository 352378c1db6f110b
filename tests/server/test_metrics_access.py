"""Access to the metrics: with a token, without, not at all, or at an address of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput
from omnigraph.server.metrics_endpoint import read_metrics_access
from tests.server.running import POLICY, SCHEMA, TOKENS, error_body, host, running
from tests.server.test_run import address, process
from tests.support.waiting import HANG, wait_until


@pytest.mark.parametrize(("access", "status"), [("token", 401), ("open", 200), ("off", 404)])
def test_metrics_without_token_depend_on_the_access(access: str, status: int) -> None:
    with running(host(POLICY, tokens=TOKENS), metrics=access) as server:
        assert httpx.get(f"{server.url}/metrics", timeout=HANG, verify=False).status_code == status
        with server.client("ann", prefix="") as client:
            assert client.get("/metrics").status_code == (404 if access == "off" else 200)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_metrics_address_serves_metrics_and_nothing_else(tmp_path: Path, workers: str) -> None:
    og.init(str(tmp_path / "team.omni"), SCHEMA).close()
    env = {"OMNIGRAPH_SERVER_BEARER_TOKEN": "secret", "OMNIGRAPH_WORKERS": workers}
    args = (str(tmp_path), "--bind", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    with process(*args, **env) as server:
        url = address(server)

        def find() -> dict[str, Any] | None:
            complete, _, _ = server.errors_so_far().rpartition("\n")
            lines = [json.loads(line) for line in complete.splitlines()]
            return next((item for item in lines if item["message"] == "serving metrics"), None)

        other = f"http://127.0.0.1:{wait_until(find)['port']}"
        found = httpx.get(f"{other}/metrics", timeout=HANG, verify=False)
        assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert 'omnigraph_graphs{state="served"} 1.0' in found.text
        for path in ("/", "/healthz", "/graphs/team/branches"):
            assert httpx.get(f"{other}{path}", timeout=HANG, verify=False).status_code == 404
        refused = httpx.post(f"{other}/graphs/team/query", json={}, timeout=HANG, verify=False)
        assert refused.status_code == 404
        assert error_body(httpx.get(f"{url}/metrics", timeout=HANG, verify=False), 404)


def test_invalid_access_is_refused() -> None:
    with pytest.raises(InvalidInput, match="--metrics must be"):
        read_metrics_access("everyone", {})
