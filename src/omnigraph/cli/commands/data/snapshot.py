"""`omnigraph snapshot`: print the types of a state with their versions and sizes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from omnigraph.cli.completion import complete_branch, complete_state
from omnigraph.cli.render.output import print_json, print_line
from omnigraph.cli.state_arguments import read_moment
from omnigraph.cli.target import JsonOption, UriArgument, open_graph, resolve_target


def snapshot(
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: Annotated[
        str | None,
        typer.Option(
            "--branch", metavar="BRANCH", help="Branch; default main.", autocompletion=complete_branch
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="COMMIT|TIME",
            help="An earlier state: a commit id, or a time on the branch.",
            autocompletion=complete_state,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print each type of a branch with its dataset version and its number of entities."""
    from omnigraph.graph.branch_names import MAIN, check_branch_name
    from omnigraph.protocol.result_bodies import snapshot_body

    target = resolve_target(ctx, uri)
    moment = read_moment(at)
    if isinstance(moment, str) and branch is not None:
        raise typer.BadParameter("cannot be combined with a commit id in --at", param_hint="'--branch'")
    name = check_branch_name(MAIN if branch is None else branch, "snapshot")
    with open_graph(target, "r") as graph:
        found = graph.snapshot(name, moment)
    # A commit id determines the branch: the one it was committed on.
    document = snapshot_body(found, found.commit.branch if isinstance(moment, str) else name)
    if json:
        print_json(document)
    else:
        _print(document)


def _print(document: dict[str, Any]) -> None:
    print_line(f"graph_branch: {document['graph_branch']}")
    print_line(f"graph_manifest_version: {document['graph_manifest_version']}")
    print_line(f"internal_schema_version: {document['internal_schema_version']}")
    for item in document["datasets"]:
        print_line(
            f"{item['entity_kind']} type '{item['type_name']}' "
            f"published_dataset_version={item['published_dataset_version']} "
            f"native_dataset_branch={item['native_dataset_branch'] or 'main'} "
            f"entities={item['entity_count']}"
        )
