"""A corpus of requests that once took a server down: each ends bounded, and other clients get answers."""

from __future__ import annotations

import gzip
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from tests.server.workers.running import Served, served, write_config

SCHEMA = """
node Person { name: String @key  bio: String? @index }
edge Knows: Person -> Person
"""
PEOPLE = 1_500
FRIENDS = 12
QUERY_BYTES = 96 << 20
# The interpreter and its libraries take about 250 MB, and a load of files decodes batches of 128 MiB.
PROCESS_BYTES = 1_200 << 20
WORD = "x" * 900_000

OPTIONALS = " ".join(f"optional {{ $a knows $x{i} }}" for i in range(30))
OPTIONAL_NAMES = ", ".join(f"$x{i}.name" for i in range(30))
CHAIN = " ".join(f"$v{i} knows $v{i + 1}" for i in range(3_000))
PATHS = " ".join(f"$v{i} knows $v{i + 1}" for i in range(12))
ALL_PAIRS = "$a: Person  $b: Person"


@dataclass(frozen=True)
class Case:
    """A query, its parameters, the status, and the limit that it exceeds."""

    name: str
    text: str
    status: int = 413
    resource: str | None = "query_bytes"
    params: dict[str, Any] | None = None
    limits: dict[str, float] | None = None


def read(pattern: str, outputs: str, rest: str = "", params: str = "") -> str:
    return f"query q({params}) {{ match {{ {pattern} }} return {{ {outputs} }} {rest} }}"


