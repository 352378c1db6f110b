"""`omnigraph pipeline`: check, plan, run and test a pipeline file, and show its runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.failures import FAILURE
from omnigraph.cli.options import GlobalOptions
from omnigraph.cli.query_arguments import SparkOption
from omnigraph.cli.render.output import count, escape_unprintable, print_json, print_line, print_status
from omnigraph.cli.render.progress_bar import show_progress
from omnigraph.cli.target import JsonOption

if TYPE_CHECKING:
    from omnigraph.pipelines.reports import PlanReport, RunReport, RunStatus
    from omnigraph.pipelines.run_record import SourceLineage

pipeline_commands = typer.Typer(
    help="Pipelines as files: sources, views, targets, quality rules and audits.", no_args_is_help=True
)

FileArgument: TypeAlias = Annotated[
    Path, typer.Argument(metavar="FILE", help="The pipeline file, in YAML or Python.")
]
RefreshOption: TypeAlias = Annotated[
    bool, typer.Option("--full-refresh", help="Read all input again, also what earlier runs have read.")
]


@pipeline_commands.command()
def validate(file: FileArgument, json: JsonOption = False) -> None:
    """Check a pipeline file: keys, SQL, references, conditions, and types of the graph if it exists."""
    from omnigraph import pipelines

    checked = pipelines.validate(file)
    definition = checked.definition
    names = [*definition.nodes, *definition.edges]
    if json:
        print_json(
            {"pipeline": checked.name, "valid": True, "sources": [*definition.sources], "targets": names}
        )
        return
    parts = [count(len(definition.sources), "source"), count(len(names), "target")]
    print_status("OK", f"pipeline {checked.name}: {', '.join(parts)}")


@pipeline_commands.command()
def plan(
    file: FileArgument,
    full_refresh: RefreshOption = False,
    spark: SparkOption = None,
    json: JsonOption = False,
) -> None:
    """Show what a run would read and change. Nothing is written to the graph."""
    from omnigraph import pipelines

    report = pipelines.plan(file, spark=spark, full_refresh=full_refresh)
    if json:
        print_json(report.to_json())
    else:
        _print_plan(report)


@pipeline_commands.command()
def run(
    ctx: typer.Context,
    file: FileArgument,
    full_refresh: RefreshOption = False,
    spark: SparkOption = None,
    json: JsonOption = False,
) -> None:
    """Load new input as one commit on a review branch, run the audits, and merge if they pass.

    A failed audit leaves the branch and ends the command with exit code 1.
    """
    from omnigraph import pipelines

    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    with show_progress("running", silent=json or chosen.quiet) as progress:
        report = pipelines.run(
            file, spark=spark, full_refresh=full_refresh, actor=chosen.actor, progress=progress
        )
    if json:
        print_json(report.to_json())
    else:
        _print_run(report)
    if not report.passed:
        raise typer.Exit(FAILURE)


@pipeline_commands.command("test")
def run_tests(file: FileArgument, spark: SparkOption = None, json: JsonOption = False) -> None:
    """Run the tests of the file on its fixtures. A failed test ends the command with exit code 1."""
    from omnigraph import pipelines

    results = pipelines.test(file, spark=spark)
    if json:
        print_json({"tests": [result.to_json() for result in results]})
    else:
        for result in results:
            print_status("OK" if result.passed else "ERROR", f"test {result.name}")
            for line in result.differences:
                print_line(f"      {escape_unprintable(line)}")
    if not all(result.passed for result in results):
        raise typer.Exit(FAILURE)


@pipeline_commands.command()
def status(
    file: FileArgument,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Number of runs to show.")] = 10,
    json: JsonOption = False,
) -> None:
    """Show the published runs, the input that each of them read, and the runs that wait for a review."""
    from omnigraph import pipelines

    report = pipelines.status(file, limit=limit)
    if json:
        print_json(report.to_json())
        return
    print_line(f"pipeline {report.pipeline}, published to {report.branch}")
    if not report.published:
        print_line("  no published runs")
    for item in report.published:
        _print_status(item, "published")
    for item in report.waiting:
        _print_status(item, f"waits on branch {item.branch}")
    for branch in report.empty_branches:
        print_line(f"  branch {branch} has no rows: its run is under way or was killed")


def _print_status(item: RunStatus, state: str) -> None:
    print_line(f"  run {item.run_id}  {item.started_at}  {state}  commit {item.commit}")
    _print_sources(item.sources)


def _print_plan(report: PlanReport) -> None:
    if not report.has_work:
        print_line(f"pipeline {report.pipeline}: nothing to read")
    else:
        print_line(f"pipeline {report.pipeline} would read")
        _print_sources(report.sources)
    if report.definition_changed:
        print_line("  the definition changed since the last run; earlier input is not read again")
    for step in report.schema_steps:
        print_line(f"  schema: {step}")
    for name, target in report.targets.items():
        effects = ", ".join(f"{number} {effect}" for effect, number in target.affected.items() if number)
        failed = f", {count(target.failed, 'row')} failed" if target.failed else ""
        print_line(f"  {name}: {count(target.rows, 'row')} ({effects or 'no change'}){failed}")
        for row in target.sample:
            print_line(f"      {escape_unprintable(str(_plain(row)))}")


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without the columns that describe it."""
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _print_sources(sources: Mapping[str, SourceLineage]) -> None:
    for name, item in sources.items():
        if item.kind == "files":
            print_line(f"      {name}: {count(item.file_count, 'file')}")
        elif item.stop is None:
            print_line(f"      {name}: all rows")
        else:
            print_line(f"      {name}: {item.start or 'start'} to {item.stop}")


def _print_run(report: RunReport) -> None:
    if report.outcome == "unchanged":
        print_line(f"pipeline {report.pipeline}: nothing to do")
        return
    print_line(f"pipeline {report.pipeline} run {report.run_id}: {report.outcome}")
    _print_sources(report.sources)
    for name, counts in report.affected.items():
        effects = ", ".join(f"{number} {effect}" for effect, number in counts.items() if number)
        print_line(f"  {name}: {effects or 'no change'}")
    for name, number in report.quarantined.items():
        print_line(f"  {name}: {count(number, 'row')} quarantined in {report.quarantine}")
    for audit in report.audits:
        print_status("OK" if audit.passed else "ERROR", f"audit {audit.name}: {audit.expect}")
    if report.reason is not None:
        print_line(f"  left on branch {report.branch}: {report.reason}")
