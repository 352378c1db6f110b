"""Through a Spark Connect server, with no JVM of one's own, everything is as it is elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from tests.cluster.conftest import Driver
from tests.cluster.outcomes import figures, lines, loaded_here, saved, unfinished
from tests.spark.loads import knows, person
from tests.support.spark_cluster import Cluster

pytestmark = pytest.mark.spark


@pytest.fixture
def client(alone: Cluster) -> Iterator[Driver]:
    """A driver without a JVM."""
    with alone.connect_server() as address:
        made = Driver(alone, address)
        yield made
        made.process.kill()


def test_connect_client_loads_merges_and_reads(client: Driver, graph: og.LocalGraph, tmp_path: Path) -> None:
    records = [person(f"q{n}", age=n) for n in range(30)] + [knows("k9", "q0", "q29")]
    again = [person(f"q{n}", age=n + 15) for n in range(5)]
    for mode, given in (("append", records), ("merge", again)):
        path = saved(tmp_path / f"{mode}.jsonl", given)
        wanted = loaded_here(graph, path, mode)
        assert figures(client.ask("load", graph.uri, str(path), mode, branch="spark")) == wanted
        assert lines(graph, "spark") == lines(graph, "local")
    read = client.ask("read", graph.uri, "Person", branch="spark")
    ages = {f"q{n}": n if n > 4 else n + 15 for n in range(30)} | {f"p{n}": n for n in range(3)}
    assert sorted((row["name"], row["age"]) for row in read) == sorted(ages.items())
    assert not unfinished(graph)
