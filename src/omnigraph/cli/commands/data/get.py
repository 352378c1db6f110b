"""`omnigraph get`: print one node or edge."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.query_arguments import BranchOption, SnapshotOption, read_state
from omnigraph.cli.render.output import print_json, print_line
from omnigraph.cli.render.row_formats import key_value_lines
from omnigraph.cli.target import JsonOption, open_graph, resolve_target
from omnigraph.errors import NotFound


def get(
    ctx: typer.Context,
    type_name: Annotated[str, typer.Argument(metavar="TYPE", help="Node or edge type.")],
    id_: Annotated[str, typer.Argument(metavar="ID", help="Id of the node or edge.")],
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    json: JsonOption = False,
) -> None:
    """Print a node or edge with all its properties. Fails if there is none with this id."""
    target = resolve_target(ctx, None)
    line, commit = read_state(branch, snapshot)
    with open_graph(target, "r") as graph:
        found = graph.get(type_name, id_, branch=line, at=commit)
    if found is None:
        place = f"branch {line}" if commit is None else f"snapshot {commit}"
        raise NotFound(
            f"no {type_name} has the id '{id_}' on {place}", details={"type": type_name, "id": id_}
        )
    if json:
        print_json(found)
        return
    for text in key_value_lines(found):
        print_line(text)
