"""`omnigraph repair`: settle what interrupted bulk writes left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.confirmation import announce
from omnigraph.cli.render.output import count, escape_unprintable, print_json, print_line
from omnigraph.cli.shell import FAILURE
from omnigraph.cli.target import JsonOption, UriArgument, open_repository, resolve_target

if TYPE_CHECKING:
    from omnigraph.maintain.repair import Repaired


def repair(
    ctx: typer.Context,
    uri: UriArgument = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Do it, instead of saying what is there.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Give up what cannot be read, too; needs --confirm.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show what interrupted bulk writes left behind, and with --confirm settle it.

    What was complete is published, the rest discarded. Opening a graph for writing and every write do the same,
    so there is nearly always nothing to do. Fails when something has to be left: an intent that cannot be read is
    given up only by --force.
    """
    if force and not confirm:
        raise typer.BadParameter("--force requires --confirm", param_hint="'--force'")
    target = resolve_target(ctx, uri)

    from omnigraph.maintain.repair import repair as run

    if confirm:
        announce(target)
    with open_repository(target, "rw" if confirm else "r", recover=False) as repository:
        report = run(repository, confirm=confirm, force=force)
    if json:
        print_json(
            {
                "uri": target.uri,
                "confirm": confirm,
                "force": force,
                "graph_manifest_version": report.graph_version,
                "datasets": [item.to_json() for item in report.datasets],
            }
        )
    else:
        mode = "confirm" if confirm else "preview"
        print_line(f"repair {target.uri} — {mode} mode, {count(len(report.datasets), 'dataset')}")
        for item in report.datasets:
            print_line(_describe(item))
    if any(item.action == "refused" for item in report.datasets):
        raise typer.Exit(FAILURE)


def _describe(item: Repaired) -> str:
    parts: list[str] = [item.action, item.classification]
    if item.version is not None:
        moved = item.head != item.version
        parts.append(f"version {item.version}" + (f" → {item.head}" if moved else ""))
    if item.operations:
        parts.append(f"by {', '.join(item.operations)}")
    why = f" ({escape_unprintable(item.error)})" if item.error else ""
    return f"{item.type_key}: {', '.join(parts)}{why}"
