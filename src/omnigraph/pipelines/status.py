"""The status of a pipeline: its published runs with their lineage, and the runs that wait on review branches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.pipelines.pipeline_file import Pipeline
from omnigraph.pipelines.reports import RunStatus, StatusReport
from omnigraph.pipelines.run import open_target
from omnigraph.pipelines.run_record import RunRecord


def pipeline_status(pipeline: Pipeline, limit: int = 10) -> StatusReport:
    """Return up to `limit` published runs, newest first, and the runs that wait on their branches."""
    publish = pipeline.definition.publish
    with open_target(pipeline, "r") as graph:
        last = graph.runs.last_runs(publish.from_).get(pipeline.name)
        published = tuple(islice(_runs(graph, last), limit))
        waiting = []
        for branch in graph.branches.list(prefix=publish.branch.partition("{run_id}")[0]):
            commit = graph.runs.last_runs(branch).get(pipeline.name)
            if branch != publish.from_ and commit is not None and commit != last:
                waiting.append(_status(graph, commit))
    return StatusReport(pipeline.name, publish.from_, published, tuple(waiting))


def _runs(graph: LocalGraph, commit: str | None) -> Iterator[RunStatus]:
    while commit is not None:
        status = _status(graph, commit)
        yield status
        commit = RunRecord.from_text(graph.runs.commit_of(commit).run).previous


def _status(graph: LocalGraph, commit_id: str) -> RunStatus:
    commit = graph.runs.commit_of(commit_id)
    record = RunRecord.from_text(commit.run)
    return RunStatus(
        record.run_id, commit_id, commit.branch, record.started_at, record.definition, record.sources
    )
