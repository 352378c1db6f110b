"""`omnigraph repair`: roll forward or discard interrupted bulk writes, and reset damaged branches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import typer

from omnigraph.api.interface.graph_maintenance import RepairOptions
from omnigraph.api.results.maintenance_reports import Repair
from omnigraph.cli.completion import complete_branch, complete_state
from omnigraph.cli.confirmation import announce
from omnigraph.cli.failures import FAILURE
from omnigraph.cli.render.output import count, escape_unprintable, print_json, print_line
from omnigraph.cli.target import GraphTarget, JsonOption, UriArgument, open_graph, resolve_target
from omnigraph.errors import StorageError


def repair(
    ctx: typer.Context,
    uri: UriArgument = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Perform the repair. Without it, only print what would be done.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also discard intents that cannot be read; requires --confirm.")
    ] = False,
    reset_branch: Annotated[
        str | None,
        typer.Option(
            "--reset-branch",
            metavar="BRANCH",
            help="Reset a damaged branch to an intact commit of its history.",
            autocompletion=complete_branch,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="COMMIT",
            help="Commit of the reset. Default: the newest intact commit.",
            autocompletion=complete_state,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Roll forward or discard interrupted bulk writes. Without --confirm, only list them.

    A complete write is published; an incomplete write is discarded. Opening a graph for writing does the same, so
    there is usually nothing to do. An intent that cannot be read is refused, with exit code 1, unless --force is
    given. So is a type of main whose data files are damaged. Damaged indexes are built again from the rows.

    --reset-branch gives a damaged branch the state of an intact commit of its history, as a new commit. Without
    --confirm it prints the commits and rows that the branch would lose. `omnigraph verify` lists the damage and the
    newest intact commit of each branch.
    """
    if force and not confirm:
        raise typer.BadParameter("--force requires --confirm", param_hint="'--force'")
    if to is not None and reset_branch is None:
        raise typer.BadParameter("--to requires --reset-branch", param_hint="'--to'")
    if force and reset_branch is not None:
        raise typer.BadParameter("--force does not apply to --reset-branch", param_hint="'--force'")
    target = resolve_target(ctx, uri)
    if confirm:
        announce(target)
    report = _repair(target, RepairOptions(confirm, force, reset_branch, to))
    if json:
        document = {
            "uri": target.uri,
            "confirm": confirm,
            "force": force,
            "graph_manifest_version": report.graph_manifest_version,
            "datasets": list(report.datasets),
        }
        print_json(document if report.reset is None else {**document, "reset": report.reset})
    else:
        mode = "confirm" if confirm else "preview"
        print_line(f"repair {target.uri} — {mode} mode, {count(len(report.datasets), 'dataset')}")
        for item in report.datasets:
            print_line(_describe(item))
        if report.reset is not None:
            _print_reset(report.reset, confirm)
    if any(item["action"] == "refused" for item in report.datasets):
        raise typer.Exit(FAILURE)


def _repair(target: GraphTarget, options: RepairOptions) -> Repair:
    """Repair a graph. If it cannot be opened, its manifest is rebuilt first, or described without --confirm."""
    mode: Literal["rw", "r"] = "rw" if options.confirm else "r"
    try:
        return _repair_open(target, mode, options)
    except StorageError as error:
        from omnigraph.graph.open_storage import connect
        from omnigraph.maintain.manifest_repair import repair_manifest
        from omnigraph.maintain.repair import manifest_row

        _, root, objects = connect(target.location.uri, target.options or None, "full")
        parts = repair_manifest(root, objects, confirm=options.confirm)
        if error.is_refusal or not parts:
            raise
        rows = tuple(manifest_row(item, options.confirm).to_json() for item in parts)
        if not options.confirm or all(item["action"] == "refused" for item in rows):
            return Repair(options.confirm, 0, datasets=rows)
        report = _repair_open(target, mode, options)
        return replace(report, datasets=(*rows, *report.datasets))


def _repair_open(target: GraphTarget, mode: Literal["rw", "r"], options: RepairOptions) -> Repair:
    with open_graph(target, mode, recover=False) as graph:
        return graph.repair(
            options.confirm, force=options.force, reset_branch=options.reset_branch, to=options.to
        )


def _print_reset(reset: Mapping[str, Any], confirm: bool) -> None:
    lost = reset["lost_commits"]
    if reset["commit_id"] is not None:
        print_line(f"branch {reset['branch']} is reset to {reset['to']} by commit {reset['commit_id']}")
    elif confirm:
        print_line(f"branch {reset['branch']} is intact at {reset['to']}")
    else:
        print_line(f"branch {reset['branch']} would be reset to {reset['to']}")
    print_line(f"{count(len(lost), 'commit')} lost" + (f": {', '.join(lost)}" if lost else ""))
    for item in reset["types"]:
        if item["rows_before"] != item["rows_after"]:
            before, after = (
                "none" if item[name] is None else count(item[name], "row")
                for name in ("rows_before", "rows_after")
            )
            print_line(f"{item['type_key']}: {before} → {after}")


def _describe(item: Mapping[str, Any]) -> str:
    parts: list[str] = [item["action"], item["classification"]]
    version, head = item["published_dataset_version"], item["lance_head_version"]
    if version is not None:
        parts.append(f"version {version}" + (f" → {head}" if head != version else ""))
    if item["operations"]:
        parts.append(f"by {', '.join(item['operations'])}")
    why = f" ({escape_unprintable(item['error'])})" if item["error"] else ""
    return f"{item['type_key']}: {', '.join(parts)}{why}"
