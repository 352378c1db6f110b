"""`omnigraph log`: the history of a branch for people."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.completion import complete_branch, complete_state
from omnigraph.cli.render.log_lines import log_lines
from omnigraph.cli.render.output import print_json, print_line, print_note
from omnigraph.cli.render.terminal import terminal_width
from omnigraph.cli.state_arguments import read_moment
from omnigraph.cli.target import JsonOption, UriArgument, open_graph, resolve_target

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.api.results.commits import Commit

_DEFAULT_LIMIT = 1_000


def log(
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
            metavar="STATE",
            help="Begin with an older state, such as HEAD~50 or a time.",
            autocompletion=complete_state,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("-n", "--limit", metavar="N", min=1, help="Maximum number of commits.")
    ] = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="NAME", help="Only commits of this actor.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only commits since a time, or a duration such as 7d."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="TYPE", help="Only commits that changed rows of this type. Repeatable."
        ),
    ] = None,
    merged: Annotated[bool, typer.Option("--merged", help="Include the commits of merged branches.")] = False,
    draw: Annotated[
        bool, typer.Option("--draw", help="Draw the commit graph, with the commits of merged branches.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Print the commits of a branch, newest first: short id, time, actor, operation, branch and message.

    A short id can be used wherever a commit is named. Tags are printed if the actor may list them.
    """
    from omnigraph.graph.branch_names import MAIN

    if draw and (actor is not None or types):
        raise typer.BadParameter("cannot be combined with --actor and --type", param_hint="'--draw'")
    target = resolve_target(ctx, uri)
    count = limit or _DEFAULT_LIMIT
    with open_graph(target, "r") as graph:
        found = graph.commits(
            MAIN if branch is None else branch,
            # One commit more shows whether there are more.
            count + 1,
            actor,
            at=read_moment(at),
            since=None if since is None else _read_since(since),
            types=types,
            merged=merged or draw,
        )
        tags = {} if json else _tags_by_commit(graph)
    commits = found[:count]
    if json:
        print_json({"commits": [_document(commit) for commit in commits]})
        return
    for line in log_lines(commits, tags, draw=draw, width=terminal_width()):
        print_line(line)
    if limit is None and len(found) > count and not target.chosen.quiet:
        print_note(f"these are the newest {count} commits; -n N prints more")


def _read_since(text: str) -> datetime:
    from datetime import UTC

    from omnigraph.lang.temporal import parse_moment
    from omnigraph.maintain.retention import parse_duration

    moment = parse_moment(text)
    return datetime.now(UTC) - parse_duration(text) if moment is None else moment


def _tags_by_commit(graph: Graph) -> dict[str, list[str]]:
    from omnigraph.errors import PermissionDenied

    found: dict[str, list[str]] = {}
    try:
        tags = graph.tags.list()
    except PermissionDenied:
        # A policy can allow to read a branch without the names of all tags.
        return found
    for tag in tags:
        found.setdefault(tag.commit_id, []).append(tag.name)
    return found


def _document(commit: Commit) -> dict[str, Any]:
    from omnigraph.protocol.result_bodies import commit_body

    return {**commit_body(commit), "operation": commit.operation}
