"""Statuses and bodies of errors."""

from __future__ import annotations

import inspect
import json
import logging
from typing import Any, cast

import httpx
import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.protocol.error_output import ErrorOutput
from omnigraph.server.hosted_graphs import HostedGraph
from omnigraph.server.http.error_responses import render_error
from tests.server.running import Running, error_body

CASES: list[tuple[errors.OmnigraphError, int, dict[str, Any]]] = [
    (errors.InvalidInput("no"), 400, {"code": "bad_request"}),
    (errors.ConstraintViolation("no"), 400, {"code": "bad_request"}),
    (errors.PermissionDenied("no"), 403, {"code": "forbidden"}),
    (errors.NotFound("no"), 404, {"code": "not_found"}),
    (errors.Conflict("no"), 409, {"code": "conflict"}),
    (
        errors.Conflict("no", details={"table_key": "node:T", "expected": "1", "actual": "2", "branch": "b"}),
        409,
        {
            "code": "conflict",
            "manifest_conflict": {"table_key": "node:T", "expected": "1", "actual": "2"},
            "read_set_conflict": {"member": "node:T", "expected": "1", "actual": "2"},
            "published_dataset_version_conflict": {
                "entity_kind": "node",
                "type_name": "T",
                "expected_published_dataset_version": 1,
                "actual_published_dataset_version": 2,
            },
        },
    ),
    (
        errors.Conflict("no", details={"table_key": "schema", "expected": "a", "actual": "b"}),
        409,
        {
            "code": "conflict",
            "manifest_conflict": {"table_key": "schema", "expected": "a", "actual": "b"},
            "read_set_conflict": {"member": "schema", "expected": "a", "actual": "b"},
        },
    ),
    (errors.MergeConflicts("no"), 409, {"code": "conflict", "merge_conflicts": []}),
    (
        errors.ChangeFeedGap("no", details={"change_feed_gap": {"first_unreadable_commit_id": "x"}}),
        410,
        {"change_feed_gap": {"first_unreadable_commit_id": "x"}},
    ),
    (
        errors.PreconditionFailed("no", details={"expected": "a", "actual": "b"}),
        412,
        {"precondition_failure": {"expected": "a", "actual": "b"}},
    ),
    (errors.Cancelled("no", details={"reason": "r"}), 499, {"cancelled": {"reason": "r"}}),
    (errors.ResourceLimit("no", details={"rows": 1}), 413, {"code": "bad_request"}),
    (
        errors.ResourceLimit("no", details={"resource": "r", "limit": 1, "actual": 2}),
        413,
        {"code": "bad_request", "resource_limit": {"resource": "r", "limit": 1, "actual": 2}},
    ),
    (
        errors.ExternalBlobError("no", details={"uri": "s3://b/x", "reason": "not found"}),
        424,
        {"external_blob_source": {"uri": "s3://b/x", "reason": "not found"}},
    ),
    (
        errors.RecoveryRequired("no", details={"operation_id": "x", "cause": "secret"}),
        503,
        {"recovery_required": {"operation_id": "x"}},
    ),
    (
        errors.OutcomeUnknown("no", details={"commit_id": "x"}),
        500,
        {"code": "internal", "outcome_unknown": {"graph_commit_id": "x"}},
    ),
]


@pytest.mark.parametrize(("error", "status", "members"), CASES)
def test_error_has_documented_status_and_members(
    error: errors.OmnigraphError, status: int, members: dict[str, Any]
) -> None:
    assert render_error(error) == (status, {"error": "no", **members})
    ErrorOutput.model_validate(render_error(error)[1])


@pytest.mark.parametrize("kind", [errors.StorageError, errors.UnsupportedFormat])
def test_storage_error_body_has_no_details(kind: type[errors.OmnigraphError]) -> None:
    status, body = render_error(kind("bucket of ours: key secret"))
    assert (status, body["code"]) == (500, "internal")
    assert "secret" not in str(body)


def test_every_error_class_has_a_case() -> None:
    classes = {item for _, item in inspect.getmembers(errors, inspect.isclass)}
    wanted = {item for item in classes if issubclass(item, errors.OmnigraphError)} - {errors.OmnigraphError}
    assert wanted == {type(error) for error, _, _ in CASES} | {errors.StorageError, errors.UnsupportedFormat}


