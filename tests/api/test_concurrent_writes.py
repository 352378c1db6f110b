"""Many threads or tasks that write to one branch through one handle: every write keeps its own receipt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import omnigraph as og
from omnigraph.errors import ConstraintViolation, InvalidInput, PreconditionFailed
from tests.support.places import fresh_memory, together

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
ADD = "query add($n: String, $a: I32) { insert Person { name: $n, age: $a } }"
LINK = "query link($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
RAISE = "query older($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
ALL = "query all() { match { $p: Person } return { $p.name as name, $p.age as age } }"


def new_graph() -> og.LocalGraph:
    return og.init(fresh_memory(), SCHEMA, durability="os")


def commit_ids(graph: og.LocalGraph) -> list[str]:
    """The ids of the first-parent history, oldest first."""
    return [commit.id for commit in graph.commits()][::-1]


def test_mutations_and_loads_of_many_threads_form_one_chain() -> None:
    with new_graph() as graph:
        graph.load({"Person": [{"name": "hub", "age": 0}]})
        before = len(commit_ids(graph))
        works: list[Callable[[], og.Receipt | og.LoadReceipt]] = []
        for number in range(8):
            works.append(partial(graph.mutate, ADD, {"n": f"m{number}", "a": number}))
            works.append(
                partial(graph.load, {"Person": [{"name": f"l{number}", "age": number}]}, mode="append")
            )
        done = together(works)
        receipts = [item for item in done if not isinstance(item, Exception)]
        assert len(receipts) == 16, done
        made = [item.commit.id for item in receipts if item.commit is not None]
        ids = commit_ids(graph)
        assert sorted(ids[before:]) == sorted(made)
        names = {row["name"] for row in graph.query(ALL).rows()}
        assert names == {"hub", *(f"m{n}" for n in range(8)), *(f"l{n}" for n in range(8))}
        for item in receipts:
            assert item.affected == {"Person": {"inserted": 1, "updated": 0, "deleted": 0}}


def test_upserts_of_one_key_by_many_threads_leave_one_row() -> None:
    with new_graph() as graph:
        done = together([partial(graph.mutate, ADD, {"n": "same", "a": number}) for number in range(10)])
        receipts = [item for item in done if isinstance(item, og.Receipt)]
        assert len(receipts) == 10, done
        inserted = sum(item.affected["Person"]["inserted"] for item in receipts)
        updated = sum(item.affected["Person"]["updated"] for item in receipts)
        assert (inserted, updated) == (1, 9)
        (row,) = graph.query(ALL).rows()
        newest = graph.commits()[0].id
        last = next(
            number for number, item in enumerate(receipts) if item.commit and item.commit.id == newest
        )
        assert row == {"name": "same", "age": last}


def test_invalid_writes_of_some_threads_fail_alone() -> None:
    with new_graph() as graph:
        graph.load({"Person": [{"name": "hub"}]})
        head = graph.commits()[0].id
        works: list[Callable[[], og.Receipt]] = []
        for number in range(4):
            works += [
                partial(graph.mutate, ADD, {"n": f"p{number}", "a": number}),
                partial(graph.mutate, LINK, {"a": "hub", "b": "nobody"}),
                partial(graph.mutate, "query bad() { insert Nothing { x: 1 } }"),
                partial(graph.mutate, LINK, {"a": "hub", "b": "hub"}),
                partial(graph.mutate, ADD, {"n": f"q{number}", "a": number}, if_commit=head),
            ]
        done = together(works)
        assert all(isinstance(item, og.Receipt) for item in done[0::5])
        assert all(isinstance(item, ConstraintViolation) for item in done[1::5])
        assert all(isinstance(item, InvalidInput) for item in done[2::5])
        assert all(isinstance(item, og.Receipt) for item in done[3::5])
        kept = [item for item in done[4::5] if isinstance(item, og.Receipt)]
        assert len(kept) <= 1
        assert all(isinstance(item, PreconditionFailed) for item in done[4::5] if item not in kept)
        assert graph.snapshot().types["edge:Knows"].rows == 4


def test_counter_updated_by_many_threads_ends_at_a_written_value() -> None:
    with new_graph() as graph:
        graph.load({"Person": [{"name": "c", "age": 0}]})
        done = together([partial(graph.mutate, RAISE, {"n": "c", "a": number}) for number in range(1, 9)])
        assert all(isinstance(item, og.Receipt) for item in done), done
        ages = [
            next(iter(graph.query(ALL, at=item.commit.id).rows()))["age"]
            for item in done
            if isinstance(item, og.Receipt) and item.commit is not None
        ]
        # Each commit has the value of its own write.
        assert ages == list(range(1, 9))


def test_tasks_of_an_event_loop_that_write_together_each_get_their_receipt() -> None:
    async def write(uri: str) -> list[str]:
        async with await og.aio.open(uri) as graph:
            done = await asyncio.gather(
                *(graph.mutate(ADD, {"n": f"t{number}", "a": number}) for number in range(12))
            )
        return [item.commit.id for item in done if item.commit is not None]

    with new_graph() as graph:
        ids = asyncio.run(write(graph.uri))
        assert len(set(ids)) == 12
        assert set(ids) < set(commit_ids(graph))
