"""Hosted graphs: configuration, quarantine and startup checks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import omnigraph as og
from omnigraph.api.hosting.hosting_config import read_hosting
from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.policy.bundle import PolicyBundle
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from omnigraph.server.limits import read_limits
from omnigraph.server.run import check_authentication, parse_bind
from tests.server.running import LISTING, POLICY, SCHEMA, STORED, TOKENS, error_body, names, running

KNOWN = TokenRegistry.of(TOKENS)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a configuration with one healthy graph and some that cannot be opened."""
    og.init(str(tmp_path / "data" / "team.omni"), SCHEMA).close()
    og.init(str(tmp_path / "data" / "odd.omni"), "node Other { name: String @key }").close()
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "people.gq").write_text(STORED, encoding="utf-8")
    (tmp_path / "team.policy.yaml").write_text(yaml.safe_dump(POLICY), encoding="utf-8")
    (tmp_path / "server.policy.yaml").write_text(yaml.safe_dump(LISTING), encoding="utf-8")
    return write(
        tmp_path,
        {
            "graphs": {
                "team": {"uri": "data/team.omni", "queries": "queries", "policy": "team.policy.yaml"},
                "odd": {"uri": "data/odd.omni", "queries": "queries"},
                "gone": {"uri": "data/gone.omni"},
            },
            "policy": "server.policy.yaml",
        },
    )


def write(folder: Path, document: Any) -> Path:
    path = folder / "serve.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def test_unopenable_graph_is_quarantined_and_others_are_served(config: Path) -> None:
    hosted = open_graphs(read_hosting(config), KNOWN)
    assert set(hosted.graphs) == {"team"}
    assert set(hosted.quarantined) == {"odd", "gone"}
    with running(hosted) as server:
        with server.client("ann") as client:
            assert names(client) == []
        for id_ in ("odd", "gone"):
            with server.client("ann", prefix=f"/graphs/{id_}") as client:
                assert error_body(client.get("/snapshot"), 404)["error"] == f"graph '{id_}' not found"
        with server.client("ann", prefix="") as client:
            assert [item["graph_id"] for item in client.get("/graphs").json()["graphs"]] == ["team"]
            counts = client.get("/metrics").text
    assert 'omnigraph_graphs{state="served"} 1.0\nomnigraph_graphs{state="quarantined"} 2.0\n' in counts
    hosted.close()


def test_invalid_graph_name_in_folder_is_quarantined(tmp_path: Path) -> None:
    og.init(str(tmp_path / "good.omni"), SCHEMA).close()
    for name in ("my_graph.omni", "sp ace.omni", ".omni"):
        (tmp_path / name).mkdir()
    (tmp_path / "circle.omni").symlink_to(tmp_path / "circle.omni")
    hosting = read_hosting(tmp_path)
    hosted = open_graphs(hosting, KNOWN)
    hosted.close()
    assert set(hosted.graphs) == {"good"}
    assert set(hosted.quarantined) == {"my_graph", "sp ace", ".omni", "circle"}
    assert hosted.quarantined["my_graph"] == (
        "'my_graph' is not a graph id (1 to 64 letters, digits and hyphens)"
    )
    with pytest.raises(InvalidInput, match="my_graph"):
        open_graphs(hosting, KNOWN, require_all=True)


@pytest.mark.parametrize("policy", ["nowhere.yaml", "bad.yaml", "server.policy.yaml"])
def test_graph_with_invalid_policy_is_quarantined(config: Path, policy: str) -> None:
    (config.parent / "bad.yaml").write_text("version: 2", encoding="utf-8")
    graphs = {
        "closed": {"uri": "data/team.omni", "policy": policy},
        "team": {"uri": "data/team.omni"},
    }
    hosting = read_hosting(write(config.parent, {"graphs": graphs}))
    # The graph counts as one with a policy, so the server needs tokens, and the policy allows nothing.
    assert hosting.has_policy
    assert hosting.graphs[0].policy == PolicyBundle()
    hosted = open_graphs(hosting, KNOWN)
    hosted.close()
    assert set(hosted.graphs) == {"team"}
    assert policy in hosted.quarantined["closed"]
    with pytest.raises(InvalidInput, match="not every graph can be served"):
        open_graphs(hosting, KNOWN, require_all=True)


def test_policy_is_prepared_when_graph_is_opened(config: Path) -> None:
    hosted = open_graphs(read_hosting(config), KNOWN)
    hosted.close()
    served = hosted.graphs["team"]
    assert served.gate is not None
    assert served.gate is served.graph._authorizer.gate
    assert hosted.server_gate is not None
    for gate in (served.gate, hosted.server_gate):
        assert {"_policies", "_groups"} <= gate.__dict__.keys()


