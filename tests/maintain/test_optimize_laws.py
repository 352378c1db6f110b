"""Optimize after random writes: rows are unchanged, indexes cover every row, a second run does nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.maintain import compaction_policy
from omnigraph.maintain.compaction_policy import group_by_size, segments_to_build
from omnigraph.store.tables.table_indexes import IndexSegment
from tests.maintain.optimizing import KNOWS, covered, knows, person, told
from tests.support.places import fresh_memory

TARGET = 1_000
SMALL_SCHEMA = """
node Person { name: String @key  age: I32? @index  mail: String? @unique }
edge Knows: Person -> Person { since: I32? @index }
"""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_policy, "SMALL_ROWS", 3)
    monkeypatch.setattr(compaction_policy, "TARGET_ROWS", 16)
    monkeypatch.setattr(compaction_policy, "SEGMENT_ROWS", 24)


weights = st.lists(st.integers(0, 1_200), max_size=20)
bounded = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@bounded
@given(weights)
def test_everything_is_in_one_set_and_none_is_much_larger_than_the_target(found: list[int]) -> None:
    sets = group_by_size(found, TARGET)
    assert sorted(place for places in sets for place in places) == list(range(len(found)))
    assert all(sum(found[place] for place in places) < TARGET for places in sets if len(places) > 1)


@bounded
@given(weights)
def test_group_by_sizeing_again_changes_nothing(found: list[int]) -> None:
    sums = [sum(found[place] for place in places) for places in group_by_size(found, TARGET)]
    assert all(len(places) == 1 for places in group_by_size(sums, TARGET))


@bounded
@given(weights)
def test_few_are_left(found: list[int]) -> None:
    sums = sorted(sum(found[place] for place in places) for places in group_by_size(found, TARGET))
    light = [weight for weight in sums if weight * 2 < TARGET]
    for place, weight in enumerate(light[1:], start=1):
        assert weight > max(compaction_policy.SMALL_ROWS, compaction_policy.RATIO * sum(light[:place]))


@bounded
@given(
    rows=st.dictionaries(st.integers(0, 30), st.integers(1, 20), max_size=12),
    parts=st.lists(st.sets(st.integers(0, 30), min_size=1, max_size=4), max_size=6),
)
def test_segments_cover_every_fragment_once_and_for_good(rows: dict[int, int], parts: list[set[int]]) -> None:
    taken: set[int] = set()
    segments: list[IndexSegment] = []
    for part in parts:
        segments.append(IndexSegment("i", frozenset(part - taken), len(segments)))
        taken |= part
    builds, gone = segments_to_build(rows, segments)
    kept = [item for item in segments if item not in gone]
    after = [*kept, *(IndexSegment("i", frozenset(ids), f"new {place}") for place, ids in enumerate(builds))]
    live = sorted(id_ for item in after for id_ in item.fragments & rows.keys())
    assert live == sorted(rows)
    assert all(item.fragments & rows.keys() for item in after)
    assert segments_to_build(rows, after) == ([], [])


class Model:
    """The graph and a model of its content."""

    def __init__(self) -> None:
        self.graph = og.init(fresh_memory(), schema=SMALL_SCHEMA, durability="os")
        self.ages: dict[str, int] = {}
        self.edges: dict[str, tuple[str, str]] = {}

    def load(self, first: int, count: int) -> None:
        new = [person(number) for number in range(first, first + count)]
        self.graph.load({"Person": new}, "merge")
        self.ages |= {item["name"]: item["age"] for item in new}

    def link(self, first: int, count: int) -> None:
        ends = sorted(self.ages)
        if not ends:
            return
        new = [
            knows(number, int(ends[number % len(ends)][1:]), int(ends[-1 - number % len(ends)][1:]))
            for number in range(first, first + count)
        ]
        self.graph.load({"Knows": new}, "merge")
        self.edges |= {item["id"]: (item["from"], item["to"]) for item in new}

    def delete(self, first: int, count: int) -> None:
        for name in (f"p{number}" for number in range(first, first + count)):
            self.graph.mutate(f'query gone() {{ delete Person where name = "{name}" }}')
            self.ages.pop(name, None)
            self.edges = {key: ends for key, ends in self.edges.items() if name not in ends}

    def update(self, first: int, _: int) -> None:
        self.graph.mutate(f"query change() {{ update Person set {{ age: 90 }} where age = {first % 7} }}")
        self.ages = {name: 90 if age == first % 7 else age for name, age in self.ages.items()}

    def optimize(self, *_: int) -> None:
        before = told(self.graph)
        self.graph.optimize()
        assert told(self.graph) == before
        assert covered(self.graph)
        assert self.graph.optimize().commit is None

    def check(self) -> None:
        for graph in (self.graph, og.open(self.graph.uri, mode="r")):
            rows = told(graph)
            assert {row["p.name"]: row["p.age"] for row in rows[0]} == self.ages
            assert {(row["p.name"], row["q.name"]) for row in rows[3]} == set(self.edges.values())
            assert graph.snapshot().pin(KNOWS).rows == len(self.edges)
            assert [row["p.name"] for row in rows[1]] == sorted(
                name for name, age in self.ages.items() if age >= 3
            )


acts: list[Callable[[Model, int, int], None]] = [
    Model.load,
    Model.load,
    Model.link,
    Model.delete,
    Model.update,
    Model.optimize,
    Model.optimize,
]


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.tuples(st.sampled_from(acts), st.integers(0, 25), st.integers(1, 6)), max_size=12))
def test_any_history_with_optimizes_anywhere_reads_as_the_model_says(
    history: list[tuple[Callable[[Model, int, int], None], int, int]],
) -> None:
    model = Model()
    for act, first, count in history:
        act(model, first, count)
    model.optimize()
    model.check()