CASES = [
    Case("product", read(f"{ALL_PAIRS}  $c: Person", "$a.name, $b.name, $c.name")),
    Case("product with limit", read(f"{ALL_PAIRS}  $c: Person", "$a.name, $c.name", "limit 5"), 200, None),
    Case("sorted product", read(f"{ALL_PAIRS}  $c: Person", "$a.name", "order { $b.name } limit 5")),
    Case("distinct product", read(f"{ALL_PAIRS}  $c: Person", "$a.name, $b.name, count($c) as n", "limit 1")),
    Case("collect everything", read(f"{ALL_PAIRS}  $c: Person", "collect($a.bio) as bios")),
    Case("30 hops", read("$a: Person  $a knows{1,30} $b", "$a.name, $b.name, $a.bio, $b.bio")),
    Case("30 hops with limit", read("$a: Person  $a knows{1,30} $b", "$b.name", "limit 3"), 200, None),
    Case("long paths", read(f"$v0: Person  {PATHS}", "$v0.name, $v12.name")),
    Case("30 optionals", read(f"$a: Person  {OPTIONALS}", f"$a.name, {OPTIONAL_NAMES}")),
    Case("30 optionals with limit", read(f"$a: Person  {OPTIONALS}", "$x29.name", "limit 2"), 200, None),
    Case(
        "null vector",
        read("$a: Person", "$a.name, $v as v", "limit 1", "$v: Vector(2147483647)?"),
        params={"v": None},
    ),
    Case(
        "fuzzy word",
        read("$a: Person  fuzzy($a.bio, $w, 900000)", "$a.name", "", "$w: String"),
        413,
        "fuzzy_word_characters",
        {"w": WORD},
    ),
    Case(
        "long text search",
        read("$a: Person  search($a.bio, $w)", "$a.name", "", "$w: String"),
        200,
        None,
        {"w": "a b c " * 100_000},
    ),
    Case("3,000 traversals", read(f"$v0: Person  {CHAIN}", "count($v3000) as n"), 413, "read_seconds", None,
         {"timeout_seconds": 0.05}),
    Case("large text", "// " + "x" * 900_000 + "\n" + read("$a: Person", "$a.name"), 413, "query_text_bytes"),
    Case(
        "large list",
        read("$a: Person  $a.name in $names", "$a.name", "", "$names: [String]"),
        200,
        None,
        {"names": [f"n{i}" for i in range(80_000)]},
    ),
    Case("deep nesting", read("$a: Person  " + "not { $a knows $b " * 500 + "}" * 500, "$a.name"), 400, None),
    Case("many brackets", "query q() { match { " + "(" * 100_000, 400, None),
    Case("unclosed text", 'query q() { match { $a: Person  $a.name = "' + "\\" * 100_000, 400, None),
    Case("negated product", read(f"{ALL_PAIRS}  $c: Person  not {{ $a knows $c }}", "$a.name, $b.name")),
    Case("rows", read("$a: Person", "$a.name"), 413, "query_rows", None, {"max_rows": 10}),
    Case("edges", read("$a: Person  $a knows{1,9} $b", "count($b) as n"), 413, "query_edges", None,
         {"max_edges": 1_000}),
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("death")
    people = [{"name": f"p{i}", "bio": f"likes {i % 7} cats and {i} dogs"} for i in range(PEOPLE)]
    edges = [
        {"from": f"p{i}", "to": f"p{(31 * i + 7 * j) % PEOPLE}"}
        for i in range(PEOPLE)
        for j in range(FRIENDS)
    ]
    with og.init(str(folder / "graph"), SCHEMA) as graph:
        graph.load({"Person": people, "Knows": edges})
    config = write_config(folder, {"team": str(folder / "graph")})
    with served(
        config,
        OMNIGRAPH_QUERY_BYTES_MAX=str(QUERY_BYTES),
        OMNIGRAPH_QUERIES_BYTES_MAX=str(10 * QUERY_BYTES),
        OMNIGRAPH_LOAD_DECODED_BYTES_MAX=str(200_000_000),
    ) as found:
        yield found


@pytest.fixture(scope="module")
def bystander(server: Served) -> Iterator[list[int]]:
    """Another client, whose queries are answered all the time; the fixture has their statuses."""
    done = threading.Event()
    statuses: list[int] = []

    def ask() -> None:
        point = read('$a: Person { name: "p7" }', "$a.name")
        with server.client() as client:
            while not done.is_set():
                statuses.append(client.post("/graphs/team/query", json={"query": point}).status_code)
                done.wait(0.02)

    thread = threading.Thread(target=ask)
    thread.start()
    yield statuses
    done.set()
    thread.join()


def peak_bytes(pid: int) -> int:
    """The largest resident memory of a process so far."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def check_server(server: Served, bystander: list[int]) -> None:
    """Check that the processes are alive and small, and that the other client gets answers."""
    children = server.children
    assert len(children) == 3
    assert max(map(peak_bytes, children)) < PROCESS_BYTES
    assert set(bystander) <= {200}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_query_of_death_ends_bounded(server: Served, bystander: list[int], case: Case) -> None:
    before = server.children
    with server.client() as client:
        body = {"query": case.text, "params": case.params, **(case.limits or {})}
        response = client.post("/graphs/team/query", json=body)
    assert response.status_code == case.status, response.text[:500]
    if case.resource is not None:
        assert response.json()["resource_limit"]["resource"] == case.resource, response.text[:500]
    assert server.children == before
    check_server(server, bystander)


def parquet_bomb() -> bytes:
    """A small file with a long value in many rows."""
    rows = 20_000
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["x" * 1_000_000])
    target = io.BytesIO()
    pq.write_table(
        pa.table({"name": [f"b{i}" for i in range(rows)], "bio": values}), target, compression="zstd"
    )
    return target.getvalue()


def json_bomb() -> bytes:
    """A small compressed array of large objects."""
    target = io.BytesIO()
    with gzip.GzipFile(fileobj=target, mode="wb", compresslevel=1) as file:
        row = json.dumps({"name": "b", "bio": "x" * 10_000_000}).encode()
        file.write(b"[" + row)
        for _ in range(25):
            file.write(b"," + row)
        file.write(b"]")
    return target.getvalue()


@pytest.mark.parametrize(
    ("name", "data"), [("b.parquet", parquet_bomb), ("b.json.gz", json_bomb)], ids=["parquet", "gzip"]
)
def test_load_of_a_bomb_ends_bounded(server: Served, bystander: list[int], name: str, data: Any) -> None:
    before = server.children
    with server.client() as client:
        response = client.post("/graphs/team/load/files", files={"Person": (name, data())})
    assert response.status_code == 413, response.text[:500]
    assert response.json()["resource_limit"]["resource"] == "load_decoded_bytes"
    assert server.children == before
    check_server(server, bystander)


def test_server_after_the_corpus_still_reads_and_writes(server: Served) -> None:
    with server.client() as client:
        added = client.post(
            "/graphs/team/mutate", json={"query": 'query add() { insert Person { name: "after" } }'}
        )
        assert added.status_code == 200, added.text
        found: httpx.Response = client.post(
            "/graphs/team/query", json={"query": read("$a: Person", "count($a) as n")}
        )
    assert found.json()["rows"] == [{"n": PEOPLE + 1}]
