"""`omnigraph verify`: check that a graph in storage is complete and unaltered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.completion import complete_branch
from omnigraph.cli.failures import FAILURE
from omnigraph.cli.query_arguments import EngineOption, SparkOption
from omnigraph.cli.render.output import count, escape_unprintable, print_json, print_line, print_status
from omnigraph.cli.render.progress_bar import Report, show_progress
from omnigraph.cli.storage_errors import explain_storage_errors
from omnigraph.cli.target import GraphTarget, JsonOption, UriArgument, open_graph, resolve_target

if TYPE_CHECKING:
    from omnigraph.maintain.verification.report import BranchState, Damage, VerifyReport
    from omnigraph.maintain.verification.verify_options import VerifyOptions

_SHOWN_COMMITS = 3


def verify(
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: Annotated[
        str | None,
        typer.Option(
            "--branch",
            metavar="BRANCH",
            help="Check one branch. Default: all branches.",
            autocompletion=complete_branch,
        ),
    ] = None,
    all_commits: Annotated[
        bool,
        typer.Option("--all-commits", help="Check every retained commit, not only the heads of branches."),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check existence, sizes and numbers of rows; read no contents.")
    ] = False,
    record: Annotated[
        bool,
        typer.Option("--record", help="Record the digests of undamaged files that have none."),
    ] = False,
    engine: EngineOption = "auto",
    spark: SparkOption = None,
    json: JsonOption = False,
) -> None:
    """Check that a graph in storage is complete and unaltered. Damage ends the command with exit code 1.

    Checks the manifest, the lineage, and for every branch: existence, size and digest of each file, numbers of
    rows, ids, unique values, endpoints of edges, and coverage of indexes. Each damaged file is listed with its
    type, the branches and commits it affects, the rows that are lost, and what to do. A graph that is too damaged
    to be opened can be verified.
    """
    from omnigraph.maintain.verification.verify_options import VerifyOptions

    target = resolve_target(ctx, uri)
    with show_progress("verifying", silent=json or target.chosen.quiet) as progress:
        options = VerifyOptions(quick, all_commits, branch, record, engine)
        report = _verify(target, options, spark, progress)
    if json:
        print_json({"uri": target.uri, **report.to_json()})
    else:
        _print_report(target.uri, report)
    if not report.ok:
        raise typer.Exit(FAILURE)


def _verify(
    target: GraphTarget, options: VerifyOptions, spark: str | None, progress: Report | None
) -> VerifyReport:
    if target.is_served or options.record:
        with open_graph(target, "rw" if options.record else "r", recover=False) as graph:
            return graph.verify(
                quick=options.quick,
                all_commits=options.all_commits,
                branch=options.branch,
                record=options.record,
                engine=options.engine,
                spark=spark,
                progress=progress,
            )
    # Not through a handle: a damaged graph may not open.
    from omnigraph.graph.open_storage import connect
    from omnigraph.maintain.verification.verify import verify
    from omnigraph.spark.engine.tasks import spark_tasks

    with explain_storage_errors(target.uri, target.location, "r"):
        _, root, objects = connect(target.location.uri, target.options or None, "full")
        return verify(root, objects, options, run_on_spark=spark_tasks(spark), progress=progress)


def _print_report(uri: str, report: VerifyReport) -> None:
    from rich.filesize import decimal

    checked = [
        count(report.commits, "commit"),
        count(report.versions, "table version"),
        count(report.files, "file"),
        f"{decimal(report.bytes_read)} read",
        count(report.rows, "row"),
    ]
    print_line(f"verify {uri} — {', '.join(checked)}")
    for item in report.damage:
        _print_damage(item)
    for state in report.branches:
        print_status("OK" if state.intact else "ERROR", _branch_text(state))
    for note in report.notes:
        print_status("INFO", note)
    if report.reclaimed:
        print_status(
            "INFO", f"{count(report.reclaimed, 'commit')} without data: garbage collection removed it"
        )
    if report.recorded:
        print_status("INFO", f"recorded the digests of {count(report.recorded, 'file')}")
    if report.not_recorded and not report.quick:
        unknown = f"{count(report.not_recorded, 'file')} without a recorded digest"
        print_status("INFO", f"{unknown}; `omnigraph verify --record` adds those of undamaged table files")
    if report.ok:
        print_status("OK", "no damage found")
    else:
        print_status("ERROR", f"{count(len(report.damage), 'damage')} found")


def _print_damage(item: Damage) -> None:
    place = item.file or item.type_key or "the graph"
    print_status("ERROR", f"{place}: {item.kind}")
    lines = [("problem", escape_unprintable(item.problem))]
    if item.type_key is not None:
        properties = "all properties" if item.property is None else item.property
        lines.append(("type", f"{item.type_key} ({properties})" if item.file else item.type_key))
    lines.append(("branches", ", ".join(item.branches) or "none"))
    if item.tags:
        lines.append(("tags", ", ".join(item.tags)))
    if item.commit_count:
        shown = ", ".join(item.commits[:_SHOWN_COMMITS])
        more = item.commit_count - min(_SHOWN_COMMITS, len(item.commits))
        others = f" and {more} more" if more and shown else ""
        lines.append(("commits", f"{shown}{others}" if shown else str(item.commit_count)))
    lines.append(("affected", count(item.rows, "row")))
    lines.append(("to do", item.remedy))
    for name, text in lines:
        print_line(f"      {name + ':':<10}{text}")


def _branch_text(state: BranchState) -> str:
    if state.intact:
        return f"branch {state.branch} at {state.head}"
    head = "its head cannot be read" if state.head is None else f"its head {state.head} is damaged"
    newest = (
        "no commit is intact"
        if state.newest_intact is None
        else f"newest intact commit: {state.newest_intact}"
    )
    return f"branch {state.branch}: {head}; {newest}"
