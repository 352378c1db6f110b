"""`Graph.blob`: a Blob value as a file, in a local graph, on a server and from coroutines."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.api.results.blobs import Blob, BlobInfo
from omnigraph.errors import InvalidInput, NotFound, PermissionDenied, PreconditionFailed, StorageError
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import running

SCHEMA = (
    "node Photo { name: String @key  data: Blob?  size: I32? }\nedge Seen: Photo -> Photo { proof: Blob? }\n"
)
TEXT = bytes(range(256)) * 40
LARGE = random.Random(3).randbytes((2 << 20) + 5)
ROWS = [
    {"name": "text", "data": TEXT},
    {"name": "large", "data": LARGE},
    {"name": "empty", "data": b""},
    {"name": "none"},
]


@dataclass(frozen=True)
class Places:
    """One graph, opened locally and on a server, and its first commit."""

    local: og.Graph
    remote: og.Graph
    first: str
    loaded_at: datetime


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    uri = f"memory://files-{uuid4().hex}"
    with og.init(uri, SCHEMA) as graph:
        graph.load({"Photo": ROWS, "Seen": [{"id": "e", "from": "text", "to": "none", "proof": b"edge"}]})
        commit = graph.commits()[0]
        graph.branches.create("other")
        graph.load({"Photo": [{"name": "text", "data": b"new"}]}, mode="merge", branch="other")
        with (
            running(open_graphs(Hosting((GraphSource("g", uri),)), TokenRegistry())) as server,
            og.connect(server.url, "g") as remote,
        ):
            yield Places(graph, remote, commit.id, commit.created_at)


@pytest.fixture(params=["local", "remote"])
def graph(request: pytest.FixtureRequest, places: Places) -> og.Graph:
    found: og.Graph = getattr(places, request.param)
    return found


def test_blob_reads_like_a_file(graph: og.Graph) -> None:
    with graph.blob("Photo", "text", "data") as blob:
        assert (blob.size, blob.kind, blob.uri) == (len(TEXT), "managed", None)
        assert blob.readable()
        assert blob.seekable()
        assert not blob.writable()
        assert blob.read(10) == TEXT[:10]
        assert blob.tell() == 10
        assert blob.seek(-3, os.SEEK_END) == len(TEXT) - 3
        assert (blob.read(), blob.read(), blob.read(5)) == (TEXT[-3:], b"", b"")
        blob.seek(0)
        assert io.BufferedReader(blob).read() == TEXT
    with pytest.raises(ValueError, match="closed"):
        blob.read_range(0, 1)


def test_blob_range_is_half_open(graph: og.Graph) -> None:
    blob = graph.blob("Photo", "large", "data")
    size = len(LARGE)
    for start, end in (
        (0, 1),
        (5, 5),
        (0, size),
        (size - 1, size),
        (size, size),
        (7, size + 99),
        (1, 1 << 20),
    ):
        assert blob.read_range(start, end) == LARGE[start:end]
    assert blob.tell() == 0
    assert b"".join(blob.chunks()) == LARGE
    assert b"".join(blob.chunks(3, size - 3)) == LARGE[3:-3]
    for start, end in ((-1, 4), (4, 3), (size + 1, size + 2)):
        with pytest.raises(InvalidInput, match="not in the value"):
            blob.read_range(start, end)
    with pytest.raises(InvalidInput, match="expected an integer"):
        blob.read_range(0, 1.5)  # type: ignore[arg-type]


def test_blob_empty_value_has_no_bytes(graph: og.Graph) -> None:
    blob = graph.blob("Photo", "empty", "data")
    assert (blob.size, blob.read(), blob.read_range(0, 5), list(blob.chunks())) == (0, b"", b"", [])


def test_blob_of_edge_is_found_with_and_without_prefix(graph: og.Graph) -> None:
    for name in ("Seen", "edge:Seen"):
        assert graph.blob(name, "e", "proof").read() == b"edge"


def test_blob_in_state_reads_that_state(graph: og.Graph, places: Places) -> None:
    assert graph.blob("Photo", "text", "data", branch="other").read() == b"new"
    assert graph.blob("Photo", "text", "data", at=places.first).read() == TEXT
    assert graph.blob("Photo", "text", "data", branch="other", at=places.loaded_at).read() == TEXT
    assert graph.blob("Photo", "text", "data", at=graph.snapshot("other")).read() == b"new"
    with pytest.raises(NotFound):
        graph.blob("Photo", "text", "data", at=datetime(2001, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (("Photo", "none", "data"), NotFound, "node type 'Photo' has no blob for id 'none'"),
        (("Photo", "zed", "data"), NotFound, "node type 'Photo' has no blob for id 'zed'"),
        (("Phto", "text", "data"), InvalidInput, "unknown node type 'Phto'"),
        (("edge:Photo", "text", "data"), InvalidInput, "unknown edge type 'Photo'"),
        (("Photo", "text", "size"), InvalidInput, "node type 'Photo' has no Blob property 'size'"),
    ],
)
def test_blob_missing_value_or_property_raises(
    graph: og.Graph, arguments: tuple[str, str, str], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as error:
        graph.blob(*arguments)
    assert str(error.value) == text


def test_blob_metadata_is_equal_locally_and_remotely(places: Places) -> None:
    one, other = (graph.blob("Photo", "large", "data") for graph in (places.local, places.remote))
    assert one.info == other.info
    assert repr(one) == repr(other) == f"Blob(size={len(LARGE)})"


def test_blob_open_before_a_write_reads_its_own_state_or_fails() -> None:
    uri = f"memory://files-{uuid4().hex}"
    with og.init(uri, SCHEMA) as graph:
        graph.load({"Photo": [{"name": "a", "data": b"old"}]})
        with (
            running(open_graphs(Hosting((GraphSource("g", uri),)), TokenRegistry())) as server,
            og.connect(server.url, "g") as remote,
        ):
            local, served = (item.blob("Photo", "a", "data") for item in (graph, remote))
            graph.load({"Photo": [{"name": "a", "data": b"new value"}]}, mode="merge")
            assert local.read() == b"old"
            with pytest.raises(PreconditionFailed):
                served.read()


def test_blob_read_is_subject_to_policy() -> None:
    rule = {
        "id": "r",
        "allow": {"actors": {"group": "g"}, "actions": ["read"], "branch_scope": "unprotected"},
    }
    policy = {"version": 1, "groups": {"g": ["ann"]}, "protected_branches": ["main"], "rules": [rule]}
    uri = f"memory://files-{uuid4().hex}"
    with og.init(uri, SCHEMA) as graph:
        graph.load({"Photo": ROWS[:1]})
        graph.branches.create("open")
        graph.load({"Photo": ROWS[1:]}, branch="open")
    with og.open(uri, policy=policy, actor="ann") as graph:
        assert graph.blob("Photo", "text", "data", branch="open").read(1) == b"\0"
        with pytest.raises(PermissionDenied):
            graph.blob("Photo", "text", "data")


def test_blob_in_damaged_file_raises_storage_error(tmp_path: Path) -> None:
    with og.init(str(tmp_path / "g"), SCHEMA, durability="os") as graph:
        graph.load({"Photo": ROWS})
    data = max((tmp_path / "g").rglob("data/*.lance"), key=lambda file: file.stat().st_size)
    content = data.read_bytes()
    flipped = bytearray(content)
    flipped[content.index(LARGE[:64])] ^= 1
    data.write_bytes(flipped)
    with og.open(str(tmp_path / "g"), "r", verify_reads=True) as graph, pytest.raises(StorageError) as error:
        graph.blob("Photo", "large", "data").read(1)
    assert data.name in str(error.value)
    data.write_bytes(content[:-1])
    with og.open(str(tmp_path / "g"), "r") as graph, pytest.raises(StorageError) as error:
        graph.blob("Photo", "large", "data").read(1)
    assert data.name in str(error.value)


def test_async_blob_reads_in_coroutines(places: Places) -> None:
    async def read() -> list[object]:
        async with (
            og.aio.open(places.local.uri, "r") as graph,
            await graph.blob("Photo", "large", "data") as blob,
        ):
            first, part = await blob.read(4), await blob.read_range(1, 3)
            chunks = [chunk async for chunk in blob.chunks()]
            return [blob.size, blob.tell(), first, part, b"".join(chunks)]

    assert asyncio.run(read()) == [len(LARGE), 4, LARGE[:4], LARGE[1:3], LARGE]


@given(
    st.binary(max_size=2_000),
    st.lists(st.tuples(st.integers(-5, 2_100), st.integers(-2, 500)), max_size=12),
)
@settings(max_examples=100, deadline=None)
def test_blob_reads_and_seeks_agree_with_bytes_io(data: bytes, steps: list[tuple[int, int]]) -> None:
    class Content:
        def read(self, start: int, end: int) -> bytes:
            return data[start:end]

    blob, expected = Blob(BlobInfo("s", len(data)), Content()), io.BytesIO(data)
    for offset, count in steps:
        if offset >= 0:
            assert blob.seek(offset) == expected.seek(offset)
        assert blob.read(count) == expected.read(count)
        target, other = bytearray(abs(count)), bytearray(abs(count))
        assert blob.readinto(target) == expected.readinto(other)
        assert (target, blob.tell()) == (other, expected.tell())


CHILD = """
import json, sys
import httpx
import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import running

