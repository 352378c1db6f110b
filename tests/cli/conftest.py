"""Each test runs in a temporary directory with a schema and a query file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import PEOPLE, READ, write
from tests.server.running import LISTING, POLICY, STORED, TOKENS, Running, host, running


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "people.pg", PEOPLE)
    write(tmp_path / "read.gq", READ)
    return tmp_path


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty settings folder, and an environment without variables of omnigraph."""
    for name in [name for name in os.environ if name.startswith("OMNIGRAPH_")]:
        monkeypatch.delenv(name)
    found = folder / "home"
    monkeypatch.setenv("OMNIGRAPH_HOME", str(found))
    return found


@pytest.fixture(scope="session")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with a graph `team`. Ann may do everything, including listing graphs; Bob may read and invoke."""
    queries = tmp_path_factory.mktemp("queries")
    write(queries / "people.gq", STORED)
    with running(host(POLICY, tokens=TOKENS, server_policy=LISTING, queries=queries)) as found:
        yield found
