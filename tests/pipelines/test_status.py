"""The status of a pipeline: published runs, runs that wait for a review, and branches of killed runs."""

from __future__ import annotations

from pathlib import Path

import omnigraph as og
from omnigraph import pipelines
from omnigraph.graph.pipeline_runs import PipelineRun
from omnigraph.load.load_request import LoadRequest
from omnigraph.pipelines.run_record import RunRecord

FILE = """
graph: g.omni
sources:
  cities: {format: csv, path: in/*.csv}
nodes:
  City: {from: cities}
"""


def load_run(graph: og.LocalGraph, name: str, previous: str | None) -> str:
    """Commit a run on a branch of its name; returns the commit."""
    record = RunRecord("p", name, "2026-05-01T00:00:00.000+00:00", "abc", previous)
    run = PipelineRun("p", previous, record.to_text())
    rows = {"City": [{"name": name}]}
    branch = f"review/{name}"
    receipt = graph.load_run(LoadRequest(rows, "merge", branch, create_from="main", run=run))
    assert receipt.commit is not None
    return receipt.commit.id


def test_status_tells_published_and_waiting_runs_from_branches_without_rows(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(FILE, encoding="utf-8")
    graph = og.init(tmp_path / "g.omni", schema="node City { name: String @key }")
    graph.branches.create("review/killed-first")
    first = load_run(graph, "first", None)
    graph.branches.merge("review/first", delete_source=True)
    # Its state is that of the first run, which is published.
    graph.branches.create("review/killed-later")
    # Merged by hand, and its branch is still there.
    second = load_run(graph, "second", first)
    graph.branches.merge("review/second")
    third = load_run(graph, "third", second)
    graph.branches.merge("review/third", delete_source=True)
    waiting = load_run(graph, "waiting", third)

    status = pipelines.status(tmp_path / "p.yaml", variables={})

    assert [run.run_id for run in status.published] == ["third", "second", "first"]
    assert [(run.run_id, run.commit) for run in status.waiting] == [("waiting", waiting)]
    assert status.empty_branches == ("review/killed-first", "review/killed-later")
