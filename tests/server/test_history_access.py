"""Routes deny history of a branch that the caller may not read, whichever parameter names it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.api.hosting.stored_queries import QuerySources
from omnigraph.client.entry import connect
from omnigraph.errors import NotFound, PermissionDenied
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import TOKENS, Running, bundle, running
from tests.support.history_entry_points import (
    ALL,
    ENTRY_POINTS,
    POLICY,
    SECRET,
    EntryPoint,
    History,
    State,
    fresh_name,
)
from tests.support.history_entry_points import make_history as make
from tests.support.places import fresh_memory

DOCUMENT: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "openapi.json").read_text(encoding="utf-8")
)
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]

# The method, the path and the arguments of a request that names a state.
Request: TypeAlias = "tuple[str, str, dict[str, Any]]"
Build: TypeAlias = Callable[[State], Request]


def get(path: str, **params: Any) -> Request:
    return "GET", path, {"params": params}


def post(path: str, **body: Any) -> Request:
    return "POST", path, {"json": body}


def _moment(state: State) -> str:
    return state.moment.isoformat()


_BLOB = {"entity": "node", "type": "Person", "id": "Ann", "property": "photo"}
_NEW: Callable[[State], dict[str, Any]] = lambda state: {"branch": fresh_name(), "from": state.branch}  # noqa: E731
_ENTITY = {"type": "Person", "id": SECRET}
_ANN = {"type": "Person", "id": "Ann"}

# Keys are the operation and the parameter or body member.
ROUTES: dict[str, Build] = {
    "cluster_getSnapshot(at)": lambda s: get("/snapshot", branch="dev", at=_moment(s)),
    "cluster_getSnapshot(snapshot)": lambda s: get("/snapshot", snapshot=s.commit),
    "cluster_query(at)": lambda s: post("/query", query=ALL, branch="dev", at=_moment(s)),
    "cluster_query(snapshot)": lambda s: post("/query", query=ALL, snapshot=s.commit),
    "cluster_read(at)": lambda s: post("/read", query_source=ALL, branch="dev", at=_moment(s)),
    "cluster_read(snapshot)": lambda s: post("/read", query_source=ALL, snapshot=s.commit),
    "cluster_explain(at)": lambda s: post("/explain", query=ALL, branch="dev", at=_moment(s)),
    "cluster_explain(snapshot)": lambda s: post("/explain", query=ALL, snapshot=s.commit),
    "cluster_getEntity(at)": lambda s: get("/entity", **_ENTITY, branch="dev", at=_moment(s)),
    "cluster_getEntity(snapshot)": lambda s: get("/entity", **_ENTITY, snapshot=s.commit),
    "cluster_getEntityHistory(at)": lambda s: get("/history", **_ENTITY, branch="dev", at=_moment(s)),
    "cluster_getEntityHistory(snapshot)": lambda s: get("/history", **_ENTITY, snapshot=s.commit),
    "cluster_getEntityBlame(at)": lambda s: get("/blame", **_ANN, branch="dev", at=_moment(s)),
    "cluster_getEntityBlame(snapshot)": lambda s: get("/blame", **_ANN, snapshot=s.commit),
    "cluster_getNeighbors(at)": lambda s: get("/neighbors", **_ANN, branch="dev", at=_moment(s)),
    "cluster_getNeighbors(snapshot)": lambda s: get("/neighbors", **_ANN, snapshot=s.commit),
    "cluster_lint(at)": lambda s: post("/lint", query=ALL, branch="dev", at=_moment(s)),
    "cluster_lint(snapshot)": lambda s: post("/lint", query=ALL, snapshot=s.commit),
    "cluster_getSchemaTypes(at)": lambda s: get("/schema/types", branch="dev", at=_moment(s)),
    "cluster_getSchemaTypes(snapshot)": lambda s: get("/schema/types", snapshot=s.commit),
    "cluster_listCommits(at)": lambda s: get("/commits", branch="dev", at=_moment(s)),
    "cluster_listCommits(snapshot)": lambda s: get("/commits", snapshot=s.commit),
    "cluster_listIndexes(at)": lambda s: get("/indexes", branch="dev", at=_moment(s)),
    "cluster_listIndexes(snapshot)": lambda s: get("/indexes", snapshot=s.commit),
    "cluster_getSchema(at)": lambda s: get("/schema", branch="dev", at=_moment(s)),
    "cluster_getSchema(snapshot)": lambda s: get("/schema", snapshot=s.commit),
    "cluster_verify(all_commits)": lambda _: post("/verify", quick=True, all_commits=True),
    "cluster_repair(to)": lambda s: post("/repair", reset_branch="dev", to=s.commit),
    "cluster_getBlob(at)": lambda s: get("/blob", **_BLOB, branch="dev", at=_moment(s)),
    "cluster_headBlob(at)": lambda s: ("HEAD", *get("/blob", **_BLOB, branch="dev", at=_moment(s))[1:]),
    "cluster_getBlob(snapshot)": lambda s: get("/blob", **_BLOB, snapshot=s.commit),
    "cluster_headBlob(snapshot)": lambda s: ("HEAD", *get("/blob", **_BLOB, snapshot=s.commit)[1:]),
    "cluster_invoke_query(at)": lambda s: post("/queries/all", branch="dev", at=_moment(s)),
    "cluster_invoke_query(snapshot)": lambda s: post("/queries/all", snapshot=s.commit),
    "cluster_export(at)": lambda s: post("/export", branch="dev", at=_moment(s)),
    "cluster_export(snapshot)": lambda s: post("/export", snapshot=s.commit),
    "cluster_exportFiles(at)": lambda s: post("/export/files", branch="dev", at=_moment(s)),
    "cluster_exportFiles(snapshot)": lambda s: post("/export/files", snapshot=s.commit),
    "cluster_createBranch(at)": lambda s: post("/branches", **{**_base(), "at": _moment(s)}),
    "cluster_createBranch(snapshot)": lambda s: post("/branches", **_base(), snapshot=s.commit),
    "cluster_createBranch(from)": lambda s: post("/branches", **{"name": fresh_name(), "from": s.branch}),
    "cluster_createTag(at)": lambda s: post("/tags", name=fresh_name(), at=s.commit),
    "cluster_mergeBranches(source)": lambda s: post(
        "/branches/merge", source=s.branch, target="dev-2", dry_run=True
    ),
    "cluster_load(from)": lambda s: post("/load", data="", **_NEW(s)),
    "cluster_ingest(from)": lambda s: post("/ingest", data="", **_NEW(s)),
    "cluster_loadNdjson(from)": lambda s: (
        "POST",
        "/load/ndjson",
        {"params": _NEW(s), "content": b"", "headers": {"Content-Type": "application/x-ndjson"}},
    ),
    "cluster_loadFiles(from)": lambda s: (
        "POST",
        "/load/files",
        {"params": _NEW(s), "files": {"Person": ("p.csv", b"name\nx\n")}},
    ),
    "cluster_revertCommit(commit_id)": lambda s: post(
        f"/commits/{s.commit}/revert", branch="dev", dry_run=True
    ),
    "cluster_getCommit(commit_id)": lambda s: get(f"/commits/{s.commit}"),
    "cluster_getCommitChanges(commit_id)": lambda s: get(f"/commits/{s.commit}/changes"),
    "cluster_getCommitChanges(page_token)": lambda s: get(
        f"/commits/{s.commit}/changes", page_token=s.commit_page
    ),
    "cluster_pollChanges(start)": lambda s: get(
        "/changes", branch="dev", start=f"after:{s.previous}", max_commits=1
    ),
    "cluster_pollChanges(cursor)": lambda s: get("/changes", branch="dev", cursor=s.cursor, max_commits=1),
    "cluster_pollChanges(page_token)": lambda s: get("/changes", branch="dev", page_token=s.feed_page),
    "cluster_resolveState(name)": lambda s: get("/state", name=s.commit),
    "cluster_diff(before)": lambda s: get("/diff", before=s.commit, after="dev"),
    "cluster_diff(after)": lambda s: get("/diff", before="dev", after=s.commit),
    "cluster_diff(before_commit)": lambda s: get("/diff", before="dev", after="dev", before_commit=s.commit),
    "cluster_diff(after_commit)": lambda s: get("/diff", before="dev", after="dev", after_commit=s.commit),
    "cluster_getDiffStats(before)": lambda s: get("/diff/stats", before=s.commit, after="dev"),
    "cluster_getDiffStats(after)": lambda s: get("/diff/stats", before="dev", after=s.commit),
    "cluster_getDiffStats(before_commit)": lambda s: get(
        "/diff/stats", before="dev", after="dev", before_commit=s.commit
    ),
    "cluster_getDiffStats(after_commit)": lambda s: get(
        "/diff/stats", before="dev", after="dev", after_commit=s.commit
    ),
}
# A moment on `main`, so that it is never a state of another branch.
ON_MAIN: dict[str, Build] = {"cluster_resolveState(at)": lambda s: get("/state", at=_moment(s))}
# These routes require permission on every branch.
EVERY_BRANCH = {
    *("cluster_getSchema(at)", "cluster_getSchema(snapshot)", "cluster_getCommit(commit_id)"),
    *("cluster_verify(all_commits)", "cluster_repair(to)"),
}
# Names that are no state, in any route. `branch` is the head of a branch, or authorized with `at`.
NEUTRAL = {
    *("Omnigraph-If-Graph-Commit", "if_commit", "actor", "graph_id", "branch", "target", "delete_branch"),
    *(
        "since",
        "merged",
        "allow_data_loss",
        "backfill",
        "confirm",
        "data",
        "dry_run",
        "entity",
        "expect_mutation",
        "force",
    ),
    *(
        "csv_null",
        "query_id",
        "timeout_seconds",
        "max_rows",
        "max_bytes",
        "max_edges",
        "format",
        "grace",
        "id",
        "idempotency_key",
        "keep",
        "kind",
        "limit",
        "mapping",
        "max_commits",
    ),
    *("message", "mode", "older_than", "op", "params", "permissive", "property", "query", "query_name"),
    *(
        "query_source",
        "records",
        "rejects",
        "max_rejects",
        "op_column",
        "order_by",
        "require_existing",
        "index",
        "resolve",
        "schema_source",
        "type",
        "table_keys",
        "type_names",
        "quick",
        "record",
    ),
    *("reset_branch", "prefix", "retention", "table_keys", "edge", "direction"),
}
# Names of queries and of new branches, and members that the route refuses.
NEUTRAL_PARAMETERS = {
    "cluster_query(name)",
    "cluster_explain(name)",
    "cluster_mutate(name)",
    "cluster_mutate_if_graph_commit(name)",
    "cluster_change(name)",
    "cluster_createBranch(name)",
    "cluster_listBranches(after)",
    "cluster_createTag(name)",
    "cluster_deleteTag(tag)",
    "cluster_listTags(after)",
    "cluster_invoke_query(name)",
    "cluster_invoke_query_if_graph_commit(name)",
    "cluster_invoke_query_if_graph_commit(at)",
    "cluster_invoke_query_if_graph_commit(snapshot)",
}


def _base() -> dict[str, Any]:
    return {"name": fresh_name(), "from": "dev"}


def state_parameters() -> Iterator[str]:
    """Yield every parameter and body member of a route that may name a state."""
    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            names = {item["name"] for item in operation.get("parameters", ())}
            for content in operation.get("requestBody", {}).get("content", {}).values():
                names |= _members(content.get("schema", {}))
            for name in names - NEUTRAL:
                key = f"{operation['operationId']}({name})"
                if key not in NEUTRAL_PARAMETERS:
                    yield key


def _members(schema: dict[str, Any]) -> set[str]:
    if "$ref" in schema:
        return _members(SCHEMAS[schema["$ref"].rpartition("/")[2]])
    found = set(schema.get("properties", ()))
    for alternative in schema.get("anyOf", ()):
        found |= _members(alternative)
    return found


@pytest.fixture(scope="module")
def history() -> History:
    return make(fresh_memory())


@pytest.fixture(scope="module")
def served(history: History, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    queries = tmp_path_factory.mktemp("queries")
    (queries / "all.gq").write_text(ALL, encoding="utf-8")
    source = GraphSource("team", history.uri, QuerySources((queries,)), bundle(POLICY))
    tokens = TokenRegistry.of({"dev": TOKENS["bob"], "all": TOKENS["ann"]})
    with running(open_graphs(Hosting((source,)), tokens)) as found:
        yield found


@pytest.fixture(scope="module")
def dev(served: Running) -> Iterator[httpx.Client]:
    with served.client("bob") as client:
        yield client


@pytest.fixture(scope="module")
def everyone(served: Running) -> Iterator[httpx.Client]:
    with served.client("ann") as client:
        yield client


def send(client: httpx.Client, request: Request) -> httpx.Response:
    method, path, arguments = request
    return client.request(method, path, **arguments)


def test_every_parameter_that_names_a_state_is_in_the_table() -> None:
    # A new parameter needs a decision: add it to ROUTES, or to the names that are no state.
    assert sorted(state_parameters()) == sorted({*ROUTES, *ON_MAIN})


@pytest.mark.parametrize("name", [*ROUTES, *ON_MAIN])
def test_route_denies_the_deleted_state_of_another_branch(
    name: str, dev: httpx.Client, history: History
) -> None:
    response = send(dev, {**ROUTES, **ON_MAIN}[name](history.deleted))
    # A caller who may not read a commit does not learn that it has changes.
    assert response.status_code == (404 if name.startswith("cluster_getCommitChanges") else 403)
    assert SECRET not in response.text
    assert "photo" not in response.text


@pytest.mark.parametrize("name", [*ROUTES, *ON_MAIN])
def test_route_serves_the_deleted_state_with_permission_on_both_branches(
    name: str, everyone: httpx.Client, history: History
) -> None:
    response = send(everyone, {**ROUTES, **ON_MAIN}[name](history.deleted))
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("name", [name for name in ROUTES if name not in EVERY_BRANCH])
def test_route_serves_a_state_of_the_own_branch(name: str, dev: httpx.Client, history: History) -> None:
    response = send(dev, ROUTES[name](history.own))
    assert response.status_code == 200, response.text


def test_denial_does_not_name_the_branch_of_the_commit(dev: httpx.Client, history: History) -> None:
    response = dev.post("/query", json={"query": ALL, "snapshot": history.deleted.commit})
    assert response.json()["error"] == "policy denied action 'read' for actor 'dev'"


def test_feed_after_an_unknown_commit_returns_404(everyone: httpx.Client) -> None:
    response = everyone.get("/changes", params={"start": "after:nothing"})
    assert (response.status_code, response.json()) == (
        404,
        {"error": "commit 'nothing' not found", "code": "not_found"},
    )


def test_remote_handle_denies_the_deleted_state(served: Running, history: History) -> None:
    graph = connect(served.url, "team", token=TOKENS["bob"])
    # Spark, backups, batches and refreshes of embeddings run beside the graph, not over HTTP.
    local = ("Graph.dataframe", "Graph.backup", "Graph.batch", "Embeddings.")
    allowed = [
        f"{name}-{form}"
        for name, entry_points in ENTRY_POINTS.items()
        if not name.startswith(local)
        for form, entry_point in entry_points.items()
        if _is_allowed(entry_point, graph, history)
    ]
    assert allowed == []


def _is_allowed(entry_point: EntryPoint, graph: Any, history: History) -> bool:
    try:
        entry_point.call(graph, history.deleted)
    except (PermissionDenied, NotFound):
        return False
    return True
