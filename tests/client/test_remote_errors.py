"""An error over HTTP is the error that the same call raises at hand."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from omnigraph.api.graph import Graph
from omnigraph.client.graph import RemoteGraph
from omnigraph.errors import InvalidInput, PermissionDenied, ResourceLimit
from omnigraph.lang.diagnostics import LanguageError
from tests.client.comparing import LABELLED, WIDER, failure, told
from tests.client.conftest import Served
from tests.server.running import ADD, ALL


class TestErrors:
    @pytest.mark.parametrize(
        "call",
        [
            lambda g: g.query("query x( {"),
            lambda g: g.query("query x() { match { $p: Persn } return { $p.name } }"),
            lambda g: g.query(ADD, {"n": "x"}),
            lambda g: g.query(ALL + ADD),
            lambda g: g.query(ALL, name="other"),
            lambda g: g.query(
                "query x($n: I32) { match { $p: Person  $p.age = $n } return { $p.name } }", {"n": "x"}
            ),
            lambda g: g.query(ALL, branch="nowhere"),
            lambda g: g.query(ALL, at="nothing"),
            lambda g: g.query(ALL, at=datetime(1999, 1, 1, tzinfo=UTC)),
            lambda g: g.explain("query x( {"),
            lambda g: g.get("Nobody", "x"),
            lambda g: g.mutate(ALL),
            lambda g: g.mutate(ADD),
            lambda g: g.mutate('query tie() { insert Knows { from: "Ann", to: "nobody" } }'),
            lambda g: g.mutate(ADD, {"n": "x"}, branch="nowhere"),
            lambda g: g.commit("nothing"),
            lambda g: g.commit("a/b"),
            lambda g: g.commits("nowhere"),
            lambda g: g.revert("nothing"),
            lambda g: g.revert(g.commits()[-1].id),
            lambda g: g.changes(g.commits()[-1].id),
            lambda g: g.changes(g.commits()[0].id, limit=0),
            lambda g: g.changes(g.commits()[0].id, page_token="x"),
            lambda g: g.changes(g.commits()[0].id, types=["Nobody"]),
            lambda g: g.changes(g.commits()[0].id, ops=["move"]),
            lambda g: g.feed(cursor="x"),
            lambda g: g.feed(start="yesterday"),
            lambda g: g.feed(max_commits=0),
            lambda g: g.diff("main", "nowhere"),
            lambda g: g.diff("main", "main", types=["Nobody"]),
            lambda g: g.baseline(io.StringIO(), types=["Nobody"]),
            lambda g: g.branches.create("main"),
            lambda g: g.branches.create("x", "nowhere"),
            lambda g: g.branches.delete("main"),
            lambda g: g.branches.delete("nowhere"),
            lambda g: g.branches.merge("main"),
            lambda g: g.branches.merge("main", "main", resolve="both"),
            lambda g: g.schema.plan("node {"),
            lambda g: g.schema.apply("node {"),
            lambda g: g.schema.apply(LABELLED),
            lambda g: g.schema.apply(WIDER, if_commit="nothing"),
            lambda g: g.schema.source("nowhere"),
            lambda g: g.cleanup(),
            lambda g: g.cleanup(keep=0),
            lambda g: g.optimize(branch="nowhere"),
            lambda g: g.query(ALL, branch="mian"),
            lambda g: g.query(ALL, branch=None),
            lambda g: g.query(ALL, at=5),
            lambda g: g.query(ALL, at="2020-01-01"),
            lambda g: g.query(None),
            lambda g: g.query(Path("nowhere.gq")),
            lambda g: g.mutate(ADD, {"n": "x"}, message=5),
            lambda g: g.mutate(ADD, {"n": "x"}, actor=5),
            lambda g: g.mutate(ADD, {"n": "x"}, idempotency_key=5),
            lambda g: g.mutate(ADD, {"n": "x"}, if_commit=5),
            lambda g: g.mutate(ADD, {"n": "x"}, branch=None),
            lambda g: g.load([], message="\ud800"),
            lambda g: g.load([], branch=None),
            lambda g: g.revert(None),
            lambda g: g.revert("nothing", branch=None),
            lambda g: g.changes(5),
            lambda g: g.commits(limit=-1),
            lambda g: g.commits(None),
            lambda g: g.feed(branch=None),
            lambda g: g.diff("main", None),
            lambda g: g.diff(5, "main"),
            lambda g: g.baseline(io.BytesIO()),
            lambda g: g.export(io.BytesIO()),
            lambda g: g.export("nowhere/all.ndjson"),
            lambda g: g.export(io.StringIO(), types="Person"),
            lambda g: g.branches.create(None),
            lambda g: g.branches.create("x", at=5),
            lambda g: g.branches.delete(5),
            lambda g: g.branches.merge("x", None),
            lambda g: g.schema.plan(None),
            lambda g: g.schema.apply(Path("nowhere.pg")),
            lambda g: g.schema.apply(WIDER, message=5),
            lambda g: g.optimize(message=5),
            lambda g: g.acting_as(5),
        ],
    )
    def test_error_equals_that_of_a_local_graph(
        self, remote_team: RemoteGraph, team: Served, call: Callable[[Graph], Any]
    ) -> None:
        assert told(failure(call, remote_team)) == told(failure(call, team.local))

    def test_query_error_shows_line_and_column(self, remote_team: RemoteGraph) -> None:
        with pytest.raises(LanguageError) as caught:
            remote_team.query("query x() {\n  match { $p: Persn }\n  return { $p.name } }")
        assert caught.value.diagnostics[0].line == 2

    @pytest.mark.parametrize(
        ("actor", "call"),
        [
            ("bob", lambda g: g.mutate(ADD, {"n": "x"})),
            ("bob", lambda g: g.branches.create("x")),
            ("bob", lambda g: g.schema.apply(WIDER)),
            ("bob", lambda g: g.optimize()),
            ("eve", lambda g: g.query(ALL)),
            ("eve", lambda g: g.query(ALL, at="nothing")),
        ],
    )
    def test_call_denied_by_policy_raises_permission_denied(
        self, team: Served, actor: str, call: Callable[[Graph], Any]
    ) -> None:
        with team.connect(actor) as remote:
            found = failure(call, remote)
        assert isinstance(found, PermissionDenied)
        assert told(found) == told(failure(call, team.local.acting_as(actor)))

    def test_unknown_commit_is_denied_like_an_unreadable_one(self, team: Served) -> None:
        with team.connect("eve") as remote:
            found = [
                failure(lambda g: g.diff("main", "main"), remote),
                failure(lambda g: g.diff("nothing", "nothing"), remote),
            ]
        assert all(isinstance(item, PermissionDenied) for item in found)
        assert told(found[0]) == told(found[1])

    @pytest.mark.parametrize("text", ["", "{}", "query x() {}" * 200_000])
    def test_query_that_is_empty_invalid_or_too_large_is_refused(
        self, remote_team: RemoteGraph, text: str
    ) -> None:
        with pytest.raises((InvalidInput, ResourceLimit)):
            remote_team.query(text)
