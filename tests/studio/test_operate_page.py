"""The Operate page in a browser: health, types, maintenance, running requests, metrics, and the policy."""

from __future__ import annotations

import re
import threading

import httpx

from tests.server.running import Running
from tests.studio.browser import Studio

# Takes many minutes: every step follows all paths of the graph again.
ENDLESS = (
    "query endless() { match { $v0: Item "
    + " ".join(f"$v{i} near{{1,30}} $v{i + 1}" for i in range(500))
    + " } return { count($v500) as n } }"
)


def test_overview_shows_health_types_and_graphs(studio: Studio) -> None:
    studio.open("operate")
    studio.find(".tile", "ready")
    assert "49" in studio.find(".types-table tr", "Person").text
    studio.click(".bullets a", "large")
    studio.find(".types-table tr", "200,000")


def test_maintenance_reports_what_it_did(studio: Studio, served: Running) -> None:
    with served.client("ann", "/graphs/company") as client:
        assert client.post("/branches", json={"name": "tidy"}).status_code == 200
    studio.open("operate", branch="tidy", view="maintenance")
    studio.click("[data-job=Optimize] .primary")
    studio.find("[data-job=Optimize] .job-result", "Committed for")
    studio.click("[data-job=Verify] .primary")
    studio.find("[data-job=Verify] .job-result", "Complete and unaltered.")
    studio.click("[data-job='Collect garbage'] .primary")
    studio.find("[data-job='Collect garbage'] .job-result", "would be removed")
    studio.click("[data-job=Export] .primary")
    studio.find("[data-job=Export] .job-result", "KiB downloaded.")


def test_running_request_is_cancelled_by_clicking(studio: Studio, served: Running) -> None:
    answers: list[httpx.Response] = []
    with served.client("ann", "/graphs/large") as client:
        thread = threading.Thread(
            target=lambda: answers.append(client.post("/query", json={"query": ENDLESS}))
        )
        thread.start()
        studio.open("operate", "large", view="running")
        item = studio.find(".running li", "ann")
        assert "query endless()" in item.text
        studio.click(".running li [data-cancel]")
        thread.join()
    assert answers[0].json()["cancelled"]["reason"] == "by 'ann'"


def test_metrics_show_what_the_server_does(studio: Studio) -> None:
    studio.open("operate", view="metrics")
    assert re.search(r"\d [MG]iB", studio.find(".tile", "Memory").text)


def test_operation_without_permission_is_not_offered(reader: Studio) -> None:
    reader.open("operate", view="maintenance")
    for job in ("Optimize", "Verify", "Export"):
        reader.find(f"[data-job={job}]", "The policy does not let you do this.")
    assert reader.all(".job .primary") == []
    reader.open("operate", view="running")
    reader.find(".error-box", "Not allowed")
