"""`omnigraph studio`: the server that it starts for graphs in storage, and the addresses of served Studios."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.cli.commands.serving.hosted_address import find_hosting
from tests.cli.running import run, start_process
from tests.server.running import host, running
from tests.support.waiting import HANG


def test_studio_of_a_server_prints_the_address_of_the_graph() -> None:
    with running(host(), studio=True) as server:
        found = run("studio", f"{server.url}/graphs/team", "--no-open")
    assert (found.code, found.stdout) == (0, f"Studio: {server.url}/studio/#/team/query\n")


def test_studio_of_a_server_without_it_says_how_to_start_one() -> None:
    with running(host()) as server:
        found = run("studio", server.url, "--no-open")
    assert found.code != 0
    assert "omnigraph serve --studio" in found.stderr


def test_studio_refuses_options_that_address_another_graph(tmp_path: Path) -> None:
    found = run("--store", str(tmp_path), "studio", str(tmp_path))
    assert found.code != 0
    assert "--store does not apply" in found.stderr


@pytest.mark.parametrize(("address", "id_"), [("a/my_graph.omni", "my-graph"), ("s3://bucket/x.omni/", "x")])
def test_studio_of_a_graph_names_it_after_its_address(address: str, id_: str) -> None:
    hosting = find_hosting(address)
    assert not isinstance(hosting, str)
    assert [(item.id, item.uri) for item in hosting.graphs] == [(id_, address)]


def test_studio_of_a_graph_serves_it_on_loopback(tmp_path: Path) -> None:
    og.init(str(tmp_path / "shop.omni"), "node City { name: String @key }").close()
    with start_process("studio", str(tmp_path / "shop.omni"), "--no-open") as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip().removeprefix("Studio: ")
        assert address.startswith("http://127.0.0.1:")
        assert "OmniGraph Studio" in httpx.get(address, timeout=HANG).text
        graphs = httpx.get(address.replace("/studio/", "/graphs"), timeout=HANG).json()
        assert [item["graph_id"] for item in graphs["graphs"]] == ["shop"]
        process.send_signal(signal.SIGTERM)
        process.wait()