def test_require_all_graphs_fails_with_one_quarantined(config: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        open_graphs(read_hosting(config), KNOWN, require_all=True)
    assert "odd" in str(caught.value)
    assert "gone" in str(caught.value)


def test_start_without_servable_graph_raises_invalid_input(tmp_path: Path) -> None:
    documents: list[Any] = [{"graphs": {"gone": {"uri": "gone.omni"}}}, {"graphs": {}}]
    for document in documents:
        with pytest.raises(InvalidInput, match="no graph"):
            open_graphs(read_hosting(write(tmp_path, document)), KNOWN)


def test_folder_serves_its_graphs(tmp_path: Path) -> None:
    for name in ("one", "two"):
        og.init(str(tmp_path / f"{name}.omni"), SCHEMA).close()
    (tmp_path / "other").mkdir()
    assert [item.id for item in read_hosting(tmp_path).graphs] == ["one", "two"]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"graphs": []},
        {"graphs": {"a_b": {"uri": "x"}}},
        {"graphs": {"policies": {"uri": "x"}}},
        {"graphs": {"a": {}}},
        {"graphs": {"a": {"uri": 7}}},
        {"graphs": {"a": {"uri": "x", "model": "y"}}},
        {"graphs": {}, "other": 1},
        {"graphs": {"a": {"uri": " "}}},
        {"graphs": {"a": {"uri": "~/x"}}},
        {"graphs": {}, "policy": "graph.yaml"},
        {"graphs": {}, "policy": "nowhere.yaml"},
    ],
)
def test_invalid_configuration_raises_invalid_input(tmp_path: Path, document: Any) -> None:
    (tmp_path / "server.yaml").write_text(yaml.safe_dump(LISTING), encoding="utf-8")
    (tmp_path / "graph.yaml").write_text(yaml.safe_dump(POLICY), encoding="utf-8")
    with pytest.raises(OmnigraphError):
        read_hosting(write(tmp_path, document))


def test_configuration_error_reports_line_and_known_members(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text("graphs:\n  a:\n    uri: x\n    model: y\n", encoding="utf-8")
    with pytest.raises(InvalidInput) as caught:
        read_hosting(path)
    assert caught.value.message == f"{path}: line 4: graphs.a.model: unknown member 'model'"
    assert caught.value.hint == "known members: uri, schema, queries, policy, external_blobs"


@pytest.mark.parametrize("id_", ["yes", "~", "12:30", "01", "2026-01-01"])
def test_graph_id_of_other_yaml_type_needs_quotes(tmp_path: Path, id_: str) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(f"graphs:\n  {id_}: {{uri: x}}\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="put it in quotes"):
        read_hosting(path)


def test_folder_is_accepted_as_file_url(tmp_path: Path) -> None:
    og.init(str(tmp_path / "one.omni"), SCHEMA).close()
    assert [item.id for item in read_hosting(tmp_path.as_uri()).graphs] == ["one"]


def test_duplicate_stored_query_reports_both_positions(config: Path) -> None:
    queries = config.parent / "queries"
    (queries / "more.gq").write_text("// again\nquery " + STORED.partition("query ")[2], encoding="utf-8")
    with pytest.raises(InvalidInput) as caught:
        open_graphs(read_hosting(config), KNOWN)
    assert caught.value.hint is not None
    assert f"': {queries / 'more.gq'}:2:7 and {queries / 'people.gq'}:" in caught.value.hint


def test_invalid_stored_query_reports_position(config: Path) -> None:
    hosted = open_graphs(read_hosting(config), KNOWN)
    hosted.close()
    reason = hosted.quarantined["odd"]
    assert re.match(
        rf"{re.escape(str(config.parent / 'queries' / 'people.gq'))}:\d+:\d+: type error: T1: ", reason
    )


@pytest.mark.parametrize(
    ("tokens", "policy", "unauthenticated", "starts"),
    [
        (False, False, False, False),
        (False, False, True, True),
        (False, True, False, False),
        (False, True, True, False),
        (True, False, False, True),
        (True, True, False, True),
        (True, True, True, True),
    ],
)
def test_start_without_tokens_requires_unauthenticated_option(
    config: Path, tokens: bool, policy: bool, unauthenticated: bool, starts: bool
) -> None:
    hosting = read_hosting(config if policy else config.parent / "data")
    registry = KNOWN if tokens else TokenRegistry()
    if starts:
        check_authentication(hosting, registry, unauthenticated=unauthenticated)
        return
    with pytest.raises(InvalidInput):
        check_authentication(hosting, registry, unauthenticated=unauthenticated)


@pytest.mark.parametrize("text", ["", "8080", ":8080", "host:", "host:x", "host:70000", "host:-1"])
def test_parse_bind_rejects_invalid_address(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_bind(text)


def test_actor_limits_come_from_environment() -> None:
    found = read_limits({"OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "3", "OMNIGRAPH_PER_ACTOR_BYTES_MAX": ""})
    assert (found.actor_requests, found.actor_bytes) == (3, 4 << 30)
    with pytest.raises(InvalidInput):
        read_limits({"OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "0"})
