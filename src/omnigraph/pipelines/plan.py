"""A plan: what a run would read and change now. Nothing is written to the graph."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.pipelines.pipeline_file import Pipeline
from omnigraph.pipelines.references import check_references
from omnigraph.pipelines.reports import PlanReport, TargetPlan
from omnigraph.pipelines.run import RunOptions, dry_run_load, find_run_input, lazy_session, open_target
from omnigraph.pipelines.run_errors import translated_errors
from omnigraph.pipelines.target_rows import RunFrames, TargetRows

SAMPLE_ROWS: Final = 5


def plan_pipeline(pipeline: Pipeline, options: RunOptions) -> PlanReport:
    """Return what a run would read from each source and change in each type.

    The rows are read, checked and counted as a run does. If the run would change the schema first, effects are not
    counted, because the rows belong to a schema that no branch has.
    """
    # Tasks of a dry run write scratch files beside the graph, which needs a handle for writing.
    with open_target(pipeline, "rw", options.actor) as graph, ExitStack() as stack:
        check_references(pipeline, graph)
        session = lazy_session(options.spark, stack)
        found = find_run_input(graph, pipeline, session, full_refresh=options.full_refresh)
        steps = _schema_steps(pipeline, graph)
        changed = found.last is not None and found.last.definition != pipeline.digest
        sources = {name: item.lineage for name, item in found.inputs.items() if item.has_rows}
        if not found.has_work:
            return PlanReport(pipeline.name, False, changed, sources, schema_steps=steps)
        frames = RunFrames(pipeline, session(), found.inputs, tolerant=True)
        stack.callback(frames.close)
        frames.build_views()
        catalog = graph.runs.catalog(pipeline.definition.publish.from_)
        targets = list(frames.targets(catalog, lambda _: None)) if not steps else []
        affected: dict[str, Any] = {}
        rows: dict[str, int] = {}
        if targets:
            receipt = dry_run_load(graph, pipeline, options, frames, targets)
            affected = {name: dict(counts) for name, counts in receipt.affected.items()}
            rows = {**receipt.nodes, **receipt.edges}
        plans = {item.table.name: _target_plan(pipeline, item, rows, affected) for item in targets}
        return PlanReport(pipeline.name, True, changed, sources, plans, steps)


def _schema_steps(pipeline: Pipeline, graph: LocalGraph) -> tuple[str, ...]:
    if pipeline.definition.schema_ is None:
        return ()
    path = Path(pipeline.resolve(pipeline.definition.schema_))
    plan = graph.schema.plan(path, branch=pipeline.definition.publish.from_)
    return tuple(str(step) for step in plan.steps)


def _target_plan(
    pipeline: Pipeline, item: TargetRows, rows: dict[str, int], affected: dict[str, Any]
) -> TargetPlan:
    with translated_errors(pipeline, item.path):
        # A few rows travel to the driver.
        sample = [row.asDict(recursive=True) for row in item.frame.limit(SAMPLE_ROWS).collect()]
    name = item.table.name
    failed = 0 if item.counts is None else item.counts.failed
    return TargetPlan(rows.get(name, 0), affected.get(name, {}), failed, item.columns, tuple(sample))
