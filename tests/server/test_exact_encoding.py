"""The exact encoding: content negotiation, results and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.api.interface.branches import Branch
from omnigraph.api.results.commits import Commit
from omnigraph.api.results.maintenance_reports import Index, Optimized, Repair
from omnigraph.api.results.merges import Merged
from omnigraph.api.results.receipts import Receipt
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.migration.planner import plan_migration
from omnigraph.changes.change_pages import ChangePage
from omnigraph.changes.change_records import EntityChange
from omnigraph.changes.feed import FeedPage
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.protocol.codec import (
    ARROW,
    EXACT,
    decode,
    decode_error,
    decode_snapshot,
    encode_error,
    read_result,
)
from omnigraph.server.hosted_graphs import HostedGraph
from omnigraph.server.http.error_responses import redact, render_error
from tests.server.running import ADD, ALL, SCHEMA, Running, error_body
from tests.support.waiting import HANG

TWO = f"{ALL}\nquery other() {{ match {{ $p: Person }} return {{ $p.name }} }}"


@dataclass(frozen=True)
class Both:
    """A graph and a client of its server."""

    graph: og.Graph
    client: httpx.Client

    def ask(self, method: str, path: str, **request: Any) -> Any:
        """Return the body of a successful response in the exact encoding."""
        response = self.client.request(method, path, headers={"Accept": EXACT}, **request)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == EXACT
        return response.json()

    def fail(self, method: str, path: str, **request: Any) -> errors.OmnigraphError:
        """Return the encoded library error, after comparing the rest of the body with the plain one."""
        plain = self.client.request(method, path, **request)
        exact = self.client.request(method, path, headers={"Accept": EXACT}, **request)
        body = error_body(exact, plain.status_code)
        found = decode_error(body.pop("exception"))
        # The HTTP API has a message of its own without a hint.
        assert set(body) - {"hint"} == set(plain.json()) - {"hint"}
        return found


@pytest.fixture
def both(open_server: Running, client: httpx.Client) -> Both:
    id_ = client.base_url.path.strip("/").rpartition("/")[2]
    return Both(open_server.hosted.graphs[id_].graph, client)


def test_reads_return_library_objects(both: Both) -> None:
    graph, head = both.graph, both.graph.commits()[0].id
    assert [decode(Commit, item) for item in both.ask("GET", "/commits")] == graph.commits()
    assert decode(Commit, both.ask("GET", f"/commits/{head}")) == graph.commit(head)
    page = decode(ChangePage, both.ask("GET", f"/commits/{head}/changes?limit=1"))
    assert page == graph.changes(head, limit=1)
    feed = both.ask("GET", "/changes?start=beginning&kind=node")
    assert decode(FeedPage, feed) == graph.feed(start="beginning", kinds=["node"])
    snapshot = decode_snapshot(both.ask("GET", f"/snapshot?snapshot={head}"))
    assert (snapshot.commit, snapshot.catalog) == (graph.snapshot().commit, graph.snapshot().catalog)
    state = both.ask("GET", "/state?name=main")
    assert (decode_snapshot(state["snapshot"]).commit_id, state["branch"]) == (head, "main")
    lines = both.client.get(
        "/diff", params={"before": graph.commits()[-1].id, "after": head}, headers={"Accept": EXACT}
    )
    *told, last = map(json.loads, lines.text.splitlines())
    assert last == {"end": True}
    changes = [decode(EntityChange, item) for item in told]
    assert changes == list(graph.diff(graph.commits()[-1].id, head))


def test_results_without_library_object_are_identical(both: Both) -> None:
    for path in (
        "/branches",
        "/schema",
        "/entity?type=Person&id=Ann",
        "/queries",
        "/diff/stats?before=main&after=main",
    ):
        assert both.ask("GET", path) == both.client.get(path).json()
    body = {"query": ALL}
    assert both.ask("POST", "/explain", json=body) == {"plan": both.graph.explain(ALL)}
    assert both.ask("POST", "/query", json=body) == both.client.post("/query", json=body).json()


def test_writes_return_library_objects(both: Both) -> None:
    graph = both.graph
    body = {"query": ADD, "params": {"n": "Cid"}, "message": "hello", "idempotency_key": "k"}
    receipt = decode(Receipt, both.ask("POST", "/mutate", json=body))
    assert receipt.commit == graph.commits()[0]
    assert (receipt.commit.message, receipt.query_name) == ("hello", "add")
    assert receipt.affected == {"Person": {"inserted": 1, "updated": 0, "deleted": 0}}
    again = decode(Receipt, both.ask("POST", "/mutate", json=body))
    assert again == graph.mutate(ADD, {"n": "Cid"}, message="hello", idempotency_key="k")
    assert (again.replayed, again.commit) == (True, receipt.commit)
    branch = decode(Branch, both.ask("POST", "/branches", json={"name": "dev"}))
    assert branch == Branch("dev", receipt.commit.id)
    graph.mutate(ADD, {"n": "Dan"}, branch="dev")
    tried = decode(Merged, both.ask("POST", "/branches/merge", json={"source": "dev", "dry_run": True}))
    assert tried == graph.branches.merge("dev", dry_run=True)
    merged = decode(
        Merged, both.ask("POST", "/branches/merge", json={"source": "dev", "delete_branch": True})
    )
    assert (merged.commit, merged.branch_deleted) == (graph.commits()[0], True)
    undone = decode(Merged, both.ask("POST", f"/commits/{receipt.commit.id}/revert", json={"message": "no"}))
    assert undone.commit == graph.commits()[0]
    assert undone.affected == {"Person": {"inserted": 0, "updated": 0, "deleted": 1}}


def test_schema_apply_returns_previous_schema(both: Both) -> None:
    text = f"{SCHEMA}node City {{ name: String @key }}\n"
    before = both.graph.snapshot().catalog
    found = both.ask("POST", "/schema/apply", json={"schema_source": text})
    assert decode(Commit, found["commit"]) == both.graph.commits()[0]
    assert Catalog.from_json(found["before"]) == before
    steps = plan_migration(Catalog.from_json(found["before"]), load_schema(text, "x")).steps
    assert [step.to_json()["kind"] for step in steps] == ["add_type"]
    again = both.ask("POST", "/schema/apply", json={"schema_source": text})
    assert (again["applied"], again["commit"]) == (False, None)
    assert Catalog.from_json(again["before"]) == both.graph.snapshot().catalog


def test_maintenance_returns_library_objects(both: Both) -> None:
    graph = both.graph
    done = decode(Optimized, both.ask("POST", "/optimize", json={"message": "tidy"}))
    assert done.commit == graph.commits()[0]
    assert [item.type_key for item in done.datasets if item.committed] == ["node:Person"]
    assert [decode(Index, item) for item in both.ask("GET", "/indexes")] == graph.indexes()
    assert both.ask("POST", "/cleanup", json={"keep": 1}) == graph.cleanup(keep=1)
    assert decode(Repair, both.ask("POST", "/repair")) == graph.repair()
    assert both.ask("GET", "/recoveries") == []


def test_rows_as_arrow_include_result_metadata(both: Both) -> None:
    accept = {"Accept": f"{ARROW}, {EXACT}"}
    response = both.client.post("/query", json={"query": ALL}, headers=accept)
    found, wanted = read_result(response.content), both.graph.query(ALL)
    assert found.table.equals(wanted.table)
    assert found.to_json() == wanted.to_json()
    stored = both.client.post("/queries/everybody", headers=accept)
    assert [row["name"] for row in read_result(stored.content)] == ["Ann", "Bob"]
    hired = both.client.post("/queries/hire", json={"params": {"n": "Cid"}}, headers=accept)
    assert decode(Receipt, hired.json()).commit == both.graph.commits()[0]
    refused = both.client.post("/query", json={"query": "query x("}, headers=accept)
    assert isinstance(decode_error(error_body(refused, 400)["exception"]), errors.InvalidInput)


FAILURES: list[tuple[str, str, dict[str, Any], Callable[[og.Graph], object]]] = [
    ("GET", "/commits/nope", {}, lambda graph: graph.commit("nope")),
    ("GET", "/snapshot?branch=nowhere", {}, lambda graph: graph.snapshot("nowhere")),
    ("GET", "/state?name=nowhere", {}, lambda graph: graph.diff("nowhere", "main")),
    ("POST", "/query", {"query": TWO}, lambda graph: graph.query(TWO)),
    ("POST", "/query", {"query": ADD}, lambda graph: graph.query(ADD)),
    ("POST", "/query", {"query": "query x("}, lambda graph: graph.query("query x(")),
    ("POST", "/mutate", {"query": ALL}, lambda graph: graph.mutate(ALL)),
    (
        "POST",
        "/mutate",
        {"query": 'query link() { insert Knows { from: "Ann", to: "Nobody" } }'},
        lambda graph: graph.mutate('query link() { insert Knows { from: "Ann", to: "Nobody" } }'),
    ),
    (
        "POST",
        "/branches/merge",
        {"source": "main", "target": "dev", "if_commit": "other"},
        lambda graph: graph.branches.merge("main", "dev", if_commit="other"),
    ),
    ("POST", "/branches/merge", {"source": "dev"}, lambda graph: graph.branches.merge("dev")),
    ("POST", "/cleanup", {}, lambda graph: graph.cleanup()),
]


@pytest.mark.parametrize(("method", "path", "body", "same"), FAILURES)
def test_error_is_the_library_error(
    both: Both, method: str, path: str, body: dict[str, Any], same: Callable[[og.Graph], object]
) -> None:
    both.graph.branches.create("dev")
    for age, branch in ((1, "main"), (2, "dev")):
        both.graph.mutate(ADD, {"n": "Cid", "a": age}, branch=branch)
    with pytest.raises(errors.OmnigraphError) as raised:
        same(both.graph)
    found = both.fail(method, path, **({"json": body} if method == "POST" else {}))
    assert type(found) is type(raised.value)
    assert facts(found) == facts(raised.value)


def facts(error: errors.OmnigraphError) -> dict[str, Any]:
    """Return an encoded error without the ids of entities that were not committed."""
    found = dict(vars(error))
    if "violations" in found:
        found["violations"] = [{**item, "id": None} for item in found["violations"]]
    return found


@pytest.mark.parametrize(
    "error",
    [
        errors.StorageError("secret", transient=True, details={"bucket": "secret"}, hint="secret"),
        errors.UnsupportedFormat("secret", details={"path": "secret"}, hint="secret"),
        errors.RecoveryRequired("no", details={"operation_id": "x", "cause": "secret"}, hint="secret"),
        errors.OutcomeUnknown("no", details={"commit_id": "x", "cause": "secret"}, hint="secret"),
    ],
)
def test_redacted_storage_error_has_no_details(error: errors.OmnigraphError) -> None:
    body = encode_error(redact(error))
    found = decode_error(body)
    assert type(found) is type(error)
    assert found.message == render_error(error)[1]["error"]
    assert "secret" not in str(body)
    assert getattr(found, "transient", None) == getattr(error, "transient", None)
    assert set(found.details.values()) <= {"x", getattr(error, "kind", "x")}


def test_storage_failure_is_logged_and_not_disclosed(
    open_server: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with og.init(str(tmp_path / "kept.omni"), SCHEMA) as graph:
        graph.load({"Person": [{"name": "Ann"}]})
    for file in (tmp_path / "kept.omni" / "nodes").rglob("*.*"):
        file.write_bytes(b"rubbish")
    graphs = open_server.hosted.graphs
    assert isinstance(graphs, dict)
    with og.open(str(tmp_path / "kept.omni")) as graph:
        graphs["rubbish"] = HostedGraph("rubbish", graph)
        try:
            with open_server.client(prefix="/graphs/rubbish") as client:
                response = client.post("/query", json={"query": ALL}, headers={"Accept": EXACT})
        finally:
            del graphs["rubbish"]
    body = error_body(response, 500)
    error = decode_error(body["exception"])
    assert isinstance(error, errors.StorageError)
    assert (error.kind, error.details["type"]) == ("permanent", "Person")
    file = error.details["file"]
    assert file.startswith("nodes/")
    text = f"type 'Person' is damaged: {file} cannot be read; see the server log"
    assert body["error"] == error.message == text
    assert "kept.omni" not in response.text
    assert "LanceError" not in response.text
    # The cause is only in the log.
    assert f"{file}: it cannot be decoded (LanceError" in caplog.text


@pytest.mark.parametrize("accept", ["*/*", "application/json", f"{EXACT};q=0", "application/*", ""])
def test_accept_wildcard_returns_plain_body(both: Both, accept: str) -> None:
    response = both.client.get("/commits", headers={"Accept": accept})
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["commits"]
    assert "exception" not in error_body(both.client.get("/commits/nope", headers={"Accept": accept}), 404)


def test_http_error_has_no_library_error(guarded: Running) -> None:
    with guarded.client("bob") as client:
        headers = {"Accept": EXACT}
        for response, status in (
            (client.put("/mutate", headers=headers), 405),
            (client.post("/query", content=b"x", headers=headers), 415),
            (client.post("/query", json={}, headers=headers), 400),
            (httpx.get(f"{guarded.url}/graphs/team", headers=headers, timeout=HANG, verify=False), 401),
        ):
            assert "exception" not in error_body(response, status)
        denied = error_body(client.post("/optimize", headers=headers), 403)
        assert decode_error(denied["exception"]).code == "permission_denied"


def test_timestamp_resolves_as_in_the_library(both: Both) -> None:
    moment = datetime(2999, 1, 1, tzinfo=UTC)
    found = both.client.post(
        "/query", json={"query": ALL, "at": moment.isoformat()}, headers={"Accept": ARROW}
    )
    assert read_result(found.content).to_json() == both.graph.query(ALL, at=moment).to_json()
