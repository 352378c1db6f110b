"""The commands of a pipeline file as functions: validate, plan, run, test and status."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.errors import NotFound
from omnigraph.pipelines.fixtures import run_tests
from omnigraph.pipelines.pipeline_file import Pipeline, read_pipeline
from omnigraph.pipelines.plan import plan_pipeline
from omnigraph.pipelines.references import check_references
from omnigraph.pipelines.reports import PlanReport, RunReport, StatusReport, TestResult
from omnigraph.pipelines.run import RunOptions, open_target, run_pipeline
from omnigraph.pipelines.status import pipeline_status

if TYPE_CHECKING:
    from omnigraph.graph.progress import Progress


def validate(file: str | Path, *, variables: Mapping[str, str] | None = None) -> Pipeline:
    """Read a pipeline file and check it, also against its schema file and the graph if it exists.

    `variables` are the values for ``${NAME}`` in the file; default: the environment variables of the process.
    Raises `InvalidInput` with the line and the key of the first mistake.
    """
    pipeline = read_pipeline(file, variables)
    try:
        graph = open_target(pipeline, "r")
    except NotFound:
        check_references(pipeline, None)
    else:
        with graph:
            check_references(pipeline, graph)
    return pipeline


def plan(
    file: str | Path,
    *,
    variables: Mapping[str, str] | None = None,
    spark: Any = None,
    full_refresh: bool = False,
) -> PlanReport:
    """Return what a run would read and change. Nothing is written to the graph.

    `spark` is a session or the URL of one; by default the active session or a new local one is used.
    """
    return plan_pipeline(read_pipeline(file, variables), RunOptions(spark, full_refresh=full_refresh))


def run(
    file: str | Path,
    *,
    variables: Mapping[str, str] | None = None,
    spark: Any = None,
    actor: str | None = None,
    full_refresh: bool = False,
    progress: Progress | None = None,
) -> RunReport:
    """Run a pipeline: one commit on a review branch, audits, and a merge if they pass.

    Input that an earlier run has read is not read again, unless `full_refresh` is set. If there is none, nothing is
    written. Raises `Conflict` if another run of the pipeline was published meanwhile.
    """
    options = RunOptions(spark, actor, full_refresh, progress)
    return run_pipeline(read_pipeline(file, variables), options)


def test(
    file: str | Path,
    *,
    variables: Mapping[str, str] | None = None,  # noqa: PT028
    spark: Any = None,  # noqa: PT028
) -> list[TestResult]:
    """Run the tests of a pipeline file on graphs in temporary folders."""
    return list(run_tests(read_pipeline(file, variables), RunOptions(spark)))


def status(file: str | Path, *, variables: Mapping[str, str] | None = None, limit: int = 10) -> StatusReport:
    """Return the published runs of a pipeline, newest first, and the runs that wait for a review."""
    return pipeline_status(read_pipeline(file, variables), limit)
