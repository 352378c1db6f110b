"""The feed of a branch: every commit at least once and in order, whatever pages, stops and readers do."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.changes.feed import FeedPage, FeedRequest, begin_poll
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.errors import ChangeFeedGap, Conflict, InvalidInput, NotFound, ResourceLimit
from omnigraph.graph.repository import Repository
from omnigraph.maintain.cleanup import cleanup
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord
from tests.support.places import fresh_memory
from tests.support.repositories import apply_schema, make_graph, put, rewriting, wear, write

REJECTED = r"^change cursor rejected: "
NEXT_SCHEMA = """
node Person { name: String? }
node City { name: String?  mayor: String? }
edge Knows: Person -> Person
"""


@pytest.fixture
def graph() -> Repository:
    return make_graph(fresh_memory())


def api(graph: Repository) -> og.Graph:
    return og.open(graph.location.uri)


def summary(page: FeedPage) -> list[tuple[str, list[tuple[str, str]]]]:
    return [
        (block.cause.graph_commit_id, [(change.op, change.id) for change in block.changes]) for block in page
    ]


def blocks_of(commits: list[CommitRecord]) -> list[str]:
    return [commit.id for commit in commits]


def drained(g: og.Graph, limit: int | None = None, **first: Any) -> list[tuple[str, list[tuple[str, str]]]]:
    """Everything from a start on, page by page and poll by poll; pieces of one block are put together."""
    kept = {key: value for key, value in first.items() if key not in ("start", "cursor")}
    page = g.feed(limit=limit, **first)
    found: dict[str, list[tuple[str, str]]] = {}
    for _ in range(200):
        assert (page.next_page_token is None) != (page.cursor is None)
        for commit, changes in summary(page):
            found.setdefault(commit, []).extend(changes)
        if page.caught_up:
            return list(found.items())
        if page.next_page_token is not None:
            page = g.feed(page_token=page.next_page_token, limit=limit, **kept)
        else:
            page = g.feed(cursor=page.cursor, limit=limit, **kept)
    raise AssertionError("the feed does not end")


class TestWhereToBegin:
    def test_feed_from_now_returns_only_later_commits(self, graph: Repository) -> None:
        put(graph, {"a": "x"})
        page = api(graph).feed()
        assert (page.blocks, page.caught_up, page.next_page_token) == ((), True, None)
        later = put(graph, {"b": "y"})
        page = api(graph).feed(cursor=page.cursor)
        assert summary(page) == [(later.id, [("insert", "b")])]
        assert page.caught_up

    def test_feed_from_beginning_starts_after_the_first_commit(self, graph: Repository) -> None:
        commits = [put(graph, {"a": "x"}), put(graph, {"a": "y"})]
        page = api(graph).feed(start="beginning")
        assert summary(page) == [(commits[0].id, [("insert", "a")]), (commits[1].id, [("update", "a")])]

    def test_feed_of_branch_from_beginning_includes_inherited_commits(self, graph: Repository) -> None:
        first = put(graph, {"a": "x"})
        graph.create_branch("dev")
        put(graph, {"b": "x"})
        own = put(graph, {"c": "x"}, "dev")
        page = api(graph).feed(branch="dev", start="beginning")
        assert [commit for commit, _ in summary(page)] == [first.id, own.id]
        assert [block.cause.authored_branch for block in page] == ["main", "dev"]

    def test_feed_after_commit_starts_at_the_next_one(self, graph: Repository) -> None:
        commits = [put(graph, {"a": str(number)}) for number in range(4)]
        page = api(graph).feed(start=f"after:{commits[1].id}")
        assert [commit for commit, _ in summary(page)] == blocks_of(commits[2:])

    def test_feed_after_commit_of_another_branch_is_refused(self, graph: Repository) -> None:
        graph.create_branch("dev")
        put(graph, {"a": "x"})
        other = put(graph, {"b": "x"}, "dev")
        with pytest.raises(InvalidInput, match=REJECTED):
            api(graph).feed(start=f"after:{other.id}")

    def test_feed_after_an_unknown_commit_raises_not_found(self, graph: Repository) -> None:
        with pytest.raises(NotFound, match="commit '01M7A2RB7M7QCRQ2SCXTK0S625' not found"):
            api(graph).feed(start="after:01M7A2RB7M7QCRQ2SCXTK0S625")

    @pytest.mark.parametrize("start", ["", "soon", "after:", "after: ", "Now"])
    def test_feed_with_invalid_start_is_refused(self, graph: Repository, start: str) -> None:
        text = "needs a commit id" if start.startswith("after:") else f"unknown start '{start}'"
        with pytest.raises(InvalidInput, match=text):
            api(graph).feed(start=start)

    def test_feed_with_cursor_and_start_or_token_is_refused(self, graph: Repository) -> None:
        cursor = api(graph).feed().cursor
        with pytest.raises(InvalidInput, match="mutually exclusive"):
            api(graph).feed(cursor=cursor, start="beginning")
        with pytest.raises(InvalidInput, match="mutually exclusive"):
            api(graph).feed(cursor=cursor, page_token=cursor)

    def test_feed_of_missing_branch_raises_not_found(self, graph: Repository) -> None:
        with pytest.raises(NotFound, match="branch 'dev' not found"):
            api(graph).feed(branch="dev")


@pytest.fixture(scope="module")
def g() -> og.Graph:
    """A history of six commits, of which the second and the fourth changed nothing."""
    graph = make_graph(fresh_memory())
    put(graph, {"a": "x", "b": "x", "c": "x"})
    put(graph, {"a": "x"})
    put(graph, {"a": "y", "d": "x"})
    write(graph, rewriting())
    put(graph, {"Rome": None}, key="node:City")
    put(graph, {"a": "z", "b": "z", "c": "z", "d": "z", "e": "z"})
    return api(graph)


class TestPages:
    @pytest.mark.parametrize("max_commits", [1, 2, 5, 128])
    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 8, 11, None])
    def test_feed_in_small_pages_equals_one_page(
        self, g: og.Graph, limit: int | None, max_commits: int
    ) -> None:
        whole = summary(g.feed(start="beginning"))
        assert [len(changes) for _, changes in whole] == [3, 0, 2, 0, 1, 5]
        assert drained(g, limit, start="beginning", max_commits=max_commits) == whole

    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_feed_filter_keeps_empty_blocks(self, g: og.Graph, limit: int) -> None:
        wanted: Any = {"ops": ["insert"], "types": ["Person"]}
        found = drained(g, limit, start="beginning", **wanted)
        assert [len(changes) for _, changes in found] == [3, 0, 1, 0, 0, 1]

    def test_feed_page_that_ends_within_a_commit_has_a_token_and_no_cursor(self, g: og.Graph) -> None:
        document = g.feed(start="beginning", limit=2).to_json()
        assert document.keys() == {"blocks", "next_page_token"}
        assert g.feed(start="beginning", limit=3).to_json().keys() == {"blocks", "cursor", "caught_up"}

    def test_feed_pages_end_at_the_head_of_the_first_page(self) -> None:
        graph = make_graph(fresh_memory())
        first = put(graph, {"a": "x", "b": "x"})
        page = api(graph).feed(start="beginning", limit=1)
        second = put(graph, {"c": "x"})
        page = api(graph).feed(page_token=page.next_page_token)
        assert summary(page) == [(first.id, [("insert", "b")])]
        assert page.caught_up is False
        assert summary(api(graph).feed(cursor=page.cursor)) == [(second.id, [("insert", "c")])]

    def test_feed_limits_out_of_range_are_refused(self, g: og.Graph) -> None:
        assert [len(g.feed(start="beginning", max_commits=count)) for count in (1, 4, 512)] == [1, 4, 6]
        with pytest.raises(InvalidInput):
            g.feed(max_commits=0)
        with pytest.raises(ResourceLimit) as caught:
            g.feed(max_commits=513)
        assert caught.value.details["resource"] == "change_feed_commits_per_poll"
        with pytest.raises(InvalidInput, match="change page limit must be greater than zero"):
            g.feed(limit=0)

    def test_feed_returns_128_commits_by_default(self) -> None:
        graph = make_graph(fresh_memory())
        commits = [put(graph, {"a": str(number)}) for number in range(130)]
        page = api(graph).feed(start="beginning")
        assert [commit for commit, _ in summary(page)] == blocks_of(commits[:128])
        assert page.caught_up is False
        page = api(graph).feed(cursor=page.cursor)
        assert [commit for commit, _ in summary(page)] == blocks_of(commits[128:])
        assert page.caught_up


def follow(g: og.Graph, cursor: str | None, limit: int, copy: dict[str, str]) -> str | None:
    """Bring a copy of the people up to date; the cursor to go on from."""
    page = g.feed(cursor=cursor, limit=limit)
    while True:
        for change in (change for block in page for change in block.changes):
            assert change.after is not None
            copy[change.id] = change.after["properties"]["name"]
        if page.caught_up:
            return page.cursor
        if page.next_page_token is not None:
            page = g.feed(page_token=page.next_page_token, limit=limit)
        else:
            page = g.feed(cursor=page.cursor, limit=limit)


class TestReaders:
    @settings(max_examples=8, deadline=None)
    @given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=10), st.integers(1, 5))
    def test_feed_consumer_that_restarts_at_its_last_cursor_misses_nothing(
        self, steps: list[tuple[int, bool]], limit: int
    ) -> None:
        graph = make_graph(fresh_memory())
        g = api(graph)
        copy: dict[str, str] = {}
        kept = g.feed().cursor
        for number, (rows, dies) in enumerate([*steps, (4, False)]):
            for turn in "ab":
                put(graph, {f"k{key}": f"{number}{turn}{key}" for key in range(rows)})
            reached = follow(g, kept, limit, copy)
            # Whoever dies begins again where it last wrote down that it was.
            kept = kept if dies else reached
        rows_now = graph.snapshot().scan("node:Person").to_pylist()
        assert copy == {row.pop("id"): row.popitem()[1] for row in rows_now}

    def test_feed_cost_is_independent_of_the_history(
        self, graph: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(40):
            put(graph, {"a": str(number)})
        cursor = api(graph).feed().cursor
        put(graph, {"b": "x"})
        reader = Repository.open(graph.location.uri, mode="r")
        looked: list[str] = []
        find = reader.manifest.find_commit

        def counted(view: ManifestView, id_: str) -> CommitRecord | None:
            looked.append(id_)
            return find(view, id_)

        monkeypatch.setattr(reader.manifest, "find_commit", counted)
        assert len(begin_poll(reader, FeedRequest(cursor=cursor)).read_page(None, Cache(0))) == 1
        assert len(looked) <= 4
        graph.create_branch("dev", at=looked[0])
        other = put(graph, {"c": "x"}, "dev")
        looked.clear()
        with pytest.raises(InvalidInput, match=REJECTED):
            begin_poll(reader, FeedRequest(start=f"after:{other.id}"))
        assert len(looked) <= 4


class TestWhatStopsAFeed:
    def boundary(self, graph: Repository) -> tuple[CommitRecord, CommitRecord, CommitRecord]:
        first = put(graph, {"a": "x"})
        change = apply_schema(graph, NEXT_SCHEMA).commit
        return first, change, put(graph, {"b": "x"})

    def test_feed_at_schema_boundary_ends_the_page_before_it(self, graph: Repository) -> None:
        first, change, last = self.boundary(graph)
        page = api(graph).feed(start="beginning")
        assert [commit for commit, _ in summary(page)] == [first.id]
        assert page.caught_up is False
        with pytest.raises(Conflict) as caught:
            api(graph).feed(cursor=page.cursor)
        assert caught.value.details == {
            "change_diff_refusal": {
                "reason": "schema_boundary",
                "type_name": "City",
                "graph_commit_id": change.id,
            }
        }
        page = api(graph).feed(start=f"after:{change.id}")
        assert summary(page) == [(last.id, [("insert", "b")])]

    def test_feed_readable_commits_end_before_a_schema_boundary(self, graph: Repository) -> None:
        first, _, _ = self.boundary(graph)
        poll = begin_poll(graph, FeedRequest(start="beginning"))
        assert [commit.id for commit in poll.readable_commits()] == [first.id]
        page = poll.read_page(None, Cache(0))
        assert page.caught_up is False
        poll = begin_poll(graph, FeedRequest(cursor=page.cursor))
        with pytest.raises(Conflict):
            poll.readable_commits()

    def test_feed_over_reclaimed_commits_raises_gap_and_baseline_continues(self, tmp_path: Path) -> None:
        graph = make_graph(str(tmp_path / "g"))
        cursor = api(graph).feed().cursor
        lost = [put(graph, {"a": str(number), f"n{number}": "x"}) for number in range(3)]
        cleanup(graph, keep=1, grace=timedelta(0), confirm=True)
        with pytest.raises(ChangeFeedGap) as caught:
            api(graph).feed(cursor=cursor)
        assert caught.value.details == {
            "change_feed_gap": {"cursor": cursor, "first_unreadable_commit_id": lost[0].id}
        }
        with pytest.raises(ChangeFeedGap) as caught:
            api(graph).feed(start="beginning")
        assert caught.value.details == {"change_feed_gap": {"first_unreadable_commit_id": lost[0].id}}
        text = StringIO()
        baseline = api(graph).baseline(text)
        *records, last = [json.loads(line) for line in text.getvalue().splitlines()]
        assert {record["data"]["id"] for record in records} == {"a", "n0", "n1", "n2"}
        assert last == {"baseline": baseline.to_json()}
        assert baseline.snapshot_commit_id == lost[-1].id
        after = put(graph, {"b": "x"})
        assert summary(api(graph).feed(cursor=baseline.resume_cursor)) == [(after.id, [("insert", "b")])]

    def test_feed_at_later_gap_ends_the_page_before_it(self, tmp_path: Path) -> None:
        graph = make_graph(str(tmp_path / "g"))
        kept = put(graph, {"Rome": None}, key="node:City")
        lost = put(graph, {"a": "x"})
        put(graph, {"a": "y"})
        put(graph, {"a": "z"})
        cleanup(graph, keep=1, grace=timedelta(0), confirm=True)
        page = api(graph).feed(start="beginning")
        assert [commit for commit, _ in summary(page)] == [kept.id]
        assert page.caught_up is False
        with pytest.raises(ChangeFeedGap, match=lost.id):
            api(graph).feed(cursor=page.cursor)

    def test_feed_on_warm_handle_after_cleanup_is_complete_or_a_gap(self, tmp_path: Path) -> None:
        graph = make_graph(str(tmp_path / "g"))
        g = api(graph)
        first = put(graph, {"a": "x"})
        for number in range(3):
            put(graph, {"a": str(number)})
        told = summary(g.feed(start="beginning"))
        assert len(told) == 4
        cleanup(graph, keep=1, grace=timedelta(0), confirm=True)
        # Files that it has opened may still be there for it.
        assert self.told_or_gap(g) in (told, first.id)

    def told_or_gap(self, g: og.Graph) -> object:
        try:
            return summary(g.feed(start="beginning"))
        except ChangeFeedGap as error:
            return error.details["change_feed_gap"]["first_unreadable_commit_id"]


class TestReclaimed:
    def test_changes_of_reclaimed_commit_raise_gap(self, tmp_path: Path) -> None:
        graph = make_graph(str(tmp_path / "g"))
        wear(graph)
        first = put(graph, {"a": "x"})
        put(graph, {"a": "y"})
        put(graph, {"a": "z"})
        cleanup(graph, keep=1, grace=timedelta(0), confirm=True)
        g = og.open(graph.location.uri)
        with pytest.raises(ChangeFeedGap) as caught:
            g.changes(first.id)
        assert caught.value.details == {"change_feed_gap": {"first_unreadable_commit_id": first.id}}

    def test_diff_of_reclaimed_state_names_it(self, tmp_path: Path) -> None:
        graph = make_graph(str(tmp_path / "g"))
        first = put(graph, {"a": "x"})
        put(graph, {"a": "y"})
        cleanup(graph, keep=1, grace=timedelta(0), confirm=True)
        g = og.open(graph.location.uri)
        for states in ((first.id, "main"), ("main", first.id)):
            with pytest.raises(NotFound, match=f"data of commit '{first.id}' was reclaimed"):
                list(g.diff(*states))
            with pytest.raises(NotFound, match="reclaimed"):
                g.diff(*states).stats()

    def test_diff_of_collected_commits_is_never_answered_from_memory(self, tmp_path: Path) -> None:
        graph = make_graph(str(tmp_path / "g"))
        first = put(graph, {"a": "x"})
        second = put(graph, {"b": "x"})
        with og.open(graph.location.uri) as warm:
            diff = warm.diff(first.id, second.id)
            assert [change.id for change in diff] == ["b"]
            assert diff.stats() == {"Person": {"insert": 1, "update": 0, "delete": 0}}
            assert [change.id for change in warm.changes(second.id).changes] == ["b"]
            put(graph, {"a": "y"})
            cleanup(graph, keep=1, grace=timedelta(0), confirm=True)
            for again in (diff, warm.diff(first.id, second.id)):
                with pytest.raises(NotFound, match="was reclaimed"):
                    list(again)
                with pytest.raises(NotFound, match="was reclaimed"):
                    again.stats()
            with pytest.raises(ChangeFeedGap):
                warm.changes(second.id)
