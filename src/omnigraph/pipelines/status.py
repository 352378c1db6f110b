"""The status of a pipeline: its published runs with their lineage, and the runs that wait on review branches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile

from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.pipelines.pipeline_file import Pipeline
from omnigraph.pipelines.reports import RunStatus, StatusReport
from omnigraph.pipelines.run import open_target
from omnigraph.pipelines.run_record import RunRecord


def pipeline_status(pipeline: Pipeline, limit: int = 10) -> StatusReport:
    """Return up to `limit` published runs, newest first, the runs that wait on their branches, and branches without
    rows.
    """
    publish = pipeline.definition.publish
    with open_target(pipeline, "r") as graph:
        last = graph.runs.last_runs(publish.from_).get(pipeline.name)
        published = tuple(islice(_runs(graph, last), limit))
        left: list[RunStatus] = []
        empty: list[str] = []
        for branch in graph.branches.list(prefix=publish.branch.partition("{run_id}")[0]):
            if branch == publish.from_:
                continue
            commit = graph.runs.last_runs(branch).get(pipeline.name)
            status = None if commit is None else _status(graph, commit)
            # A branch without rows of its own has the last run of the branch that it was made from.
            if status is not None and status.branch == branch:
                left.append(status)
            elif graph.commits(branch, limit=1)[0].branch != branch:
                empty.append(branch)
        # A branch that was merged by hand may still exist.
        oldest = min((status.commit for status in left), default="")
        newer = takewhile(lambda run: run.commit >= oldest, _runs(graph, last)) if left else ()
        merged = {run.commit for run in newer}
        waiting = tuple(status for status in left if status.commit not in merged)
    return StatusReport(pipeline.name, publish.from_, published, waiting, tuple(empty))


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
