"""What Spark's driver plans and its tasks read of changes, in one process: places, shares, and what ends it all."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.changes.change_records import EVERYTHING, ChangeFilter
from omnigraph.errors import ChangeFeedGap, Conflict, InvalidInput, NotFound
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.lang.ir import Value
from omnigraph.maintain.cleanup import cleanup
from omnigraph.spark.datasource.change_options import FEED_COLUMNS, ChangeSelection, FeedOptions
from omnigraph.spark.datasource.change_sources import DiffSource, FeedSource, Offset
from tests.differential.stored import arrow_rows
from tests.spark.test_datasource import SCHEMA as WIDE
from tests.spark.test_datasource import VALUES
from tests.support.places import fresh_memory

SMALL = "node City { name: String @key  mayor: String? }"
EARLIEST = {"t": "0001-01-01T00:00:00.000Z", "day": "0001-01-01"}
LATEST = {"t": "9999-12-31T23:59:59.999Z", "day": "9999-12-31"}
# Spark's columns as Arrow has them.
TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(FEED_COLUMNS, pa.string()),
    "committed_at": pa.timestamp("us", "UTC"),
    "commit_sequence": pa.int64(),
    "changed": pa.list_(pa.field("element", pa.string())),
}
ROWS = pa.schema([pa.field(name, TYPES[name]) for name in FEED_COLUMNS])
CHANGES = pa.schema(
    [item for item in ROWS if item.name in ("type", "id", "op", "before", "after", "changed")]
)


@pytest.fixture
def graph() -> og.Graph:
    made = og.init(fresh_memory(), schema=SMALL)
    put(made, "Bern", "Rome")
    return made


@pytest.fixture(scope="module")
def moved() -> og.Graph:
    """A graph with a branch of all operations and of values of all types."""
    made = og.init(fresh_memory(), schema=WIDE)
    full = {"name": "full", **{name: loaded for name, (loaded, _) in VALUES.items()}}
    odd = {"name": 'a "b" \\ é\n\x01', "s": "\t", "d": 1e300, "f": 0.1, "days": [], **EARLIEST}
    made.load({"Thing": [full, {"name": "empty"}, odd], "Person": _people(0, 120)})
    made.branches.create("trial")
    things = [{**full, "s": "other", "ts": ["2000-02-29T00:00:00Z"]}, {"name": "new", "vs": [1], **LATEST}]
    knows = [{"from": f"p{n}", "to": f"p{n + 1}", "since": "1999-12-31"} for n in range(60, 90)]
    made.load({"Thing": things, "Person": _people(60, 180), "Knows": knows}, mode="merge", branch="trial")
    made.mutate("query gone() { delete Person where age < 30 }", branch="trial")
    made.mutate('query gone() { delete Thing where name = "empty" }', branch="trial")
    return made


def put(graph: og.Graph, *names: str, branch: str = "main", **values: str) -> str:
    """Insert or replace cities; the commit."""
    rows = [{"name": name, **values} for name in names]
    commit = graph.load({"City": rows}, mode="merge", branch=branch).commit
    assert commit is not None
    return commit.id


def source(graph: og.Graph, start: str = "beginning", **options: Any) -> FeedSource:
    asked = FeedOptions(graph.uri, {}, "main", start, ChangeSelection(), tuple(FEED_COLUMNS), 128, 1_000)
    return FeedSource(replace(asked, **options))


def told(feed: FeedSource, start: Offset, end: Offset) -> list[tuple[str, str, str]]:
    """The changes of a batch, as they are read by processes that get nothing but a pickle."""
    found = []
    for part in feed.partitions(start, end):
        elsewhere = pickle.loads(pickle.dumps((FeedSource(feed.options), part)))
        rows = [row for batch in elsewhere[0].read(elsewhere[1], ROWS) for row in batch.to_pylist()]
        found += [(row["commit_id"], row["op"], row["id"]) for row in rows]
    return found


@contextmanager
def opened(graph: og.Graph) -> Iterator[Repository]:
    repository = Repository.open(graph.uri)
    yield repository
    repository.close()


class TestPlaces:
    def test_change_stream_batch_has_at_most_max_commits_and_misses_none(self, graph: og.Graph) -> None:
        commits = [graph.commits()[0].id, *(put(graph, f"c{n}") for n in range(4))]
        feed = source(graph, max_commits=2)
        place, seen = feed.first(), []
        while (end := feed.next(place)) != place:
            seen.append([commit for commit, *_ in told(feed, place, end)])
            place = end
        assert seen == [[commits[0]] * 2 + [commits[1]], commits[2:4], commits[4:]]

    def test_change_stream_read_to_the_end_is_one_batch(self, graph: og.Graph) -> None:
        for number in range(4):
            put(graph, f"c{number}")
        feed = source(graph, max_commits=2)
        end = feed.next(feed.first(), everything=True)
        assert end["commit"] == graph.commits()[0].id

    def test_change_stream_commit_after_the_batch_end_is_in_the_next_batch(self, graph: og.Graph) -> None:
        feed = source(graph)
        last, newest = feed.newest(), graph.commits()[0].id
        later = put(graph, "Oslo")
        place = feed.next(feed.first(), last)
        assert place["commit"] == newest
        assert feed.next(place, last) == place
        assert feed.next(place)["commit"] == later

    def test_change_stream_from_now_starts_with_an_empty_batch(self, graph: og.Graph) -> None:
        feed = source(graph, "now")
        first = feed.first()
        missed = put(graph, "Oslo")
        kept = feed.next(first)
        assert kept != first
        assert told(feed, first, kept) == []
        assert told(feed, kept, feed.next(kept)) == [(missed, "insert", "Oslo")]

    def test_change_stream_first_batch_repeated_after_a_commit_is_empty(self, graph: og.Graph) -> None:
        feed = source(graph, "now")
        kept = feed.next(feed.first())
        put(graph, "Oslo")
        # Spark keeps the end of a batch and not its beginning.
        assert feed.partitions(source(graph, "now").first(), kept) == []

    @pytest.mark.parametrize(
        ("part", "words"),
        [("graph", "another graph"), ("branch", "another branch"), ("filter", "another filter")],
    )
    def test_change_stream_offset_of_another_graph_branch_or_filter_is_rejected(
        self, graph: og.Graph, part: str, words: str
    ) -> None:
        feed = source(graph)
        first = feed.first()
        end = feed.next(first)
        with pytest.raises(InvalidInput, match=f"^change cursor rejected: it .* {words}"):
            feed.next({**first, part: "x"})
        with pytest.raises(InvalidInput, match=f"^change cursor rejected: it .* {words}"):
            feed.partitions(first, {**end, part: "x"})

    def test_change_stream_offset_of_another_source_kind_is_rejected(self, graph: og.Graph) -> None:
        with pytest.raises(
            InvalidInput, match=r"^change cursor rejected: it is not an offset of a change stream"
        ):
            source(graph).next({"index": "3"})

    def test_change_stream_offsets_in_wrong_order_are_rejected(self, graph: og.Graph) -> None:
        feed = source(graph)
        first = feed.first()
        with pytest.raises(InvalidInput, match="is not in the history of commit"):
            feed.partitions(feed.next(first), first)

    def test_change_stream_of_a_recreated_branch_is_refused(self, graph: og.Graph) -> None:
        graph.branches.create("trial")
        feed = source(graph, branch="trial")
        place = feed.next(feed.first())
        put(graph, "Oslo", branch="trial")
        graph.branches.delete("trial")
        graph.branches.create("trial")
        with pytest.raises(InvalidInput, match="another branch, or to an earlier branch of the same name"):
            feed.next(place)


class TestWhatEndsAStream:
    def test_change_stream_schema_change_ends_the_batch_and_then_the_stream(self, graph: og.Graph) -> None:
        before = graph.commits()[0].id
        graph.schema.apply(SMALL.replace("}", "people: I64? }"))
        boundary = graph.commits()[0].id
        put(graph, "Oslo")
        for everything in (False, True):
            feed = source(graph, max_commits=1)
            place = feed.next(feed.first(), everything=everything)
            assert place["commit"] == before
            with pytest.raises(
                Conflict, match=f"^commit '{boundary}' changed the schema of 'City'"
            ) as refused:
                feed.next(place)
            assert f"'after:{boundary}'" in str(refused.value.hint)

    def test_change_stream_over_removed_data_reports_a_gap(self, tmp_path: Path) -> None:
        graph = og.init(str(tmp_path / "g"), schema=SMALL)
        lost = put(graph, "Bern")
        put(graph, "Bern", mayor="Ana")
        feed = source(graph)
        first = feed.first()
        end = feed.next(first)
        parts = feed.partitions(first, end)
        with opened(graph) as repository:
            cleanup(repository, keep=1, grace=timedelta(0), confirm=True)
        fresh = source(graph)
        words = f"^the changes of commit '{lost}' were reclaimed by cleanup"
        for notice in (
            lambda: fresh.next(first),
            lambda: fresh.partitions(first, end),
            lambda: [list(fresh.read(part, ROWS)) for part in parts],
        ):
            with pytest.raises(ChangeFeedGap, match=words) as caught:
                notice()
            assert "start 'after:' with its snapshot_commit_id" in str(caught.value.hint)

    def test_diff_source_of_removed_data_names_the_commit(self, tmp_path: Path) -> None:
        graph = og.init(str(tmp_path / "g"), schema=SMALL)
        gone, kept = put(graph, "Bern"), put(graph, "Bern", mayor="Ana")
        there = DiffSource(graph.uri, {}, gone, kept, EVERYTHING, 1_000)
        back = replace(there, before=kept, after=gone)
        parts = [(diff, diff.partitions()) for diff in (there, back)]
        with opened(graph) as repository:
            cleanup(repository, keep=1, grace=timedelta(0), confirm=True)
        for diff, planned in parts:
            with pytest.raises(NotFound, match=f"the data of commit '{gone}' was reclaimed"):
                diff.partitions()
            with pytest.raises(NotFound, match=f"the data of commit '{gone}' was reclaimed"):
                [list(diff.read(part, CHANGES)) for part in planned]


class TestShares:
    @settings(max_examples=25, deadline=None)
    @given(
        states=st.permutations(["main", "trial"]),
        rows=st.sampled_from([7, 50, 10_000]),
        kinds=st.sampled_from([None, ["node"], ["edge"]]),
        types=st.sampled_from([None, ["Person"], ["Thing", "Knows"]]),
        ops=st.sampled_from([None, ["insert"], ["update"], ["insert", "delete"]]),
    )
    def test_diff_source_partitions_return_each_change_once(
        self, moved: og.Graph, states: list[str], rows: int, kinds: Any, types: Any, ops: Any
    ) -> None:
        before, after = (moved.snapshot(name).commit_id for name in states)
        diff = DiffSource(moved.uri, {}, before, after, ChangeFilter.of(kinds, types, ops), rows)
        expected = [
            (
                change.type_name,
                change.id,
                change.op,
                _text(change.before),
                _text(change.after),
                list(change.changed),
            )
            for change in moved.diff(*states, kinds=kinds, types=types, ops=ops)
        ]
        assert sorted(_read(diff)) == sorted(expected)

    def test_changes_with_dates_after_year_9999_are_numbers(self) -> None:
        made = og.init(fresh_memory(), schema="node Day { name: String @key  day: Date?  t: DateTime? }")
        far: dict[str, Value] = {"id": "far", "name": "far", "day": 2_932_897, "t": 253_402_300_800_000}

        def store(transaction: Transaction) -> Prepared[None]:
            # No load takes them any more; graphs that have them keep them.
            table = transaction.base.table("node:Day")
            transaction.stage(table.key, insert=arrow_rows(table, [far]))
            return Prepared("insert", None)

        with opened(made) as repository:
            repository.write("main", WriteRequest("load"), store)
        last, first = (made.commits()[place].id for place in (0, -1))
        [(*_, after, _)] = _read(DiffSource(made.uri, {}, first, last, EVERYTHING, 1_000))
        assert after == '{"properties":{"day":"2932897","name":"far","t":"253402300800000"}}'

    def test_diff_partition_has_at_most_the_requested_rows_or_one_share(self, moved: og.Graph) -> None:
        before, after = (moved.snapshot(name).commit_id for name in ("main", "trial"))
        planned = {
            rows: DiffSource(moved.uri, {}, before, after, EVERYTHING, rows).partitions()
            for rows in (10, 40, 100)
        }
        for rows, parts in planned.items():
            assert all(sum(share.rows for share in part) <= rows for part in parts)
        people = [
            share
            for part in planned[100]
            for share in part
            if share.after and share.after.table.name == "Person"
        ]
        assert [share.part for share in people] == [(0, 3), (1, 3), (2, 3)]

    def test_diff_source_type_has_at_most_64_partitions(self, moved: og.Graph) -> None:
        before, after = (moved.snapshot(name).commit_id for name in ("main", "trial"))
        people = ChangeFilter.of(types=["Person"])
        parts = DiffSource(moved.uri, {}, before, after, people, 1).partitions()
        assert [share.part for part in parts for share in part] == [(number, 64) for number in range(64)]

    def test_change_stream_small_shares_are_grouped_into_partitions(self, graph: og.Graph) -> None:
        for number in range(39):
            put(graph, f"c{number}")
        feed = source(graph)
        first = feed.first()
        assert [len(part) for part in feed.partitions(first, feed.next(first))] == [16, 16, 8]

    def test_change_stream_filter_without_matching_operations_plans_no_partition(
        self, graph: og.Graph
    ) -> None:
        put(graph, "Oslo")
        feed = source(graph, selection=ChangeSelection(ops=("update", "delete")))
        first = feed.first()
        assert feed.partitions(first, feed.next(first)) == []

    def test_change_stream_compaction_and_equal_rewrite_return_no_change(self, graph: og.Graph) -> None:
        feed = source(graph)
        place = feed.next(feed.first())
        # With a row that is new, because a load that changes nothing makes no commit.
        written = put(graph, "Bern", "Oslo")
        graph.optimize()
        end = feed.next(place)
        assert end["commit"] == graph.commits()[0].id not in (place["commit"], written)
        assert told(feed, place, end) == [(written, "insert", "Oslo")]


def _people(first: int, last: int) -> list[dict[str, Any]]:
    return [{"name": f"p{n}", "age": n if first == 0 else n // 2} for n in range(first, last)]


def _read(diff: DiffSource) -> Iterable[tuple[Any, ...]]:
    for part in diff.partitions():
        for batch in diff.read(part, CHANGES):
            yield from (tuple(row.values()) for row in batch.to_pylist())


def _text(image: Any) -> str | None:
    return None if image is None else json.dumps(image, ensure_ascii=False, separators=(",", ":"))
