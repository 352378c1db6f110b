"""The log of policy decisions: one line for each access, with the rule that allowed it and the request."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, PermissionDenied
from omnigraph.policy.decision_log import LOGGER
from omnigraph.server.logs import JsonFormatter, LoggedDecisions, log_to_stderr, read_logged_decisions
from tests.server.running import ADD, ALL, POLICY, SCHEMA, TOKENS, Running


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """The decisions as the server writes them."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(JsonFormatter())
    before = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    yield text
    LOGGER.setLevel(before)
    LOGGER.removeHandler(handler)


def decisions(log: io.StringIO) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in log.getvalue().splitlines()]
    for item in found:
        assert (item.pop("level"), item.pop("message")) == ("info", "policy decision")
        item.pop("time")
    return found


def test_server_logs_allowed_and_denied_access_with_rule_and_request(
    guarded: Running, log: io.StringIO
) -> None:
    with guarded.client("bob") as client:
        client.post("/query", json={"query": ALL}, headers={"X-Request-Id": "r1"})
        client.post("/mutate", json={"query": ADD, "params": {"n": "Zoe"}}, headers={"X-Request-Id": "r2"})
    with guarded.client("eve") as client:
        response = client.post("/queries/everybody", json={}, headers={"X-Request-Id": "r3"})
        # A caller that may not invoke queries does not learn which exist.
        assert response.status_code == 404
    with guarded.client("eve", prefix="") as client:
        client.get("/graphs", headers={"X-Request-Id": "r4"})
    nothing = {"branch": None, "target_branch": None, "allowed": False, "matched_rule_id": None}
    bob, eve = {"graph_id": "team", "actor": "bob"}, {"graph_id": "team", "actor": "eve"}
    assert decisions(log) == [
        bob | nothing | {"action": "read", "branch": "main", "allowed": True, "matched_rule_id": "a",
                         "request_id": "r1"},
        bob | nothing | {"action": "change", "branch": "main", "request_id": "r2"},
        eve | nothing | {"action": "invoke_query", "request_id": "r3"},
        eve | nothing | {"graph_id": None, "action": "graph_list", "request_id": "r4"},
    ]  # fmt: skip
    assert not any(token in log.getvalue() for token in TOKENS.values())


def test_embedded_graph_logs_decisions_with_both_branches(log: io.StringIO) -> None:
    graph = og.init("memory://decisions", SCHEMA, policy=POLICY, actor="ann", graph_id="team")
    graph.branches.create("draft")
    with pytest.raises(PermissionDenied):
        graph.branches.merge("draft", actor="bob")
    found = [(d["actor"], d["action"], d["branch"], d["target_branch"], d["allowed"]) for d in decisions(log)]
    assert ("ann", "branch_create", "main", "draft", True) in found
    assert found[-1] == ("bob", "branch_merge", "draft", "main", False)
    graph.close()


@pytest.mark.parametrize(("wanted", "count"), [("all", 2), ("denied", 1), ("off", 0)])
def test_decision_log_is_limited_by_its_setting(
    wanted: LoggedDecisions, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    loggers = [logging.getLogger(name) for name in ("omnigraph.server", "uvicorn.error", LOGGER.name)]
    before = [(item, list(item.handlers), item.level, item.propagate) for item in loggers]
    try:
        log_to_stderr(read_logged_decisions({"OMNIGRAPH_DECISION_LOG": wanted}))
        graph = og.init(f"memory://limited-{wanted}", SCHEMA, policy=POLICY, actor="bob", graph_id="team")
        graph.query(ALL)
        with pytest.raises(PermissionDenied):
            graph.mutate(ADD, {"n": "Zoe"})
        graph.close()
    finally:
        log_to_stderr()
        for item, handlers, level, propagate in before:
            item.handlers, item.propagate = handlers, propagate
            item.setLevel(level)
    assert capsys.readouterr().err.count("policy decision") == count


def test_decision_log_setting_that_is_unknown_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be all, denied or off"):
        read_logged_decisions({"OMNIGRAPH_DECISION_LOG": "some"})
