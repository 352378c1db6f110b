"""What a graph over HTTP tells of its past is what the same graph tells at hand."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.api.graph import Graph
from omnigraph.client.changes import RemoteDiff
from omnigraph.client.graph import RemoteGraph
from omnigraph.errors import NotFound, PermissionDenied, StorageError
from tests.client.comparing import SET
from tests.client.conftest import Served
from tests.client.talking import reply, scripted
from tests.server.running import ADD


class TestHistory:
    def test_commits_equal_those_of_a_local_graph(self, remote: RemoteGraph, local: Graph) -> None:
        for name in ("Cid", "Dan", "Eva"):
            local.mutate(ADD, {"n": name}, message=f"adds {name}")
        assert remote.commits() == local.commits()
        assert remote.commits(limit=2) == local.commits(limit=2)
        assert remote.commits(limit=None, actor="ann") == local.commits(limit=None, actor="ann")
        assert len(remote.commits(actor="ann")) == 3
        head = local.commits()[0]
        assert remote.commit(head.id) == head
        assert remote.commit(head.id).created_at.utcoffset() == timedelta(0)
        assert remote.recoveries() == local.recoveries() == []

    def test_history_blame_and_names_of_commits_equal_those_of_a_local_graph(
        self, remote: RemoteGraph, local: Graph
    ) -> None:
        local.branches.create("side")
        local.mutate(ADD, {"n": "Cid"}, branch="side")
        local.mutate(ADD, {"n": "Dan"})
        local.branches.merge("side")
        local.mutate('query wipe() { delete Person where name = "Cid" }')
        assert remote.history("Person", "Cid") == local.history("Person", "Cid")
        assert [item.op for item in remote.history("Person", "Cid")] == ["delete", "insert"]
        assert remote.blame("Person", "Cid", at="HEAD~1") == local.blame("Person", "Cid", at="HEAD~1")
        assert remote.history("Person", "Cid", branch="side", limit=1) == [local.history("Person", "Cid")[-1]]
        for name in ("HEAD~2", "side", "main~1^2", "@{2}", local.commits()[0].id[:20].lower()):
            assert remote.commit(name) == local.commit(name)
        for at in (2, "HEAD~1", "@{3}"):
            assert remote.snapshot("side", at).commit_id == local.snapshot("side", at).commit_id
        since = local.commits()[1].created_at
        chosen: Any = {"merged": True, "types": ["Person"], "since": since, "limit": None}
        assert remote.commits(**chosen) == local.commits(**chosen)
        assert len(remote.commits(merged=True)) == len(remote.commits()) + 1

    def test_changes_equal_those_of_a_local_graph_page_by_page(
        self, remote: RemoteGraph, local: Graph
    ) -> None:
        done = local.mutate("query wipe() { delete Person where age > 0 }")
        assert done.commit is not None
        page = remote.changes(done.commit.id, limit=1)
        assert page == local.changes(done.commit.id, limit=1)
        assert page.next_page_token is not None
        rest = remote.changes(done.commit.id, page_token=page.next_page_token)
        assert [change.id for change in (*page, *rest)] == ["Ann", "Bob"]
        chosen: Any = {"kinds": ["node"], "types": ["Person"], "ops": ["delete"]}
        assert remote.changes(done.commit.id, **chosen) == local.changes(done.commit.id, **chosen)

    def test_feed_continues_from_its_cursor(self, remote: RemoteGraph, local: Graph) -> None:
        assert remote.feed() == local.feed()
        page = remote.feed(start="beginning", limit=1)
        assert page == local.feed(start="beginning", limit=1)
        page = remote.feed(page_token=page.next_page_token)
        for name in ("Cid", "Dan"):
            local.mutate(ADD, {"n": name})
        one = remote.feed(cursor=page.cursor, max_commits=1)
        assert one == local.feed(cursor=page.cursor, max_commits=1)
        assert not one.caught_up
        assert [change.id for block in remote.feed(cursor=one.cursor) for change in block.changes] == ["Dan"]

    def test_read_at_commit_on_missing_branch_raises_not_found(
        self, remote: RemoteGraph, local: Graph
    ) -> None:
        commit, text = local.commits()[0], "query q() { match { $p: Person } return { $p.name } }"
        local.branches.create("there")
        for graph in (remote, local):
            tries: list[Callable[[], object]] = [
                partial(graph.snapshot, "nob", commit.id),
                partial(graph.get, "Person", "Ann", branch="nob", at=commit),
                partial(graph.query, text, branch="nob", at=commit.id),
                partial(graph.schema.source, "nob", commit.id),
                partial(graph.indexes, branch="nob", at=commit.id),
                partial(graph.branches.create, "x", "nob", at=commit.id),
                partial(graph.export, io.StringIO(), branch="nob", at=commit.id),
            ]
            for attempt in tries:
                with pytest.raises(NotFound, match="branch 'nob' not found"):
                    attempt()
            assert graph.snapshot(" there", commit.id).branch == "there"

    def test_baseline_writes_a_local_file(self, remote: RemoteGraph, local: Graph, tmp_path: Path) -> None:
        plain, stream = io.StringIO(), io.StringIO()
        found = remote.baseline(stream)
        assert found == local.baseline(plain)
        assert stream.getvalue() == plain.getvalue()
        target = tmp_path / "people.ndjson"
        chosen: Any = {"types": ["Person"], "kinds": ["node"], "ops": ["insert"]}
        assert remote.baseline(target, **chosen) == local.baseline(io.StringIO(), **chosen)
        assert target.read_text(encoding="utf-8").count("\n") == 3
        assert remote.feed(cursor=found.resume_cursor).blocks == ()

    def test_baseline_truncated_by_the_server_leaves_no_file(self, tmp_path: Path) -> None:
        records = reply(text=b'{"type":"Person","data":{"name":"Ann"}}\n')
        with scripted([reply(body={"actor_id": None}), records]) as server:
            graph = og.connect(server.url, "team")
            with pytest.raises(StorageError, match="before its last record"):
                graph.baseline(tmp_path / "people.ndjson")
        assert list(tmp_path.iterdir()) == []

    def test_baseline_that_is_refused_leaves_no_file(self, team: Served, tmp_path: Path) -> None:
        with team.connect("bob") as graph, pytest.raises(PermissionDenied, match="export"):
            graph.baseline(tmp_path / "people.ndjson")
        assert list(tmp_path.iterdir()) == []


class TestDiffs:
    @pytest.fixture
    def review(self, local: Graph) -> str:
        """A branch on which something of everything was changed."""
        local.branches.create("review")
        local.mutate(SET, {"n": "Ann", "a": 31}, branch="review")
        local.mutate('query go() { delete Person where name = "Bob" }', branch="review")
        local.load([{"type": "Person", "data": {"name": "Zoë"}}], branch="review")
        local.load([{"edge": "Knows", "from": "Ann", "to": "Zoë"}], branch="review")
        return "review"

    def test_diff_equals_that_of_a_local_graph(self, remote: RemoteGraph, local: Graph, review: str) -> None:
        first = local.commits()[-1].id
        cases: tuple[tuple[Any, Any, Any], ...] = (
            ("main", review, {}),
            (review, "main", {}),
            (first, review, {"ops": ["update", "insert"]}),
            ("main", review, {"kinds": ["edge"]}),
            ("main", review, {"types": ["Person"]}),
            (local.snapshot(review), datetime.now(UTC), {}),
            ("main", "main", {}),
        )
        for before, after, chosen in cases:
            found, expected = remote.diff(before, after, **chosen), local.diff(before, after, **chosen)
            assert isinstance(found, RemoteDiff)
            assert list(found) == list(expected)
            assert found.stats() == expected.stats()
            assert found.to_json() == expected.to_json()
            assert (found.commits, found.branch, repr(found)) == (
                expected.commits,
                expected.branch,
                repr(expected),
            )

    def test_diff_keeps_its_states_after_the_branch_moves_or_is_deleted(
        self, remote: RemoteGraph, local: Graph, review: str
    ) -> None:
        found = remote.diff("main", review)
        before = list(found), found.stats()
        local.mutate(ADD, {"n": "Late"}, branch=review)
        local.mutate(ADD, {"n": "Later"})
        assert (list(found), found.stats()) == before
        local.branches.delete(review)
        assert (list(found), found.stats()) == before

    def test_diff_iteration_may_stop_early(self, remote: RemoteGraph, review: str) -> None:
        assert next(iter(remote.diff("main", review))).op == "update"
        assert remote.branches.list() == ["main", review]

    def test_diff_includes_a_dropped_type(self, remote: RemoteGraph, local: Graph) -> None:
        local.branches.create("less")
        local.load([{"edge": "Knows", "from": "Ann", "to": "Bob"}])
        local.branches.create("more")
        local.schema.apply("node Person { name: String @key  age: I32? }", branch="more")
        found, expected = remote.diff("main", "more"), local.diff("main", "more")
        assert found.to_json() == expected.to_json()
        assert found.to_json()["changes"] != []
