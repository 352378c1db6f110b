"""Frames: columns put together from older versions are those in storage, and ids are found wherever they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.memory import cached_table
from omnigraph.engine.memory.cached_table import CachedTable
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.graph.repository import Repository
from tests.read.graphs import (
    KNOWS,
    PERSON,
    PLENTY,
    Rows,
    add_column,
    change,
    check_columns,
    drop,
    new_graph,
    put,
    rewrite,
    row_numbers,
    stored,
    values,
)
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server

__all__ = ["s3", "s3_server"]

NAMES = tuple("abcdefgh")


def people(*ids: str, age: int | None = 1) -> Rows:
    return {id_: {"name": f"{id_}-{age}", "age": age, "tags": [id_] * (age or 0)} for id_ in ids}


def ring(*ids: str) -> Rows:
    """An edge from each to the next."""
    return {f"{a}{b}": {"src": a, "dst": b} for a, b in zip(ids, ids[1:] + ids[:1], strict=True)}


@pytest.fixture
def graph() -> Repository:
    """Two fragments of people."""
    found = new_graph()
    put(found, PERSON, people("a", "b", "c"))
    put(found, PERSON, people("d", "e", age=None))
    return found


# --- columns ---------------------------------------------------------------------------------------------


def test_a_column_of_an_empty_table_is_empty_and_of_its_type() -> None:
    frame = CachedTable(new_graph().snapshot(), PERSON, Cache(PLENTY))
    assert frame.column("age").type == pa.int32()
    assert len(frame.column("age")) == 0
    assert frame.positions(pa.array(["a", None, "b", "c", "d", "e"])).tolist() == [-1] * 6
    assert frame.position("a") == -1


def test_a_column_of_nulls_stays_one_over_versions(graph: Repository) -> None:
    cache = Cache(PLENTY)
    graph = new_graph()
    put(graph, PERSON, {id_: {} for id_ in "abc"})
    check_columns(graph.snapshot(), cache)
    put(graph, PERSON, {id_: {} for id_ in "de"})
    drop(graph, PERSON, "b")
    check_columns(graph.snapshot(), cache)


def test_appended_rows_follow_those_in_memory(graph: Repository) -> None:
    cache = Cache(PLENTY)
    check_columns(graph.snapshot(), cache)
    put(graph, PERSON, people("f", "g"))
    check_columns(graph.snapshot(), cache)


def test_deleted_rows_are_left_out_of_what_is_in_memory(graph: Repository) -> None:
    cache = Cache(PLENTY)
    check_columns(graph.snapshot(), cache)
    drop(graph, PERSON, "b")
    check_columns(graph.snapshot(), cache)
    drop(graph, PERSON, ["a", "d"])
    check_columns(graph.snapshot(), cache)
    drop(graph, PERSON, ["e"])
    check_columns(graph.snapshot(), cache)


def test_rows_that_are_replaced_have_their_new_values(graph: Repository) -> None:
    cache = Cache(PLENTY)
    check_columns(graph.snapshot(), cache)
    put(graph, PERSON, people("b", "e", age=2))
    check_columns(graph.snapshot(), cache)
    assert "b-2" in stored(graph.snapshot(), PERSON, "name")


def test_deleted_rows_are_back_when_an_older_version_is_read_after_a_newer_one(graph: Repository) -> None:
    cache = Cache(PLENTY)
    old = graph.snapshot()
    drop(graph, PERSON, "b")
    middle = graph.snapshot()
    drop(graph, PERSON, "c")
    for snapshot in (graph.snapshot(), old, middle, graph.snapshot(), middle):
        check_columns(snapshot, cache)


def test_rewritten_files_are_read_anew(graph: Repository) -> None:
    cache = Cache(PLENTY)
    drop(graph, PERSON, "b")
    check_columns(graph.snapshot(), cache)
    rewrite(graph, PERSON)
    check_columns(graph.snapshot(), cache)


def test_folds_of_many_small_writes_keep_columns_right() -> None:
    graph, cache = new_graph(), Cache(PLENTY)
    for number in range(40):
        put(graph, PERSON, people(f"p{number:02}", age=number % 5))
        if number % 5 == 0:
            check_columns(graph.snapshot(), cache)
    check_columns(graph.snapshot(), cache)


def test_an_added_column_is_null_before_and_has_values_after(graph: Repository) -> None:
    cache = Cache(PLENTY)
    old = graph.snapshot()
    check_columns(old, cache)
    add_column(graph)
    check_columns(graph.snapshot(), cache)
    assert CachedTable(graph.snapshot(), PERSON, cache).column("zeal").to_pylist() == [None] * 5
    put(graph, PERSON, {"f": {"zeal": "glad"}, "a": {"zeal": "calm"}})
    check_columns(graph.snapshot(), cache)
    assert sorted(filter(None, stored(graph.snapshot(), PERSON, "zeal"))) == ["calm", "glad"]
    check_columns(old, cache)


def test_branches_of_one_base_do_not_take_each_others_rows(graph: Repository) -> None:
    cache = Cache(PLENTY)
    check_columns(graph.snapshot(), cache)
    graph.create_branch("side")
    # Each branch's new fragment gets the same number.
    put(graph, PERSON, people("x", "y", age=3))
    put(graph, PERSON, people("x", "y", age=4), branch="side")
    for branch in ("main", "side", "main", "side"):
        check_columns(graph.snapshot(branch), cache)


def test_branches_that_delete_different_rows_of_one_fragment_do_not_mix_them_up(graph: Repository) -> None:
    cache = Cache(PLENTY)
    graph.create_branch("side")
    drop(graph, PERSON, "a")
    drop(graph, PERSON, "b", branch="side")
    for branch in ("main", "side", "main"):
        check_columns(graph.snapshot(branch), cache)
    drop(graph, PERSON, "c")
    drop(graph, PERSON, "a", branch="side")
    for branch in ("side", "main", "side"):
        check_columns(graph.snapshot(branch), cache)


_IDS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "drop", "drop", "rewrite", "look", "branch", "column"]),
        _IDS,
        st.booleans(),
    ),
    min_size=3,
    max_size=9,
)


@settings(max_examples=12, deadline=None)
@given(_STEPS, st.sampled_from([PLENTY, 2_000]))
def test_whatever_happens_to_a_table_its_columns_are_those_in_storage(
    steps: list[tuple[str, list[str], bool]], budget: int
) -> None:
    graph, cache = new_graph(), Cache(budget)
    put(graph, PERSON, people(*NAMES[:5]))
    seen = [graph.snapshot()]
    for number, (kind, ids, aside) in enumerate(steps):
        branch = "side" if aside and "side" in graph.branches() else "main"
        match kind:
            case "put":
                put(graph, PERSON, people(*ids, age=number), branch)
            case "drop":
                drop(graph, PERSON, ids, branch)
            case "rewrite":
                rewrite(graph, PERSON, branch)
            case "look":
                check_columns(seen[number % len(seen)], cache)
            case "branch" if "side" not in graph.branches():
                graph.create_branch("side")
            case "column" if branch == "main" and "zeal" not in graph.snapshot().catalog.source:
                add_column(graph)
        seen.append(graph.snapshot(branch))
        check_columns(seen[-1], cache)


# --- reuse -----------------------------------------------------------------------------------------------


def test_what_is_in_memory_is_not_read_from_storage_again(s3: Bucket) -> None:
    graph = Repository.init(f"{s3.uri}/g", new_graph().snapshot().catalog, options=s3.options)
    put(graph, PERSON, people("a", "b", "c"))
    put(graph, PERSON, people("d", "e"))
    cache = Cache(PLENTY)
    CachedTable(graph.snapshot(), PERSON, cache).column("name")
    put(graph, PERSON, people("f"))
    drop(graph, PERSON, "b")
    later = Repository.open(f"{s3.uri}/g", mode="r", options=s3.options)
    frame = CachedTable(later.snapshot(), PERSON, cache)
    files = [fragment.files for fragment in frame.fragments()]
    with s3.seam.recording() as log:
        values(frame, "name")
    read = {item.key.rsplit("/", 1)[1] for item in log.requests if "/data/" in item.key}
    assert read == {files[2]}, str(log)
    with s3.seam.recording() as log:
        assert sorted(values(frame, "name")) == ["a-1", "c-1", "d-1", "e-1", "f-1"]
    assert log.requests == []
    graph.close()
    later.close()


# --- values and positions --------------------------------------------------------------------------------


def test_values_by_position_repeat_and_a_negative_position_is_null(graph: Repository) -> None:
    for budget in (PLENTY, 0):
        frame = CachedTable(graph.snapshot(), PERSON, Cache(budget))
        names = stored(graph.snapshot(), PERSON, "name")
        wanted = np.array([4, -1, 0, 4, -1, 2])
        found = frame.values("name", wanted).to_pylist()
        assert found == [None if place < 0 else names[place] for place in wanted]
        assert frame.values("tags", np.array([-1, -1])).to_pylist() == [None, None]
        assert frame.values("age", np.zeros(0, np.int64)).type == pa.int32()


@pytest.mark.parametrize("budget", [PLENTY, 0], ids=["in memory", "from storage"])
@pytest.mark.parametrize("count", [1, 4, 5, 30])
def test_ids_are_found_whether_few_or_many_missing_or_null(
    graph: Repository, budget: int, count: int
) -> None:
    drop(graph, PERSON, "b")
    put(graph, PERSON, {"it's": {}, "": {}, "日本": {}})
    frame = CachedTable(graph.snapshot(), PERSON, Cache(budget))
    where: dict[Any, int] = {id_: place for place, id_ in enumerate(stored(graph.snapshot(), PERSON, "id"))}
    pool = ["e", None, "nobody", "it's", "a", "b", "", "日本", "e", None]
    wanted = [pool[place % len(pool)] for place in range(count)]
    found = frame.positions(pa.array(wanted, pa.string()))
    assert row_numbers(frame, found) == [where.get(id_, -1) for id_ in wanted]
    assert row_numbers(frame, [frame.position(id_) for id_ in wanted if id_ is not None]) == [
        where.get(id_, -1) for id_ in wanted if id_ is not None
    ]


def test_a_deleted_row_is_not_found_by_its_id_and_is_where_it_was_never_deleted(graph: Repository) -> None:
    for first, second in (("main", "side"), ("side", "main")):
        cache = Cache(PLENTY)
        if "side" not in graph.branches():
            graph.create_branch("side")
            drop(graph, PERSON, "b")
        # Whichever branch is looked at first, what is kept of it must not be taken for the other's.
        for branch in (first, second, first):
            frame = CachedTable(graph.snapshot(branch), PERSON, cache)
            ids = stored(graph.snapshot(branch), PERSON, "id")
            for id_ in "abcde":
                assert row_numbers(frame, [frame.position(id_)]) == [ids.index(id_) if id_ in ids else -1]


@pytest.mark.parametrize("budget", [PLENTY, 0], ids=["in memory", "from storage"])
def test_more_ids_than_a_lookup_takes_are_found(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_table, "_IDS_PER_FILTER", 7)
    graph = new_graph()
    put(graph, PERSON, {f"p{number:03}": {} for number in range(60)})
    drop(graph, PERSON, [f"p{number:03}" for number in range(0, 60, 7)])
    frame = CachedTable(graph.snapshot(), PERSON, Cache(budget))
    ids = stored(graph.snapshot(), PERSON, "id")
    wanted = [*ids[::-1], "p000", "zz", None, ids[3]]
    expected = [*range(len(ids))[::-1], -1, -1, -1, 3]
    assert row_numbers(frame, frame.positions(pa.array(wanted))) == expected
    monkeypatch.setattr(cached_table, "_MANY_IDS", 10)
    assert row_numbers(frame, frame.positions(pa.array(wanted))) == expected


def test_ids_of_edges_are_found_too() -> None:
    graph = new_graph()
    change(graph, {PERSON: people("a", "b", "c"), KNOWS: ring("a", "b", "c")})
    check_columns(graph.snapshot(), Cache(PLENTY))


def test_a_large_column_is_brought_to_memory_when_it_is_used_again_and_again(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_table, "SMALL_ROWS", 3)
    cache = Cache(PLENTY)
    frame = CachedTable(graph.snapshot(), PERSON, cache)
    assert [frame.cached_column("name") is not None for _ in range(4)] == [False, False, True, True]
    # A later version is made from it at once.
    put(graph, PERSON, people("f"))
    assert CachedTable(graph.snapshot(), PERSON, cache).cached_column("name") is not None
    assert CachedTable(graph.snapshot(), PERSON, Cache(100)).cached_column("name") is None


def test_a_coded_column_has_each_text_once_and_is_that_of_its_version(graph: Repository) -> None:
    cache = Cache(PLENTY)
    put(graph, PERSON, {"x": {"name": "a-1"}, "y": {}})
    for _ in range(2):
        frame = CachedTable(graph.snapshot(), PERSON, cache)
        coded = frame.dictionary_column("name")
        assert coded is not None
        texts = coded.values.to_pylist()
        assert len(set(texts)) == len(texts)
        plain = [None if code < 0 else texts[code] for code in coded.codes[frame.all_rows()]]
        assert plain == stored(graph.snapshot(), PERSON, "name")
        drop(graph, PERSON, ["a", "y"])
    assert CachedTable(graph.snapshot(), PERSON, cache).dictionary_column("age") is None
