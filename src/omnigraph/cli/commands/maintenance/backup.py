"""`omnigraph backup`, `restore` and `clone`: copies of a graph between storages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import typer

from omnigraph.cli.commands.init import refuse_cluster
from omnigraph.cli.completion import complete_branch, complete_state
from omnigraph.cli.failures import FAILURE
from omnigraph.cli.render.output import count, print_json, print_line, print_note, print_warning
from omnigraph.cli.render.progress_bar import show_progress
from omnigraph.cli.storage_errors import explain_storage_errors
from omnigraph.cli.target import (
    Durability,
    DurabilityOption,
    JsonOption,
    open_repository,
    resolve_storage,
    resolve_target,
)
from omnigraph.maintain.backup.copy_report import CopyReport, Verification

if TYPE_CHECKING:
    from omnigraph.graph.repository import Repository
    from omnigraph.maintain.backup.copy_options import CopyOptions

SourceArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="SRC", help="Storage URI of the graph to copy.")
]
BackupArgument: TypeAlias = Annotated[str, typer.Argument(metavar="SRC", help="Storage URI of the backup.")]
TargetArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="DST", help="Storage URI of the copy: an empty place, or an earlier backup.")
]
NewArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="DST", help="Storage URI of the new graph: an empty place.")
]
VerifyOption: TypeAlias = Annotated[
    Verification,
    typer.Option(
        "--verify",
        metavar="quick|full",
        help="Check the sizes of the copied files (quick), or also read them back and check digests (full).",
    ),
]
SkipDamagedOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--skip-damaged",
        help="Leave out missing and damaged files, copy everything else, list them, and exit with code 1.",
    ),
]


def backup(
    ctx: typer.Context,
    source: SourceArgument,
    target: TargetArgument,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="COMMIT",
            help="Leave out the data of the ancestors of this commit.",
            autocompletion=complete_state,
        ),
    ] = None,
    verify: VerifyOption = "quick",
    skip_damaged: SkipDamagedOption = False,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Copy a graph to another place, or bring an earlier backup there up to date.

    The backup is consistent: it has every commit of every branch as of one moment. Other processes can read, write
    and run cleanup meanwhile. Only files that DST lacks are copied. After an interruption DST is the earlier
    backup, and the same command continues. A backup opens for reading; restore makes a graph of it that can be
    written.
    """
    from omnigraph.maintain.backup.backup import backup as run

    how = _Options(verify, durability, skip_damaged, json)
    _copy(ctx, source, target, partial(run, since=since), how)


def restore(
    ctx: typer.Context,
    source: BackupArgument,
    target: NewArgument,
    verify: VerifyOption = "quick",
    skip_damaged: SkipDamagedOption = False,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Copy a backup into an empty place, as a graph that can be written.

    The graph has the id, the branches and the history of the backup. SRC may also be a graph that is not a backup.
    A DST that is not empty is refused. After an interruption DST cannot be opened, and the same command continues.
    """
    from omnigraph.maintain.backup.backup import restore as run

    _copy(ctx, source, target, run, _Options(verify, durability, skip_damaged, json))


def clone(
    ctx: typer.Context,
    source: SourceArgument,
    target: NewArgument,
    branch: Annotated[
        str,
        typer.Option(
            "--branch",
            metavar="NAME",
            help="Branch that becomes main of the new graph.",
            autocompletion=complete_branch,
        ),
    ] = "main",
    history: Annotated[
        bool,
        typer.Option("--history/--no-history", help="Copy the data of earlier commits, or of the head only."),
    ] = True,
    verify: VerifyOption = "quick",
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Create a new graph from one branch of another graph.

    The new graph has an id of its own and one branch, main, with the state and the history of the branch. A DST
    that is not empty is refused. After an interruption DST cannot be opened, and the same command continues.
    """
    from omnigraph.maintain.backup.backup import clone as run

    how = _Options(verify, durability, False, json)
    _copy(ctx, source, target, partial(run, branch=branch, history=history), how)


class _Options(NamedTuple):
    """The options that the commands share."""

    verify: Verification
    durability: Durability
    skip_damaged: bool
    json: bool


def _copy(
    ctx: typer.Context,
    source: str,
    target: str,
    run: Callable[[Repository, str, CopyOptions], CopyReport],
    how: _Options,
) -> None:
    from omnigraph.maintain.backup.copy_options import CopyOptions

    graph = resolve_target(ctx, source)
    place = resolve_storage(graph, target)
    refuse_cluster(place)
    quiet = graph.chosen.quiet
    if not quiet:
        print_note(f"omnigraph {graph.command} {graph.uri} → {place.uri}")
    with (
        open_repository(graph, "r") as repository,
        explain_storage_errors(place.uri, place.location, "rw"),
        show_progress(graph.command, silent=how.json or quiet) as progress,
    ):
        options = CopyOptions(place.options or None, how.durability, how.verify, progress, how.skip_damaged)
        report = run(repository, place.location.uri, options)
    for text in report.warnings:
        print_warning(text)
    if how.json:
        print_json({**report.to_json(), "source": graph.uri, "target": place.uri})
    else:
        _print_report(f"{graph.command} {graph.uri} → {place.uri}", report)
    if not report.ok:
        number = count(len(report.damaged), "file")
        print_warning(f"left out {number}; `omnigraph verify --all-commits {place.uri}` shows what is lost")
        raise typer.Exit(FAILURE)


def _print_report(title: str, report: CopyReport) -> None:
    print_line(f"{title} — {_summary(report)}")
    for name, commit in sorted(report.heads.items()):
        print_line(f"{name} {commit}")
    for item in report.damaged:
        print_line(f"left out {item.file}: {item.problem}")


def _summary(report: CopyReport) -> str:
    if not report.published:
        return f"up to date, {count(report.commits, 'commit')}"
    return (
        f"{count(report.commits, 'commit')} ({report.commits_added} new), "
        f"copied {count(report.files_copied, 'file')} ({report.bytes_copied} bytes), "
        f"skipped {count(report.files_skipped, 'file')} ({report.bytes_skipped} bytes)"
    )
