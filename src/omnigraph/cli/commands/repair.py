"""`omnigraph repair`: roll forward or discard interrupted bulk writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from omnigraph.cli.confirmation import announce
from omnigraph.cli.render.output import count, escape_unprintable, print_json, print_line
from omnigraph.cli.shell import FAILURE
from omnigraph.cli.target import JsonOption, UriArgument, open_graph, resolve_target


def repair(
    ctx: typer.Context,
    uri: UriArgument = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Perform the repair. Without it, only print what would be done.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also discard intents that cannot be read; requires --confirm.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Roll forward or discard interrupted bulk writes. Without --confirm, only list them.

    A complete write is published; an incomplete write is discarded. Opening a graph for writing does the same, so
    there is usually nothing to do. An intent that cannot be read is refused, with exit code 1, unless --force is
    given.
    """
    if force and not confirm:
        raise typer.BadParameter("--force requires --confirm", param_hint="'--force'")
    target = resolve_target(ctx, uri)
    if confirm:
        announce(target)
    with open_graph(target, "rw" if confirm else "r", recover=False) as graph:
        report = graph.repair(confirm, force=force)
    if json:
        print_json(
            {
                "uri": target.uri,
                "confirm": confirm,
                "force": force,
                "graph_manifest_version": report.graph_manifest_version,
                "datasets": list(report.datasets),
            }
        )
    else:
        mode = "confirm" if confirm else "preview"
        print_line(f"repair {target.uri} — {mode} mode, {count(len(report.datasets), 'dataset')}")
        for item in report.datasets:
            print_line(_describe(item))
    if any(item["action"] == "refused" for item in report.datasets):
        raise typer.Exit(FAILURE)


def _describe(item: Mapping[str, Any]) -> str:
    parts: list[str] = [item["action"], item["classification"]]
    version, head = item["published_dataset_version"], item["lance_head_version"]
    if version is not None:
        parts.append(f"version {version}" + (f" → {head}" if head != version else ""))
    if item["operations"]:
        parts.append(f"by {', '.join(item['operations'])}")
    why = f" ({escape_unprintable(item['error'])})" if item["error"] else ""
    return f"{item['type_key']}: {', '.join(parts)}{why}"
