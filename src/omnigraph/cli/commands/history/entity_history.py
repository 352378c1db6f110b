"""`omnigraph history` and `omnigraph blame`: what happened to one node or edge, and who set its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.api.display.text_table import cell, fitted_table_lines, table_lines
from omnigraph.cli.query_arguments import BranchOption, SnapshotOption, read_state
from omnigraph.cli.render.change_lines import value_lines
from omnigraph.cli.render.log_lines import format_time
from omnigraph.cli.render.output import escape_unprintable, print_json, print_line
from omnigraph.cli.render.terminal import terminal_width
from omnigraph.cli.target import JsonOption, open_graph, resolve_target
from omnigraph.errors import NotFound

if TYPE_CHECKING:
    from omnigraph.api.results.commits import Commit
    from omnigraph.api.results.history import EntityVersion

_TypeArgument = Annotated[str, typer.Argument(metavar="TYPE", help="Node or edge type.")]
_IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the node or edge.")]


def history(
    ctx: typer.Context,
    type_name: _TypeArgument,
    id_: _IdArgument,
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    limit: Annotated[
        int | None, typer.Option("-n", "--limit", metavar="N", min=1, help="Maximum number of versions.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print the versions of a node or edge, newest first: each commit that changed it, and what it changed.

    A change of a merged branch is that of the commit on the branch. Fails if the entity never existed.
    """
    from omnigraph.graph.state_names import abbreviate
    from omnigraph.protocol.result_bodies import version_body

    target = resolve_target(ctx, None)
    line, commit = read_state(branch, snapshot)
    with open_graph(target, "r") as graph:
        found = graph.history(type_name, id_, branch=line, at=commit, limit=limit)
    if not found:
        raise NotFound(f"no {type_name} has or had the id '{id_}'", details={"type": type_name, "id": id_})
    if json:
        print_json({"versions": [version_body(version) for version in found]})
        return
    short = abbreviate([version.commit.id for version in found])
    for version in found:
        print_line(f"{short[version.commit.id]}  {_heading(version)}")
        for text in value_lines(version.op, version.before, version.after, version.changed):
            print_line(text.rstrip("\n"))


def blame(
    ctx: typer.Context,
    type_name: _TypeArgument,
    id_: _IdArgument,
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    json: JsonOption = False,
) -> None:
    """Print for each property of a node or edge its value, and the commit that set it.

    `^` before a commit says that the value may be older, because older states were reclaimed or may not be read.
    """
    from omnigraph.graph.state_names import abbreviate
    from omnigraph.protocol.result_bodies import origin_body

    target = resolve_target(ctx, None)
    line, commit = read_state(branch, snapshot)
    with open_graph(target, "r") as graph:
        found = graph.blame(type_name, id_, branch=line, at=commit)
    if json:
        print_json({"properties": [origin_body(origin) for origin in found]})
        return
    short = abbreviate([origin.commit.id for origin in found])
    rows = [
        [
            origin.property,
            cell(origin.value),
            f"{'' if origin.exact else '^'}{short[origin.commit.id]}",
            format_time(origin.commit.created_at),
            _actor(origin.commit),
            origin.commit.message or origin.commit.operation,
        ]
        for origin in found
    ]
    columns = ["property", "value", "commit", "time", "actor", "message"]
    width = terminal_width()
    lines = table_lines(columns, rows) if width is None else fitted_table_lines(columns, rows, width)
    for text in lines:
        print_line(text)


def _heading(version: EntityVersion) -> str:
    commit = version.commit
    gap = " (states before it were reclaimed)" if version.gap else ""
    message = "" if commit.message is None else f": {escape_unprintable(commit.message)}"
    place = f"{commit.operation} on {escape_unprintable(commit.branch)}"
    return f"{format_time(commit.created_at)}  {_actor(commit)}  {version.op}  {place}{message}{gap}"


def _actor(commit: Commit) -> str:
    return "-" if commit.actor is None else escape_unprintable(commit.actor)
