"""`omnigraph snapshot`: what one state of a branch consists of."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from omnigraph.cli.render.output import say, say_json
from omnigraph.cli.scope import JsonOption, Uri, opened_graph, resolve
from omnigraph.cli.state_arguments import read_moment


def snapshot(
    ctx: typer.Context,
    uri: Uri = None,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="BRANCH", help="Which branch; default main.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="COMMIT|TIME", help="An earlier state: a commit id, or a time."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show each type of a branch with the version of its data and its number of entities."""
    from omnigraph.graph.branch_names import MAIN, check_branch_name
    from omnigraph.protocol.result_bodies import snapshot_body

    target = resolve(ctx, uri)
    moment = read_moment(at)
    if isinstance(moment, str) and branch is not None:
        raise typer.BadParameter("a commit id names a state by itself", param_hint="'--branch'")
    name = check_branch_name(MAIN if branch is None else branch, "snapshot")
    with opened_graph(target, "r") as graph:
        found = graph.snapshot(name, moment)
    # A commit was made on a branch of its own, whichever the default is.
    document = snapshot_body(found, found.commit.branch if isinstance(moment, str) else name)
    if json:
        say_json(document)
    else:
        _print(document)


def _print(document: dict[str, Any]) -> None:
    say(f"graph_branch: {document['graph_branch']}")
    say(f"graph_manifest_version: {document['graph_manifest_version']}")
    say(f"internal_schema_version: {document['internal_schema_version']}")
    for item in document["datasets"]:
        say(
            f"{item['entity_kind']} type '{item['type_name']}' "
            f"published_dataset_version={item['published_dataset_version']} "
            f"native_dataset_branch={item['native_dataset_branch'] or 'main'} "
            f"entities={item['entity_count']}"
        )