def memory(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))

uri, size = sys.argv[1], int(sys.argv[2])
found = {}
with running(open_graphs(Hosting((GraphSource("g", uri),)), TokenRegistry())) as server:
    with og.open(uri, "r") as graph, og.connect(server.url, "g") as remote:
        def local(): return sum(map(len, graph.blob("Photo", "a", "data").chunks()))
        def served(): return sum(map(len, remote.blob("Photo", "a", "data").chunks()))
        def streamed():
            params = {"entity": "node", "type": "Photo", "id": "a", "property": "data"}
            with httpx.stream("GET", f"{server.url}/graphs/g/blob", params=params) as response:
                return sum(map(len, response.iter_bytes()))
        graph.blob("Photo", "small", "data").read()
        remote.blob("Photo", "small", "data").read()
        for work in (
            lambda: graph.blob("Photo", "a", "data").size,
            lambda: len(graph.blob("Photo", "a", "data").read_range(size - 1000, size)),
            lambda: len(remote.blob("Photo", "a", "data").read_range(size - 1000, size)),
            local, served, streamed,
        ):
            open("/proc/self/clear_refs", "w").write("5")
            before = memory("VmRSS")
            result = work()
            found[str(len(found))] = [result, memory("VmHWM") - before]
print(json.dumps(found))
"""


def test_blob_reads_need_memory_of_a_chunk_not_of_the_value(tmp_path: Path) -> None:
    size = 48 << 20
    uri = str(tmp_path / "g")
    with og.init(uri, SCHEMA, durability="os") as graph:
        graph.load({"Photo": [{"name": "a", "data": bytes(size)}, {"name": "small", "data": b"x"}]})
    done = subprocess.run(
        [sys.executable, "-c", CHILD, uri, str(size)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path.cwd(),
    )
    found = list(json.loads(done.stdout.splitlines()[-1]).values())
    assert [result for result, _ in found] == [size, 1_000, 1_000, size, size, size]
    growth = [peak >> 20 for _, peak in found]
    assert max(growth) < 16, growth
