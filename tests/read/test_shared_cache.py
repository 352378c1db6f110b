"""Graphs that share one memory: their answers never mix, and together they stay within its budget."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.api.entry import open_with
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.engine.memory.memory_cache import Cache, CachePool
from omnigraph.read.reader import Reader
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from omnigraph.server.limits import ServerLimits
from tests.engine.test_memory_cache import Value, making
from tests.support.places import together

SCHEMA = "node Person { name: String @key  mood: String? }\nedge Knows: Person -> Person\n"
MOODS = "query moods() { match { $p: Person  $p knows $q } return { $p.mood as mood, $q.name as name } }"
PUT = "query put($n: String, $m: String) { insert Person { name: $n, mood: $m } }"


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two graphs whose tables, versions and ids are called the same, and whose values differ."""
    folder = tmp_path_factory.mktemp("twins")
    with og.init(str(folder / "one"), SCHEMA, durability="os") as graph:
        graph.load({"Person": [{"name": name, "mood": f"first-{name}"} for name in "abc"]})
        graph.load({"Knows": [{"from": "a", "to": "b"}]})
    shutil.copytree(folder / "one", folder / "two")
    for file in (folder / "two").rglob("data/*.lance"):
        file.write_bytes(file.read_bytes().replace(b"first-", b"other-"))
    return str(folder / "one"), str(folder / "two")


@contextmanager
def reading(uri: str, memory: CachePool) -> Iterator[tuple[og.Graph, Reader]]:
    reader = Reader(memory)
    with open_with(reader, uri) as graph:
        yield graph, reader


def moods(graph: og.Graph) -> list[dict[str, str]]:
    found: list[dict[str, str]] = graph.query(MOODS).to_json()["rows"]
    return found


def test_graphs_that_call_everything_the_same_never_mix_their_rows(twins: tuple[str, str]) -> None:
    memory = CachePool(1 << 24)
    with reading(twins[0], memory) as (one, _), reading(twins[1], memory) as (other, _):
        assert one.snapshot().types == other.snapshot().types
        for _ in range(2):
            assert moods(one) == [{"mood": "first-a", "name": "b"}]
            assert moods(other) == [{"mood": "other-a", "name": "b"}]
            assert one.get("Person", "c") == {"id": "c", "name": "c", "mood": "first-c"}
            assert other.get("Person", "c") == {"id": "c", "name": "c", "mood": "other-c"}


def test_a_write_finds_the_rows_of_its_own_graph(twins: tuple[str, str], tmp_path: Path) -> None:
    for number, uri in enumerate(twins):
        shutil.copytree(uri, tmp_path / str(number))
    memory = CachePool(1 << 24)
    with (
        reading(str(tmp_path / "0"), memory) as (one, _),
        reading(str(tmp_path / "1"), memory) as (other, _),
    ):
        moods(one)
        assert one.mutate(PUT, {"n": "new", "m": "x"}).affected["Person"]["inserted"] == 1
        moods(other)
        assert other.mutate(PUT, {"n": "new", "m": "y"}).affected["Person"]["inserted"] == 1
        assert one.mutate(PUT, {"n": "new", "m": "z"}).affected["Person"]["updated"] == 1
        assert [graph.get("Person", "new") for graph in (one, other)] == [
            {"id": "new", "name": "new", "mood": "z"},
            {"id": "new", "name": "new", "mood": "y"},
        ]


def test_together_they_stay_within_the_budget_and_their_shares_add_up(twins: tuple[str, str]) -> None:
    memory = CachePool(1_500)
    with reading(twins[0], memory) as (one, first), reading(twins[1], memory) as (other, second):

        def read(graph: og.Graph) -> bool:
            return all(moods(graph) and memory.nbytes <= memory.budget for _ in range(20))

        assert together([partial(read, graph) for graph in (one, other, one, other)]) == [True] * 4
        held = first.stats().nbytes + second.stats().nbytes
        assert 0 < held == memory.nbytes <= memory.budget


def test_one_graph_makes_room_for_another() -> None:
    memory = CachePool(100)
    one, other = Cache(memory), Cache(memory)
    one.get_or_build("f", 1, making(50, "one"))
    other.get_or_build("f", 1, making(40, "other"))
    other.get_or_build("g", 1, making(30))
    assert one.get("f", 1) is None
    assert one.latest("f") is None
    assert other.get_or_build("f", 1, making(0)).name == "other"
    assert (one.stats().nbytes, other.stats().nbytes, memory.nbytes) == (0, 70, 70)


def test_a_graph_that_is_closed_lets_go_of_what_is_its_own_for_good() -> None:
    memory = CachePool(100)
    one, other = Cache(memory), Cache(memory)
    one.get_or_build("f", 1, making(30))
    kept = other.get_or_build("f", 1, making(30))

    def close_meanwhile() -> Value:
        one.close()
        return Value(10)

    assert one.get_or_build("g", 1, close_meanwhile).nbytes == 10
    assert (one.stats().entries, memory.nbytes) == (0, 30)
    assert one.latest("f") is None
    assert other.get("f", 1) is kept


def test_what_one_server_serves_shares_one_memory(twins: tuple[str, str]) -> None:
    with reading(twins[0], CachePool(1 << 24)) as (graph, reader):
        moods(graph)
        alone = reader.stats().nbytes
    # More than one graph wants, and less than two do.
    budget = alone + alone // 2
    sources = tuple(GraphSource(id_, uri) for id_, uri in zip(("one", "two"), twins, strict=True))
    hosted = open_graphs(Hosting(sources), TokenRegistry(), limits=ServerLimits(cache_bytes=budget))
    readers = [item.reader for item in hosted.graphs.values()]
    for _ in range(2):
        for id_, mood in (("one", "first-a"), ("two", "other-a")):
            assert moods(hosted.graphs[id_].graph)[0]["mood"] == mood
            assert sum(reader.stats().nbytes for reader in readers) <= budget
    assert any(reader.stats().nbytes for reader in readers)
    hosted.close()
    assert [reader.stats().entries for reader in readers] == [0, 0]
