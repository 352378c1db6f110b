"""The server process: start, log and graceful shutdown."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.server.run import listening
from tests.cli.running import run
from tests.server.running import ADD, SCHEMA, TOKENS, error_body, names
from tests.support.forked import Worker, start_worker
from tests.support.s3 import Bucket
from tests.support.s3_seam import Fault
from tests.support.waiting import HANG, wait_until

pytest_plugins = ["tests.support.s3_fixtures"]

VARIABLES = [name for name in os.environ if name.startswith("OMNIGRAPH")]
NAMES = "query names() { match { $p: Person } return { $p.name as name } }"
MAIN = "from omnigraph.cli.commands.serving.serve import main; main()"
IMPORTS = ("omnigraph.cli.commands.serving.serve", "omnigraph.server.app")


@pytest.fixture
def graphs(tmp_path: Path) -> Path:
    og.init(str(tmp_path / "team.omni"), SCHEMA).close()
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OMNIGRAPH")}
    # One process starts faster. `tests/server/workers` has the tests of several.
    return {**kept, "OMNIGRAPH_WORKERS": "1", **more}


@contextmanager
def process(*args: str, **env: str) -> Iterator[Worker]:
    """Run a server in a forked process, which has imported everything."""
    found = start_worker(MAIN, *args, environment=environment(**env), imports=IMPORTS, finalizes=True)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def new_process(*args: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Run a server as users do."""
    command = [sys.executable, "-c", MAIN, *args]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**env)
    ) as found:
        try:
            yield found
        finally:
            found.kill()


def address(server: subprocess.Popen[str] | Worker) -> str:
    """Return the address that a server prints."""
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line.startswith("OMNIGRAPH_LISTEN_ADDR=127.0.0.1:"), line
    return f"http://{line.strip().partition('=')[2]}"


def test_server_prints_address_and_exits_on_signal(graphs: Path) -> None:
    tokens = json.dumps({"ann": TOKENS["ann"]})
    args = (str(graphs), "--bind", "127.0.0.1:0")
    temporary = graphs / "temporary"
    temporary.mkdir()
    (graphs / "empty.omni").mkdir()
    more = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": tokens, "TMPDIR": str(temporary)}
    with new_process(*args, **more) as server:
        url = address(server)
        assert any(temporary.iterdir())
        assert httpx.get(f"{url}/healthz", timeout=HANG, verify=False).json()["status"] == "ok"
        headers = {"Authorization": f"Bearer {TOKENS['ann']}"}
        found = httpx.get(f"{url}/graphs/team/branches", headers=headers, timeout=HANG, verify=False)
        assert found.json() == {"branches": ["main"]}
        assert "server" not in found.headers
        server.send_signal(signal.SIGTERM)
        out, err = server.communicate(timeout=HANG)
    assert (server.returncode, out) == (0, "")
    assert not any(temporary.iterdir())
    lines = [json.loads(item) for item in err.splitlines()]
    (left_out,) = [item for item in lines if item["message"] == "graph quarantined"]
    assert left_out["graph_id"] == "empty"
    assert "empty.omni" in left_out["reason"]
    requests = [item for item in lines if item["message"] == "request"]
    assert [item["route"] for item in requests] == ["/healthz", "/graphs/{graph_id}/branches"]
    assert TOKENS["ann"] not in err


def test_server_with_verify_reads_refuses_to_read_an_altered_file(graphs: Path) -> None:
    with og.open(graphs / "team.omni") as graph:
        graph.load({"Person": [{"name": "Ann"}]})
    (file,) = (graphs / "team.omni" / "nodes").rglob("data/*.lance")
    data = bytearray(file.read_bytes())
    # A byte of a value: the row is read without an error unless the digest is compared.
    data[10] ^= 1
    file.write_bytes(data)
    with process(str(graphs), "--bind", "127.0.0.1:0", "--unauthenticated", "--verify-reads") as server:
        url = f"{address(server)}/graphs/team/query"
        found = httpx.post(url, json={"query": NAMES}, timeout=HANG, verify=False)
        server.send_signal(signal.SIGTERM)
        _, log = server.communicate(timeout=HANG)
    assert found.status_code == 500
    assert found.json()["storage_failure"]["reason"] == "damaged"
    assert f"{file.name}: its digest is" in log


