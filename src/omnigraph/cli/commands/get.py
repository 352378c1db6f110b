"""`omnigraph get`: one node or edge."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.query_arguments import BranchOption, SnapshotOption, read_state
from omnigraph.cli.render.output import say, say_json
from omnigraph.cli.render.row_formats import key_value_lines
from omnigraph.cli.scope import JsonOption, opened_graph, resolve
from omnigraph.errors import NotFound


def get(
    ctx: typer.Context,
    type_name: Annotated[str, typer.Argument(metavar="TYPE", help="Its node or edge type.")],
    id_: Annotated[str, typer.Argument(metavar="ID", help="Its id.")],
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    json: JsonOption = False,
) -> None:
    """Show a node or edge with all its properties. Fails when there is none of that id."""
    target = resolve(ctx, None)
    line, commit = read_state(branch, snapshot)
    with opened_graph(target, "r") as graph:
        found = graph.get(type_name, id_, branch=line, at=commit)
    if found is None:
        place = f"branch {line}" if commit is None else f"snapshot {commit}"
        raise NotFound(
            f"no {type_name} has the id '{id_}' on {place}", details={"type": type_name, "id": id_}
        )
    if json:
        say_json(found)
        return
    for text in key_value_lines(found):
        say(text)
