"""The server as a process: it says where it listens, logs to stderr, and ends when told to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.server.serving import listening
from tests.cli.running import run
from tests.server.running import SCHEMA, TOKENS

VARIABLES = [name for name in os.environ if name.startswith("OMNIGRAPH")]
MAIN = "from omnigraph.cli.serve import main; main()"


@pytest.fixture
def graphs(tmp_path: Path) -> Path:
    og.init(str(tmp_path / "team.omni"), SCHEMA).close()
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OMNIGRAPH")}
    return {**kept, **more}


@contextmanager
def process(*args: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", MAIN, *args]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**env)
    ) as found:
        try:
            yield found
        finally:
            found.kill()


def test_a_server_says_where_it_listens_and_ends_when_told_to(graphs: Path) -> None:
    tokens = json.dumps({"ann": TOKENS["ann"]})
    args = (str(graphs), "--bind", "127.0.0.1:0")
    with process(*args, OMNIGRAPH_SERVER_BEARER_TOKENS_JSON=tokens) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("OMNIGRAPH_LISTEN_ADDR=127.0.0.1:")
        url = f"http://{line.strip().partition('=')[2]}"
        assert httpx.get(f"{url}/healthz").json()["status"] == "ok"
        headers = {"Authorization": f"Bearer {TOKENS['ann']}"}
        found = httpx.get(f"{url}/graphs/team/branches", headers=headers)
        assert found.json() == {"branches": ["main"]}
        assert "server" not in found.headers
        server.send_signal(signal.SIGTERM)
        out, err = server.communicate(timeout=30)
    assert (server.returncode, out) == (0, "")
    lines = [json.loads(item) for item in err.splitlines()]
    requests = [item for item in lines if item["message"] == "request"]
    assert [item["route"] for item in requests] == ["/healthz", "/graphs/{graph_id}/branches"]
    assert TOKENS["ann"] not in err


def test_small_answers_are_not_held_back() -> None:
    with listening("127.0.0.1", 0) as bound, socket.create_connection(bound.getsockname()):
        connection, _ = bound.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("args", "env", "text"),
    [
        ((), {}, "there are no tokens"),
        (("--unauthenticated", "--bind", "0.0.0.0:0"), {}, "--force"),
        (("--bind", "nonsense"), {}, "HOST:PORT"),
        (("--store", "x"), {}, "--store"),
        ((), {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ann": "sEcReT" "x"}'}, "JSON object"),
    ],
)
def test_a_server_that_would_be_unsafe_does_not_start(
    graphs: Path, args: tuple[str, ...], env: dict[str, str], text: str
) -> None:
    found = run("serve", str(graphs), *args, env={**dict.fromkeys(VARIABLES), **env})
    assert (found.code, found.stdout) == (1, "")
    assert text in found.stderr
    assert "sEcReT" not in found.output