def test_responses_are_sent_with_tcp_nodelay() -> None:
    with listening("127.0.0.1", 0) as bound, socket.create_connection(bound.getsockname()):
        connection, _ = bound.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("args", "env", "text"),
    [
        ((), {}, "no tokens are configured"),
        (("--unauthenticated", "--bind", "0.0.0.0:0"), {}, "--force"),
        (("--bind", "nonsense"), {}, "HOST:PORT"),
        (("--store", "x"), {}, "--store"),
        ((), {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ann": "sEcReT" "x"}'}, "is not valid JSON"),
        (("--unauthenticated",), {"OMNIGRAPH_READ_SECONDS_MAX": "soon"}, "OMNIGRAPH_READ_SECONDS_MAX"),
    ],
)
def test_unsafe_or_invalid_configuration_prevents_start(
    graphs: Path, args: tuple[str, ...], env: dict[str, str], text: str
) -> None:
    found = run(
        "serve", str(graphs), *args, env={**dict.fromkeys(VARIABLES), "OMNIGRAPH_WORKERS": "1", **env}
    )
    assert (found.code, found.stdout) == (1, "")
    assert text in found.stderr
    assert "sEcReT" not in found.output


# --- shutdown ----------------------------------------------------------------------------------------------


@pytest.fixture
def far(s3: Bucket, tmp_path: Path) -> Path:
    """Return a configuration of one graph in a bucket, so that a test can delay its writes."""
    og.init(f"{s3.uri}/team", SCHEMA, storage_options=s3.options).close()
    path = tmp_path / "serve.yaml"
    path.write_text(f"graphs: {{team: {{uri: '{s3.uri}/team'}}}}\n", encoding="utf-8")
    return path


def serving(config: Path, s3: Bucket | None = None, **env: str) -> AbstractContextManager[Worker]:
    storage = (
        {
            "AWS_ACCESS_KEY_ID": s3.options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": s3.options["secret_access_key"],
            "AWS_REGION": s3.options["region"],
            "AWS_ENDPOINT_URL": s3.options["endpoint"],
            "AWS_ALLOW_HTTP": "true",
        }
        if s3
        else {}
    )
    return process(str(config), "--bind", "127.0.0.1:0", "--unauthenticated", **storage, **env)


def add(url: str, name: str, token: str | None = None) -> httpx.Response:
    return httpx.post(
        f"{url}/graphs/team/mutate",
        json={"query": ADD, "params": {"n": name}},
        headers={} if token is None else {"Authorization": f"Bearer {token}"},
        timeout=HANG,
        verify=False,
    )


@dataclass(frozen=True)
class Write:
    """A write that is blocked in storage."""

    response: Future[httpx.Response]
    storage: Fault

    def finish(self) -> httpx.Response:
        """Release the write and return its response."""
        self.storage.released.set()
        return self.response.result(HANG)


@contextmanager
def writing(url: str, s3: Bucket, token: str | None = None) -> Iterator[Write]:
    """Start a write whose storage request is delayed."""
    with ThreadPoolExecutor(1) as pool, s3.seam.hold(method="PUT") as storage:
        response = pool.submit(add, url, "Ann", token)
        wait_until(lambda: storage.hits == 1)
        yield Write(response, storage)


def test_graceful_shutdown_finishes_running_requests(far: Path, s3: Bucket) -> None:
    with serving(far, s3) as server:
        url = address(server)
        assert httpx.get(f"{url}/readyz", timeout=HANG, verify=False).status_code == 200
        with writing(url, s3) as write:
            server.send_signal(signal.SIGTERM)
            wait_until(lambda: httpx.get(f"{url}/readyz", timeout=HANG, verify=False).status_code == 503)
            assert error_body(httpx.get(f"{url}/readyz", timeout=HANG, verify=False), 503) == {
                "error": "the server is shutting down"
            }
            assert httpx.get(f"{url}/healthz", timeout=HANG, verify=False).status_code == 200
            wait_until(
                lambda: (
                    httpx.get(f"{url}/graphs/team/branches", timeout=HANG, verify=False).status_code == 503
                )
            )
            late = add(url, "Bob")
            assert (error_body(late, 503)["error"], late.headers["retry-after"]) == (
                "the server is shutting down",
                "5",
            )
            assert write.finish().status_code == 200
        assert server.wait(HANG) == 0
    with og.open(f"{s3.uri}/team", storage_options=s3.options) as graph:
        assert [row["name"] for row in graph.query(NAMES)] == ["Ann"]


@pytest.mark.parametrize(("again", "code"), [(False, 1), (True, 128 + signal.SIGTERM)])
def test_shutdown_aborts_slow_write_without_partial_commit(
    far: Path, s3: Bucket, again: bool, code: int
) -> None:
    patience = str(HANG) if again else "0.3"
    with serving(far, s3, OMNIGRAPH_STOP_SECONDS_MAX=patience) as server:
        url = address(server)
        with writing(url, s3) as write:
            server.send_signal(signal.SIGTERM)
            if again:
                wait_until(lambda: httpx.get(f"{url}/readyz", timeout=HANG, verify=False).status_code == 503)
                server.send_signal(signal.SIGTERM)
            assert server.wait(HANG) == code
            # The client gets no error response, because the outcome is unknown.
            assert isinstance(write.response.exception(HANG), httpx.TransportError)
    with og.open(f"{s3.uri}/team", storage_options=s3.options) as graph:
        assert [row["name"] for row in graph.query(NAMES)] in ([], ["Ann"])
        graph.mutate(ADD, {"n": "Bob"})


def test_killed_server_keeps_acknowledged_writes(graphs: Path) -> None:
    done: list[str] = []

    def write(url: str, worker: int) -> None:
        for number in range(1000):
            try:
                response = add(url, f"{worker}-{number}")
            except httpx.TransportError:
                return
            if response.status_code == 200:
                done.append(f"{worker}-{number}")

    with serving(graphs) as server, ThreadPoolExecutor(3) as pool:
        url = address(server)
        for worker in range(3):
            pool.submit(write, url, worker)
        wait_until(lambda: len(done) > 5)
        server.kill()
    with (
        serving(graphs) as server,
        httpx.Client(base_url=f"{address(server)}/graphs/team", timeout=HANG, verify=False) as client,
    ):
        found = names(client)
        assert set(done) <= set(found)
        # Each of the three writers may have had one more request in flight.
        assert len(found) == len(set(found)) <= len(done) + 3
        server.send_signal(signal.SIGTERM)
        assert server.wait(HANG) == 0
