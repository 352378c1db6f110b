"""Servers with several processes, for tests."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.server.running import ADD
from tests.server.test_run import address, process
from tests.support.forked import Worker
from tests.support.s3 import Bucket
from tests.support.waiting import HANG, wait_until

NAMES = "query names() { match { $p: Person } return { $p.name as name } order { name asc } }"


@dataclass(frozen=True)
class Served:
    """A server with two workers and a writer for each graph, at most two."""

    process: Worker
    url: str
    writers: int = 1

    @property
    def children(self) -> list[int]:
        """The ids of the processes that are not killed, in the order of their start: at first the writers."""
        parent = self.process.pid
        try:
            text = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            return []
        read = ((pid, _process_stat(pid)) for pid in map(int, text.split()))
        running = [(stat.started, pid) for pid, stat in read if stat is not None and stat.is_running]
        return [pid for _, pid in sorted(running)]

    def wait_for_restart(self, killed: int) -> None:
        """Wait until a killed process has a successor that answers."""
        count = 2 + self.writers
        wait_until(lambda: killed not in self.children and len(self.children) == count)
        wait_until(lambda: self.get("/readyz").status_code == 200)

    def client(self) -> httpx.Client:
        """Return a client with a connection of its own."""
        return httpx.Client(base_url=self.url, timeout=HANG, verify=False, trust_env=False)

    def get(self, path: str) -> httpx.Response:
        """Send a request over a new connection."""
        with self.client() as client:
            return client.get(path)

    def add(self, name: str, graph: str = "team") -> httpx.Response:
        """Insert a person over a new connection."""
        with self.client() as client:
            return add(client, name, graph)


def add(client: httpx.Client, name: str, graph: str = "team") -> httpx.Response:
    return client.post(f"/graphs/{graph}/mutate", json={"query": ADD, "params": {"n": name}})


def names(client: httpx.Client, graph: str = "team") -> list[str]:
    response = client.post(f"/graphs/{graph}/query", json={"query": NAMES})
    assert response.status_code == 200, response.text
    return [row["name"] for row in response.json()["rows"]]


def is_gone(pid: int) -> bool:
    """Return whether a process has ended."""
    stat = _process_stat(pid)
    return stat is None or not stat.is_running


@dataclass(frozen=True)
class _ProcessStat:
    """The state of a process. `started` is in clock ticks since boot."""

    is_running: bool
    started: int


def _process_stat(pid: int) -> _ProcessStat | None:
    """Read the state of a process once. Return None if it has ended, also if it ends during the read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return _ProcessStat(fields[0] not in ("Z", "X"), int(fields[19]))


@contextmanager
def served(
    config: Path,
    s3: Bucket | None = None,
    *,
    writers: int = 1,
    tokens: Mapping[str, str] | None = None,
    **env: str,
) -> Iterator[Served]:
    """Serve a configuration with two workers."""
    storage: dict[str, str] = {}
    if s3 is not None:
        storage = {
            "AWS_ACCESS_KEY_ID": s3.options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": s3.options["secret_access_key"],
            "AWS_REGION": s3.options["region"],
            "AWS_ENDPOINT_URL": s3.options["endpoint"],
            "AWS_ALLOW_HTTP": "true",
        }
    options = ["--bind", "127.0.0.1:0", "--workers", "2"]
    if tokens is None:
        options.append("--unauthenticated")
    elif tokens:
        env["OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"] = json.dumps(dict(tokens))
    with process(str(config), *options, **storage, **env) as found:
        server = Served(found, address(found), writers)
        children = {pid: _process_stat(pid) for pid in server.children}
        try:
            yield server
        finally:
            # A failed test may leave processes behind that do not end with their parent. The id of a process that
            # has ended may be that of another one by now.
            for pid, before in children.items():
                now = _process_stat(pid)
                if before is not None and now is not None and now.started == before.started:
                    with suppress(ProcessLookupError):
                        kill(pid)


def write_config(folder: Path, uris: dict[str, str], policy: str | None = None) -> Path:
    """Write a server configuration."""
    path = folder / "serve.yaml"
    more = {} if policy is None else {"policy": policy}
    graphs: dict[str, Any] = {id_: {"uri": uri, **more} for id_, uri in uris.items()}
    path.write_text(json.dumps({"graphs": graphs}), encoding="utf-8")
    return path


def metric(text: str, series: str) -> float:
    """Return the value of a series, or 0."""
    found = [line.rpartition(" ")[2] for line in text.splitlines() if line.rpartition(" ")[0] == series]
    return float(found[0]) if found else 0.0


def open_port(url: str) -> bool:
    """Return whether the port of a server accepts connections."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def kill(pid: int) -> None:
    """Kill a process."""
    os.kill(pid, signal.SIGKILL)
