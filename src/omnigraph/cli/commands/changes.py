"""`omnigraph changes`: follow what happens on a branch, and begin to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from omnigraph.api.files import writing
from omnigraph.cli.query_arguments import BranchOption
from omnigraph.cli.render.change_lines import (
    KindOption,
    Members,
    OpOption,
    TypeOption,
    cause_lines,
    change_lines,
    json_pieces,
    print_pieces,
    read_filter,
)
from omnigraph.cli.render.output import say, say_json
from omnigraph.cli.render.page_output import Poll
from omnigraph.cli.scope import SHARED, JsonOption, UriOption, opened_graph, resolve

change_commands = typer.Typer(help="Follow what changes on a branch.", no_args_is_help=True)


@change_commands.command(epilog=SHARED)
def poll(
    ctx: typer.Context,
    branch: BranchOption = None,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on from where a poll ended.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start", metavar="now|beginning|after:ID", help="Where to begin without a cursor; default now."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="How many changes to fetch at a time.")
    ] = None,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    uri: UriOption = None,
    json: JsonOption = False,
) -> None:
    """Print what happened on a branch since a cursor, commit by commit, and the cursor to go on from.

    A poll tells of at most 128 commits; caught_up says whether more are waiting. Every commit is told at least
    once: keep the cursor when its changes have been dealt with.
    """
    from omnigraph.graph.branch_names import MAIN

    if cursor is not None and start is not None:
        raise typer.BadParameter("a cursor says where to begin by itself", param_hint="'--start'")
    target = resolve(ctx, uri)
    wanted = read_filter(kinds, types, ops)
    with opened_graph(target, "r") as graph:
        found = Poll(graph, MAIN if branch is None else branch, wanted, limit, cursor=cursor, start=start)
        print_pieces(_document(found) if json else _lines(found))


@change_commands.command(epilog=SHARED)
def baseline(
    ctx: typer.Context,
    out: Annotated[str, typer.Option("--out", metavar="PATH", help="The file to write.", show_default=False)],
    branch: BranchOption = None,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    uri: UriOption = None,
    json: JsonOption = False,
) -> None:
    """Write a branch's newest state to a file, and print the cursor from which its changes go on.

    The file appears when it is complete and on disk; its last record has the cursor too. --op counts for the cursor
    alone. Meanwhile PATH.lock keeps others from writing the same file.
    """
    from omnigraph.graph.branch_names import MAIN

    target = resolve(ctx, uri)
    wanted = read_filter(kinds, types, ops)
    with opened_graph(target, "r") as graph, writing(out):
        found = graph.baseline(out, branch=MAIN if branch is None else branch, **wanted)
    if json:
        say_json(found.to_json())
        return
    for key, value in found.to_json().items():
        say(f"{key}: {value}")


def _lines(poll: Poll) -> Iterator[str]:
    for cause, changes in poll.blocks():
        yield from cause_lines(cause)
        for change in changes:
            yield from change_lines(change)
        yield "\n"
    yield f"cursor: {poll.cursor}\n"
    yield f"caught_up: {'true' if poll.caught_up else 'false'}\n"


def _document(poll: Poll) -> Iterator[str]:
    yield from json_pieces(_members(poll))
    yield "\n"


def _members(poll: Poll) -> Iterator[tuple[str, Any]]:
    """The members of the document; what comes last is known only when everything before was printed."""
    yield "blocks", _blocks(poll)
    yield "cursor", poll.cursor
    yield "caught_up", poll.caught_up


def _blocks(poll: Poll) -> Iterator[Members]:
    for cause, changes in poll.blocks():
        yield Members([("cause", cause.to_json()), ("changes", (change.to_json() for change in changes))])