def test_unexpected_exception_returns_500_with_request_id_only(
    open_server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    # No request causes an unexpected exception, so host an object that is not a graph.
    graphs = open_server.hosted.graphs
    assert isinstance(graphs, dict)
    graphs["broken"] = HostedGraph("broken", cast(og.LocalGraph, object()))
    try:
        with (
            caplog.at_level(logging.ERROR, "omnigraph.server"),
            open_server.client(prefix="/graphs/broken") as client,
        ):
            response = client.get("/snapshot", headers={"X-Request-Id": "mine-1"})
    finally:
        del graphs["broken"]
    body = error_body(response, 500)
    assert body == {"error": "internal error", "code": "internal", "request_id": "mine-1"}
    assert "AttributeError" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "/mutate", 405),
        ("GET", "/mutate", 405),
        ("DELETE", "/branches", 405),
        ("GET", "/nothing", 404),
        ("GET", "/", 404),
        ("GET", "/snapshot/", 404),
        ("GET", "/../../healthz/x", 404),
        ("GET", "/commits/%2E%2E%2F%2E%2E%2Fetc", 404),
        ("POST", "/queries/..%2F..%2Fpeople.gq", 404),
    ],
)
def test_unknown_path_or_method_returns_error_body(
    guarded: Running, method: str, path: str, status: int
) -> None:
    with guarded.client("ann") as client:
        response = client.request(method, path)
    body = error_body(response, status)
    assert body["code"] == ("not_found" if status == 404 else "method_not_allowed")
    assert status == 404 or response.headers["allow"]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/branches", "GET, POST"),
        ("/blob", "GET, HEAD"),
        ("/branches/merge", "DELETE, POST"),
        ("/query", "POST"),
    ],
)
def test_wrong_method_lists_allowed_methods(guarded: Running, path: str, allowed: str) -> None:
    with guarded.client("ann") as client:
        assert client.put(path).headers["Allow"] == allowed


@pytest.mark.parametrize(
    ("path", "successor"), [("/read", "query"), ("/change", "mutate"), ("/ingest", "load")]
)
def test_deprecated_route_sends_headers_with_errors(guarded: Running, path: str, successor: str) -> None:
    query = {"query_source": "nonsense", "query": "nonsense", "data": "x", "branch": "nowhere"}
    with guarded.client("ann") as client, guarded.client() as nobody:
        for response in (
            client.post(path, json=query),
            client.post(path, json=1),
            nobody.post(path, json=query),
        ):
            error_body(response, response.status_code)
            assert response.headers["Deprecation"] == "true"
            assert response.headers["Link"] == f'<{successor}>; rel="successor-version"'


def test_head_request_returns_no_body(guarded: Running) -> None:
    with guarded.client("ann") as client:
        response = client.head("/branches")
    assert (response.status_code, response.content) == (405, b"")


def test_language_error_returns_diagnostics_and_hint(client: httpx.Client) -> None:
    text = "query q() {\n  match { $p: Person  $p.naem = 1  $p.aeg > 1 }\n  return { $p.name }\n}"
    body = error_body(client.post("/query", json={"query": text}), 400)
    assert [(item["line"], item["column"]) for item in body["diagnostics"]] == [(2, 26), (2, 39)]
    assert body["error"] == f"{body['diagnostics'][0]['message']} (and 1 more)"
    for path in ("/schema/plan", "/schema/apply"):
        body = error_body(client.post(path, json={"schema_source": "node Person {\n  name: Strin }"}), 400)
        first = body["diagnostics"][0]
        assert (first["line"], first["hint"], body["hint"]) == (2, body["hint"], "did you mean `String`?")


def test_error_without_hint_omits_member(client: httpx.Client) -> None:
    assert "expected one of" in error_body(client.get("/changes?odd=1"), 400)["hint"]
    assert error_body(client.get("/commits/nothing"), 404) == {
        "error": "commit 'nothing' not found",
        "code": "not_found",
    }


def test_load_with_invalid_records_lists_every_record(client: httpx.Client) -> None:
    records = [{"type": "Person", "data": {"name": "Cid", "age": "old"}}] * 2 + [
        {"type": "Nobody", "data": {}}
    ]
    content = "\n".join(json.dumps(record) for record in records)
    headers = {"Content-Type": "application/x-ndjson"}
    body = error_body(client.post("/load/ndjson", content=content, headers=headers), 400)
    assert [(item["line"], item.get("type_name")) for item in body["violations"]] == [
        (1, "Person"),
        (2, "Person"),
        (3, None),
    ]
    assert body["violation_count"] == 3


def test_load_with_constraint_violations_lists_every_violation(client: httpx.Client) -> None:
    lines = [json.dumps({"edge": "Knows", "from": "Ann", "to": name, "data": {}}) for name in ("Xe", "Yo")]
    headers = {"Content-Type": "application/x-ndjson"}
    body = error_body(client.post("/load/ndjson", content="\n".join(lines), headers=headers), 400)
    assert body["violation_count"] == 2
    assert body["violations"][0]["message"] == body["error"]
    assert [(item["line"], item["entity_kind"], item["type_name"]) for item in body["violations"]] == [
        (1, "edge", "Knows"),
        (2, "edge", "Knows"),
    ]
