"""Histories of writes to edges with a key equal those of a dictionary, by mutations and by loads of every size."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import ConstraintViolation
from omnigraph.graph.repository import Repository
from omnigraph.graph.write_request import WriteRequest
from omnigraph.load.load import prepare_load
from omnigraph.load.spool import LoadLimits, Spool
from omnigraph.rules.load_mode import WriteMode
from omnigraph.sources.python_records import read_dicts
from tests.load.loads import BULK, SMALL, rows
from tests.support.api_writes import as_graph
from tests.support.places import fresh_memory

SCHEMA = """
node P { name: String @key }
edge Rated: P -> P { day: Date  stars: I32?  @key(src, dst, day) }
"""
NAMES = "ab"
Key: TypeAlias = tuple[str, str, int]
Write: TypeAlias = tuple[Key, int | None]
Step: TypeAlias = tuple[str, list[Write], LoadLimits]

keys = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(0, 1))
writes = st.lists(st.tuples(keys, st.sampled_from([None, 1, 2])), min_size=1, max_size=4)
kinds = st.sampled_from(["append", "merge", "overwrite", "insert", "delete"])
steps = st.tuples(kinds, writes, st.sampled_from([SMALL, BULK]))


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, max_size=5))
def test_history_of_keyed_edges_equals_the_dictionary(history: list[Step]) -> None:
    with og.init(fresh_memory(), SCHEMA) as made:
        made.load({"P": [{"name": name} for name in NAMES]}, "append")
        repository = Repository.open(made.uri)
        expected: dict[Key, int | None] = {}
        for kind, written, limits in history:
            after = apply(expected, kind, written)
            if after is None:
                with pytest.raises(ConstraintViolation):
                    write(repository, kind, written, limits)
            else:
                write(repository, kind, written, limits)
                expected = after
            assert stored(repository) == {id_of(key): (key, stars) for key, stars in expected.items()}
        repository.close()


def apply(before: dict[Key, int | None], kind: str, written: list[Write]) -> dict[Key, int | None] | None:
    """Return the edges after a write; None if it is refused."""
    after = {} if kind == "overwrite" else dict(before)
    if kind == "delete":
        for key, _ in written:
            after.pop(key, None)
        return after
    repeated = max(Counter(key for key, _ in written).values()) > 1
    if kind != "insert" and repeated:
        return None
    if kind == "append" and any(key in before for key, _ in written):
        return None
    return after | dict(written)


def write(repository: Repository, kind: str, written: list[Write], limits: LoadLimits) -> None:
    if kind in ("insert", "delete"):
        text = "\n".join(statement(kind, key, stars) for key, stars in written)
        as_graph(repository).mutate(f"query q() {{ {text} }}")
        return
    mode: WriteMode = kind  # type: ignore[assignment]
    catalog = repository.snapshot().catalog
    records = [
        {"edge": "Rated", "from": src, "to": dst, "data": {"day": day, "stars": stars}}
        for (src, dst, day), stars in written
    ]
    with Spool.from_batches(read_dicts(records, catalog), catalog, limits=limits) as spool:
        request = WriteRequest("load", bulk=spool.is_bulk)
        repository.write("main", request, partial(prepare_load, spool=spool, mode=mode))


def statement(kind: str, key: Key, stars: int | None) -> str:
    src, dst, day = key
    date = f'date("1970-01-0{day + 1}")'
    if kind == "delete":
        return f'delete Rated where from = "{src}" and to = "{dst}" and day = {date}'
    given = "" if stars is None else f", stars: {stars}"
    return f'insert Rated {{ from: "{src}", to: "{dst}", day: {date}{given} }}'


def stored(repository: Repository) -> dict[str, Any]:
    return {
        row["id"]: ((row["src"], row["dst"], row["day"].toordinal() - _EPOCH), row["stars"])
        for row in rows(repository, "edge:Rated")
    }


def id_of(key: Key) -> str:
    return f'["{key[0]}","{key[1]}","{key[2]}"]'


# The first day that a Date counts from, as `date.toordinal` counts it.
_EPOCH = 719_163
