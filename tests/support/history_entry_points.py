"""A graph with history that one actor may not read, and every call of the Python API that could show it.

The rows `Secret` and `Hidden` were added to the protected branch `main` and deleted again before the branch `dev`
was created from it. The actor `dev` may read, export and change unprotected branches. Every entry point takes a
state and reads or returns its rows. The state is the deleted one, or a state of the branch `dev` itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import omnigraph as og
from omnigraph.api.graph import Graph
from omnigraph.api.interface.branches import Branches
from omnigraph.api.interface.embeddings import Embeddings
from omnigraph.api.interface.schemas import SchemaView
from omnigraph.api.interface.tags import Tags
from omnigraph.errors import InvalidInput

SCHEMA = "node Person { name: String @key  photo: Blob? }  edge Knows: Person -> Person"
ALL = "query all() { match { $p: Person } return { $p.name as name } order { name asc } }"
DELETE = "query remove($n: String) { delete Person where name = $n }"
SECRET = "Secret"

_DATA = ["read", "export", "change"]
_BRANCHES = ["branch_create", "branch_delete", "branch_merge", "schema_apply"]
# `dev` acts on unprotected branches, `main` on protected ones, and `all` on every branch.
POLICY: dict[str, Any] = {
    "version": 1,
    "groups": {"all": ["all"], "dev": ["dev"], "main": ["main"]},
    "protected_branches": ["main"],
    "rules": [
        {"id": "a1", "allow": {"actors": {"group": "all"}, "actions": [*_DATA, "admin", "invoke_query"]}},
        {"id": "a2", "allow": {"actors": {"group": "all"}, "actions": _BRANCHES}},
        {"id": "d1", "allow": {"actors": {"group": "dev"}, "actions": _DATA, "branch_scope": "unprotected"}},
        {
            "id": "d2",
            "allow": {"actors": {"group": "dev"}, "actions": _BRANCHES, "target_branch_scope": "unprotected"},
        },
        {"id": "d3", "allow": {"actors": {"group": "dev"}, "actions": ["invoke_query"]}},
        {"id": "m1", "allow": {"actors": {"group": "main"}, "actions": _DATA, "branch_scope": "protected"}},
    ],
}


@dataclass(frozen=True)
class State:
    """A commit that added two people, by its id, by a moment, and as positions of the change feed of `dev`.

    `branch` is the branch on which it was made.
    """

    branch: str
    commit: str
    moment: datetime
    previous: str
    cursor: str
    feed_page: str
    commit_page: str


@dataclass(frozen=True)
class History:
    """The graph, a state that was deleted from `main` before the fork, and one that was made on `dev`."""

    uri: str
    deleted: State
    own: State


def make_history(uri: str) -> History:
    """Create the graph."""
    with og.init(uri, SCHEMA, durability="os") as graph:
        graph.load({"Person": [{"name": "Ann", "photo": "base64:aGk="}]})
        added = graph.load({"Person": [{"name": SECRET, "photo": "base64:aGk="}, {"name": "Hidden"}]}).commit
        for name in (SECRET, "Hidden"):
            graph.mutate(DELETE, {"n": name})
        graph.branches.create("dev")
        own = graph.load({"Person": [{"name": "Dan", "photo": "base64:aGk="}, {"name": "Don"}]}, branch="dev")
        graph.load({"Person": [{"name": "Eve"}]}, branch="dev")
        graph.branches.create("dev-2", "dev")
        assert added is not None
        assert own.commit is not None
        return History(uri, _state(graph, added), _state(graph, own.commit))


def _state(graph: Graph, commit: og.Commit) -> State:
    previous = commit.parents[0]
    before = graph.commit(previous).parents[0]
    cursor = graph.feed(branch="dev", start=f"after:{before}", max_commits=1).cursor
    feed_page = graph.feed(branch="dev", cursor=cursor, limit=1).next_page_token
    commit_page = graph.changes(commit.id, limit=1).next_page_token
    assert cursor is not None
    assert feed_page is not None
    assert commit_page is not None
    moment = commit.created_at + timedelta(microseconds=1)
    return State(commit.branch, commit.id, moment, previous, cursor, feed_page, commit_page)


def fresh_name() -> str:
    """Return the name of a branch that does not exist."""
    return f"new-{uuid4().hex}"


@dataclass(frozen=True)
class EntryPoint:
    """A parameter that names a state, and a call that passes the state with it.

    `decision` says which branch the actor must be allowed to read: ``made`` is the branch on which the commit was
    made, ``both`` is this branch and the one that the call names, ``named`` is the branch that the parameter names,
    and ``every`` is every branch.
    """

    call: Callable[[Any, State], Any]
    decision: str = "both"


def _frame(graph: Any, **at: Any) -> Any:
    # The query is refused after authorization, so that Spark does not start.
    try:
        return graph.dataframe("query add() { insert Person { name: 'x' } }", branch="dev", **at)
    except InvalidInput:
        return None


def _backup(graph: Any, since: str) -> Any:
    # A target in memory is refused after authorization.
    try:
        return graph.backup(f"memory://{fresh_name()}", since=since)
    except InvalidInput:
        return None


def _at(call: Callable[[Any, Any], Any]) -> dict[str, EntryPoint]:
    """Return the entry points of a parameter `at`: a commit, and a moment on `dev`."""
    return {
        "commit": EntryPoint(lambda g, s: call(g, s.commit)),
        "moment": EntryPoint(lambda g, s: call(g, s.moment)),
    }


# Keys are the method and the parameter; the values are its entry points by the form of the state.
ENTRY_POINTS: dict[str, dict[str, EntryPoint]] = {
    "Graph.query(at)": _at(lambda g, at: g.query(ALL, branch="dev", at=at)),
    "Graph.dataframe(at)": _at(lambda g, at: _frame(g, at=at)),
    "Graph.explain(at)": _at(lambda g, at: g.explain(ALL, branch="dev", at=at)),
    "Graph.get(at)": _at(lambda g, at: g.get("Person", SECRET, branch="dev", at=at)),
    "Graph.commits(at)": _at(lambda g, at: g.commits("dev", at=at)),
    "Graph.history(at)": _at(lambda g, at: g.history("Person", SECRET, branch="dev", at=at)),
    "Graph.blame(at)": _at(lambda g, at: g.blame("Person", "Ann", branch="dev", at=at)),
    "Graph.blob(at)": _at(lambda g, at: g.blob("Person", "Ann", "photo", branch="dev", at=at)),
    "Graph.nodes(at)": _at(lambda g, at: g.nodes("Person", branch="dev", at=at)),
    "Graph.edges(at)": _at(lambda g, at: g.edges("Knows", branch="dev", at=at)),
    "Graph.frame(at)": _at(lambda g, at: g.frame("Person", branch="dev", at=at)),
    "Graph.neighbors(at)": _at(lambda g, at: g.neighbors("Person", "Ann", branch="dev", at=at)),
    "Graph.snapshot(at)": _at(lambda g, at: g.snapshot("dev", at)),
    "Graph.indexes(at)": _at(lambda g, at: g.indexes(branch="dev", at=at)),
    "Graph.export(at)": _at(lambda g, at: g.export(StringIO(), branch="dev", at=at)),
    "Graph.diff(before)": {"commit": EntryPoint(lambda g, s: g.diff(s.commit, "dev"), "made")},
    "Graph.diff(after)": {"commit": EntryPoint(lambda g, s: g.diff("dev", s.commit), "made")},
    "Graph.changes(commit_id)": {"commit": EntryPoint(lambda g, s: g.changes(s.commit), "made")},
    "Graph.changes(page_token)": {
        "token": EntryPoint(lambda g, s: g.changes(s.commit, page_token=s.commit_page), "made")
    },
    "Graph.feed(start)": {
        "after": EntryPoint(lambda g, s: g.feed(branch="dev", start=f"after:{s.previous}", max_commits=1))
    },
    "Graph.feed(cursor)": {
        "cursor": EntryPoint(lambda g, s: g.feed(branch="dev", cursor=s.cursor, max_commits=1))
    },
    "Graph.feed(page_token)": {
        "token": EntryPoint(lambda g, s: g.feed(branch="dev", page_token=s.feed_page))
    },
    "Graph.revert(commit_id)": {
        "commit": EntryPoint(lambda g, s: g.revert(s.commit, branch="dev", dry_run=True), "made")
    },
    "Graph.verify(all_commits)": {
        "all": EntryPoint(lambda g, _: g.verify(quick=True, all_commits=True, engine="local"), "every")
    },
    "Graph.repair(to)": {
        "commit": EntryPoint(lambda g, s: g.repair(reset_branch="dev", to=s.commit), "every")
    },
    "Graph.backup(since)": {"commit": EntryPoint(lambda g, s: _backup(g, s.commit), "every")},
    "Graph.commit(id)": {"commit": EntryPoint(lambda g, s: g.commit(s.commit), "every")},
    "Graph.load(create_from)": {
        "branch": EntryPoint(
            lambda g, s: g.load({"Person": []}, branch=fresh_name(), create_from=s.branch), "named"
        )
    },
    "Graph.batch(create_from)": {
        "branch": EntryPoint(
            lambda g, s: g.batch(branch=fresh_name(), create_from=s.branch).load({"Person": []}).commit(),
            "named",
        )
    },
    "Embeddings.status(at)": _at(lambda g, at: g.embeddings.status(branch="dev", at=at)),
    "Branches.create(source)": {
        "branch": EntryPoint(lambda g, s: g.branches.create(fresh_name(), s.branch), "named")
    },
    "Branches.create(at)": _at(lambda g, at: g.branches.create(fresh_name(), "dev", at=at)),
    "Tags.create(at)": {
        "commit": EntryPoint(lambda g, s: g.tags.create(fresh_name(), s.commit), "made"),
        "branch": EntryPoint(lambda g, s: g.tags.create(fresh_name(), s.branch), "named"),
    },
    "Branches.merge(source)": {
        "branch": EntryPoint(lambda g, s: g.branches.merge(s.branch, "dev-2", dry_run=True), "named")
    },
    "SchemaView.source(at)": {
        "commit": EntryPoint(lambda g, s: g.schema.source("dev", s.commit), "every"),
        "moment": EntryPoint(lambda g, s: g.schema.source("dev", s.moment), "every"),
    },
}
# Parameters that name no state. `branch`, `into` and `name` name the head of a branch, for which
# tests/api/test_policy.py has a table. `if_commit` is compared with the head of the branch that is written.
NEUTRAL = {
    *("self", "branch", "into", "name", "limit", "max_commits", "kinds", "types", "ops", "target", "actor"),
    *("params", "engine", "spark", "type_name", "format", "overwrite", "progress", "message", "dry_run"),
    *("if_commit", "idempotency_key", "mode", "permissive", "rejects", "mapping", "resolve", "delete_source"),
    *("max_rejects", "index", "op_column", "order_by", "require_existing"),
    *("timeout", "max_rows", "max_bytes", "max_edges"),
    *("where", "columns", "library", "edges", "direction", "unrecorded", "remove", "batch_rows"),
    *("keep", "older_than", "confirm", "grace", "force", "text", "allow_data_loss", "backfill", "verify"),
    *(
        "durability",
        "storage_options",
        "property",
        "quick",
        "record",
        "reset_branch",
        "csv_null",
        "skip_damaged",
        "prefix",
        "retention",
    ),
}
# Parameters with a name that is a state elsewhere.
NEUTRAL_PARAMETERS = {
    "Graph.query(source)": "query text",
    "Graph.dataframe(source)": "query text",
    "Graph.explain(source)": "query text",
    "Graph.mutate(source)": "query text",
    "Graph.load(source)": "rows",
    "Graph.get(id)": "entity",
    "Graph.blob(id)": "entity",
    "Graph.history(id)": "entity",
    "Graph.blame(id)": "entity",
    "Graph.neighbors(id)": "entity",
    "Graph.insert(rows)": "rows",
    "Graph.upsert(rows)": "rows",
    "Graph.delete(ids)": "entities",
    "Graph.commits(since)": "a filter of commits whose branch is authorized",
    "Graph.commits(merged)": "a filter of commits whose branch is authorized",
    "Branches.list(after)": "name of a branch",
    "Tags.list(after)": "name of a tag",
}


def state_parameters() -> Iterator[str]:
    """Yield every parameter of the Python API that may name a state, as ``Graph.query(at)``."""
    for kind in (Graph, Branches, Tags, SchemaView, Embeddings):
        for name, member in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith("_"):
                continue
            for parameter in inspect.signature(member).parameters:
                key = f"{kind.__name__}.{name}({parameter})"
                if parameter not in NEUTRAL and key not in NEUTRAL_PARAMETERS:
                    yield key
