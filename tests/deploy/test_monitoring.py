"""Alert rules and the dashboard use metrics and labels that the server has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cli.running import ROOT
from tests.server.running import ADD, ALL, LISTING, POLICY, TOKENS, host, running

MONITORING = ROOT / "deploy" / "monitoring"
WORDS = {"by", "without", "and", "or", "on", "ignoring", "job", "instance", "le"}
# Added by Prometheus: its own metric, and the labels of every target.
SCRAPED = {"up": {"job", "instance"}}
SELECTOR = re.compile(r"([a-zA-Z_]\w*)\{([^}]*)\}")
LABELS = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
IDENTIFIER = re.compile(r"\b[a-zA-Z_]\w*\b(?!\s*\()")


def metrics_of(expression: str) -> set[str]:
    """Return the metrics of a PromQL expression.

    >>> sorted(metrics_of('sum by (le) (rate(a_total{x="y"}[5m])) / 2e6 > b'))
    ['a_total', 'b']
    """
    text = re.sub(r"\{[^}]*\}|\[[^]]*\]|\"[^\"]*\"", " ", expression)
    text = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", " ", text)
    return set(IDENTIFIER.findall(text)) - WORDS


def labels_of(expression: str) -> Iterator[tuple[str, str]]:
    """Yield each metric with a label that it is selected by."""
    for metric, selector in SELECTOR.findall(expression):
        for label in LABELS.findall(selector):
            yield metric, label


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """The labels of each metric of a server that has had some requests."""
    with running(host(POLICY, tokens=TOKENS, server_policy=LISTING)) as server:
        with server.client("ann") as client:
            client.post("/query", json={"query": ALL})
            client.post("/mutate", json={"query": ADD, "params": {"n": "Zoe"}})
            client.post("/branches", json={"name": "main"})
        with server.client("ann", prefix="") as client:
            lines = client.get("/metrics").text.splitlines()
    found: dict[str, set[str]] = {}
    for line in lines:
        if line.startswith("# TYPE"):
            found.setdefault(line.split()[2], set())
        elif not line.startswith("#"):
            name, _, rest = line.partition("{")
            found.setdefault(name.split()[0], set()).update(LABELS.findall(rest.rpartition("}")[0]))
    return found


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    return found


def expressions() -> list[str]:
    targets = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    return [rule["expr"] for rule in alerts()] + targets


def test_every_metric_and_label_is_exposed_by_a_server(exposed: dict[str, set[str]]) -> None:
    known = exposed | SCRAPED
    used = set().union(*map(metrics_of, expressions()))
    assert len(used) > 15
    assert {name for name in used if name not in known} == set()
    unknown = {
        (metric, label)
        for expression in expressions()
        for metric, label in labels_of(expression)
        # A metric that nothing was counted for yet has no labels.
        if label not in {"job", "instance"} and known[metric] and label not in known[metric]
    }
    assert unknown == set()


def test_every_metric_of_a_graph_is_on_the_dashboard(exposed: dict[str, set[str]]) -> None:
    own = {name for name in exposed if name.startswith("omnigraph_graph")}
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in own}
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for item in expressions() for name in metrics_of(item)}
    assert families <= shown


def test_alerts_are_complete() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names) >= 8
    for rule in alerts():
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "action"}
        assert rule["expr"].count("(") == rule["expr"].count(")")
    scrape = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    assert scrape["rule_files"] == ["alerts.yaml"]
    assert [item["job_name"] for item in scrape["scrape_configs"]] == ["omnigraph"]


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in own) < 24
        assert not own & taken, panel["title"]
        taken |= own
        for target in panel.get("targets", ()):
            assert target["expr"].count("(") == target["expr"].count(")")
            assert "$" not in target["expr"].replace("$graph", "").replace("$__rate_interval", "")
