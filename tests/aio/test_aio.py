"""The async twin: the calls of `Graph` with the same parameters and results, for coroutines."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable, Coroutine
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import omnigraph as og
from omnigraph.aio import AsyncBranches, AsyncEmbeddings, AsyncGraph, AsyncSchemaView, AsyncTags
from omnigraph.api.graph import Graph
from omnigraph.api.interface.branches import Branches
from omnigraph.api.interface.embeddings import Embeddings
from omnigraph.api.interface.schemas import SchemaView
from omnigraph.api.interface.tags import Tags
from tests.support.places import fresh_memory
from tests.support.waiting import HANG

SCHEMA = "node Person { name: String @key  age: I32? }  edge Knows: Person -> Person"
ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
COUNT = "query people() { match { $p: Person } return { count($p) as n } }"

TWINS = (
    (Graph, AsyncGraph),
    (Branches, AsyncBranches),
    (Tags, AsyncTags),
    (SchemaView, AsyncSchemaView),
    (Embeddings, AsyncEmbeddings),
)


# They wait for nothing. A batch waits when its context ends.
PLAIN = {"acting_as", "batch"}


def run(work: Callable[[AsyncGraph], Coroutine[Any, Any, None]]) -> None:
    """Work with a new graph in an event loop of its own."""

    async def main() -> None:
        async with og.aio.init(fresh_memory(), schema=SCHEMA, actor="ana") as graph:
            await work(graph)

    asyncio.run(main())


def public(kind: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


class Gate:
    """Progress that holds a load up in its thread until it is opened."""

    def __init__(self) -> None:
        self.reached = Event()
        self.open = Event()

    def __call__(self, _stage: str, _rows: int) -> None:
        self.reached.set()
        assert self.open.wait(HANG)


async def until(event: Event) -> None:
    assert await asyncio.to_thread(event.wait, HANG)


class Recorder:
    """Stands where the plain object would, and only notes what it is called with."""

    def __init__(self, kind: type) -> None:
        self.actor = None
        self.branches = self.tags = self.schema = self.embeddings = None
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._kind = kind

    def __getattr__(self, name: str) -> Callable[..., None]:
        signature = inspect.signature(getattr(self._kind, name))

        def note(*args: Any, **kwargs: Any) -> None:
            given = signature.bind(None, *args, **kwargs).arguments
            self.calls.append((name, {key: value for key, value in given.items() if key != "self"}))

        return note


class TestSignatures:
    @pytest.mark.parametrize(("plain", "twin"), TWINS)
    def test_async_methods_pass_every_argument(self, plain: type, twin: type) -> None:
        async def call(name: str, member: Callable[..., Any]) -> None:
            recorder = Recorder(plain)
            threads = () if plain is Graph else (AsyncGraph(og.init(fresh_memory(), schema=SCHEMA))._threads,)
            given = {key: object() for key in inspect.signature(member).parameters if key != "self"}
            await getattr(twin(recorder, *threads), name)(**given)
            assert recorder.calls == [(name, given)]

        for name, member in public(plain).items():
            if inspect.isfunction(member) and name not in PLAIN:
                asyncio.run(call(name, member))

    @pytest.mark.parametrize(("plain", "twin"), TWINS)
    def test_async_classes_have_the_same_members(self, plain: type, twin: type) -> None:
        assert public(twin).keys() == public(plain).keys()

    @pytest.mark.parametrize(("plain", "twin"), TWINS)
    def test_async_methods_are_coroutines_with_the_same_signature(self, plain: type, twin: type) -> None:
        for name, member in public(plain).items():
            if name in PLAIN:
                continue
            if isinstance(member, property):
                assert isinstance(public(twin)[name], property)
                continue
            assert inspect.iscoroutinefunction(public(twin)[name]), name
            found, expected = inspect.signature(public(twin)[name]), inspect.signature(member)
            assert found.parameters == expected.parameters, name
            # A file has reads of its own, which are coroutines too.
            returns = "AsyncBlob" if name == "blob" else expected.return_annotation
            assert found.return_annotation == returns, name

    @pytest.mark.parametrize("name", ["init", "open"])
    def test_async_open_and_init_take_the_same_arguments(self, name: str) -> None:
        plain, twin = inspect.signature(getattr(og, name)), inspect.signature(getattr(og.aio, name))
        assert twin.parameters == plain.parameters

    def test_async_graph_has_the_same_attributes(self) -> None:
        async def work(graph: AsyncGraph) -> None:
            plain = og.open(graph.uri)
            ours = {name for name in vars(graph) if not name.startswith("_")}
            assert ours == {name for name in vars(plain) if not name.startswith("_")}
            assert (graph.actor, graph.uri) == ("ana", plain.uri)

        run(work)


class TestOpening:
    def test_aio_module_is_importable(self) -> None:
        code = "import omnigraph.aio as a, omnigraph as og, sys; print(a is og.aio, 'asyncio' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "True False\n"

    def test_async_open_can_be_awaited_entered_and_made_a_task(self, tmp_path: Path) -> None:
        async def main() -> None:
            uri = str(tmp_path / "g.omni")
            graph = await og.aio.init(uri, schema=SCHEMA, durability="os")
            await graph.mutate(ADD, {"n": "Ana"})
            await graph.close()
            async with og.aio.open(uri, mode="r") as graph:
                assert (await graph.query(COUNT)).scalar() == 1
            graph = await asyncio.create_task(og.aio.open(uri))
            async with graph:
                assert await graph.get("Person", "Ana") == {"id": "Ana", "age": None, "name": "Ana"}

        asyncio.run(main())

    def test_async_calls_raise_the_same_errors(self) -> None:
        async def main() -> None:
            with pytest.raises(og.errors.NotFound) as caught:
                await og.aio.open(fresh_memory())
            assert caught.value.hint == "create one with init"

        asyncio.run(main())

    def test_async_call_after_close_is_refused(self) -> None:
        async def main() -> None:
            graph = await og.aio.init(fresh_memory(), schema=SCHEMA)
            await graph.close()
            with pytest.raises(og.errors.InvalidInput, match="the graph is closed"):
                await graph.query(COUNT)

        asyncio.run(main())

    def test_pickle_of_async_graph_reopens_it(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with og.aio.init(str(tmp_path / "g.omni"), schema=SCHEMA, actor="ana") as graph:
                twin = pickle.loads(pickle.dumps(graph))
                await graph.mutate(ADD, {"n": "Bo"})
                async with twin:
                    assert (twin.uri, twin.actor) == (graph.uri, "ana")
                    assert (await twin.query(COUNT)).scalar() == 1

        asyncio.run(main())


class TestCalls:
    def test_async_calls_return_the_same_results(self, tmp_path: Path) -> None:
        async def work(graph: AsyncGraph) -> None:
            plain = og.open(graph.uri)
            added = await graph.mutate(ADD, {"n": "Ana", "a": 30}, message="first")
            assert added.commit is not None
            loaded = await graph.load({"Person": [{"name": "Bo"}], "Knows": [{"from": "Ana", "to": "Bo"}]})
            assert (loaded.nodes, loaded.edges) == ({"Person": 1}, {"Knows": 1})
            assert await graph.commits() == plain.commits()
            assert await graph.commits(limit=1, actor="ana") == plain.commits(limit=1, actor="ana")
            assert await graph.commit(added.commit.id) == added.commit == plain.commit(added.commit.id)
            assert (await graph.query(COUNT, at=added.commit.id)).scalar() == 1
            assert (await graph.query(COUNT)).to_json() == plain.query(COUNT).to_json()
            assert await graph.explain(COUNT) == plain.explain(COUNT)
            assert await graph.get("Person", "Ana", at=added.commit.id) == plain.get("Person", "Ana")
            assert (await graph.snapshot()).commit_id == plain.snapshot().commit_id
            assert await graph.schema.source() == SCHEMA
            written = StringIO()
            assert await graph.export(written, types=["Person"]) == 2
            assert await graph.export(tmp_path / "dump.ndjson", types=["Person"]) == 2
            assert (tmp_path / "dump.ndjson").read_text(encoding="utf-8") == written.getvalue()
            assert (await graph.cleanup(keep=1))["confirmed"] is False
            made = await graph.branches.create("review/x", at=added.commit.id)
            assert made.commit_id == added.commit.id
            assert await graph.branches.list() == ["main", "review/x"]
            await graph.branches.delete("review/x")
            assert await graph.branches.list() == ["main"]
            tag = await graph.tags.create("v1", at=added.commit.id)
            assert await graph.tags.list() == [tag]
            await graph.tags.delete("v1")
            assert await graph.tags.list() == []

        run(work)

    def test_async_merge_and_revert_commit(self) -> None:
        async def work(graph: AsyncGraph) -> None:
            await graph.mutate(ADD, {"n": "Ana", "a": 30})
            await graph.branches.create("review")
            grow = 'query grow($a: I32) { update Person set { age: $a } where name = "Ana" }'
            await asyncio.gather(
                graph.mutate(grow, {"a": 31}), graph.mutate(grow, {"a": 32}, branch="review")
            )
            with pytest.raises(og.errors.MergeConflicts):
                await graph.branches.merge("review")
            told = await graph.branches.merge("review", dry_run=True)
            assert [item["property"] for item in told.conflicts] == ["age"]
            merged = await graph.branches.merge("review", resolve="theirs", delete_source=True)
            assert (merged.outcome, merged.branch_deleted) == ("merged", True)
            assert merged.commit is not None
            assert merged.commit.actor == "ana"
            assert (await graph.get("Person", "Ana") or {})["age"] == 32
            undone = await graph.revert(merged.commit.id, message="back")
            assert undone.commit == (await graph.commits(limit=1))[0]
            assert (await graph.get("Person", "Ana") or {})["age"] == 31

        run(work)

    def test_async_queries_and_mutations_run_concurrently(self) -> None:
        async def work(graph: AsyncGraph) -> None:
            async def write(number: int) -> str:
                receipt = await graph.mutate(ADD, {"n": f"p{number:02}", "a": number})
                assert receipt.commit is not None
                return receipt.commit.id

            async def read() -> int:
                return int((await graph.query(COUNT)).scalar())

            writes = asyncio.gather(*(write(n) for n in range(24)))
            counts = await asyncio.gather(*(read() for _ in range(48)))
            history = [commit.id for commit in await graph.commits(limit=None)]
            assert set(history) <= {*(await writes), history[-1]}
            assert all(0 <= n <= 24 for n in counts)
            assert len(await graph.commits(limit=None)) == 25
            assert await read() == 24

        run(work)

    def test_async_reads_do_not_wait_for_writes(self) -> None:
        async def work(graph: AsyncGraph) -> None:
            gates = [Gate() for _ in range(8)]
            loads = [
                asyncio.create_task(graph.load({"Person": [{"name": f"p{n}"}]}, progress=gate))
                for n, gate in enumerate(gates)
            ]
            await until(gates[0].reached)
            assert (await asyncio.wait_for(graph.query(COUNT), HANG)).scalar() == 0
            for gate in gates:
                gate.open.set()
            await asyncio.gather(*loads)
            assert (await graph.query(COUNT)).scalar() == 8

        run(work)


class TestCancellation:
    def test_async_write_cancelled_after_its_start_is_completed(self) -> None:
        async def work(graph: AsyncGraph) -> None:
            gate = Gate()
            load = asyncio.create_task(graph.load({"Person": [{"name": "Ana"}]}, progress=gate))
            await until(gate.reached)
            load.cancel()
            await asyncio.sleep(0.01)
            load.cancel()
            await asyncio.sleep(0.01)
            assert not load.done()
            gate.open.set()
            with pytest.raises(asyncio.CancelledError):
                await load
            assert (await graph.query(COUNT)).scalar() == 1

        run(work)

    def test_async_write_that_fails_while_cancelled_has_the_error_as_cause(self) -> None:
        async def work(graph: AsyncGraph) -> None:
            gate = Gate()
            edges = {"Knows": [{"from": "nobody", "to": "nowhere"}]}
            load = asyncio.create_task(graph.load(edges, progress=gate))
            await until(gate.reached)
            load.cancel()
            gate.open.set()
            with pytest.raises(asyncio.CancelledError) as caught:
                await load
            assert isinstance(caught.value.__cause__, og.errors.ConstraintViolation)
            assert [commit.operation for commit in await graph.commits()] == ["init"]

        run(work)

    def test_async_write_cancelled_before_its_start_does_not_run(self) -> None:
        async def work(graph: AsyncGraph) -> None:
            gate = Gate()
            running = [
                asyncio.create_task(graph.load({"Person": [{"name": f"p{n}"}]}, progress=gate))
                for n in range(4)
            ]
            await until(gate.reached)
            queued = asyncio.create_task(graph.mutate(ADD, {"n": "never"}))
            await asyncio.sleep(0.01)
            queued.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(queued, HANG)
            gate.open.set()
            await asyncio.gather(*running)
            assert await graph.get("Person", "never") is None
            assert (await graph.query(COUNT)).scalar() == 4

        run(work)

    def test_async_write_with_timeout_raises_timeout_error(self) -> None:
        async def work(graph: AsyncGraph) -> None:
            gate = Gate()
            load = asyncio.create_task(graph.load({"Person": [{"name": "Ana"}]}, progress=gate))
            await until(gate.reached)
            asyncio.get_running_loop().call_later(0.2, gate.open.set)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(load, 0.05)
            # It came to its end before the timeout was raised.
            assert await graph.get("Person", "Ana") is not None

        run(work)

    def test_async_close_waits_for_running_calls(self, tmp_path: Path) -> None:
        async def main() -> None:
            uri = str(tmp_path / "g.omni")
            gate = Gate()
            async with og.aio.init(uri, schema=SCHEMA, durability="os") as graph:
                load = asyncio.create_task(graph.load({"Person": [{"name": "Ana"}]}, progress=gate))
                await until(gate.reached)
                asyncio.get_running_loop().call_later(0.05, gate.open.set)
            assert og.open(uri).query(COUNT).scalar() == 1
            assert (await load).total == 1

        asyncio.run(main())
