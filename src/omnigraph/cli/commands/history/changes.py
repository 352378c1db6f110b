"""`omnigraph changes`: read the change feed of a branch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from omnigraph.api.files.local_files import readable_write_errors
from omnigraph.cli.query_arguments import BranchOption
from omnigraph.cli.render.change_lines import (
    KindOption,
    OpOption,
    PageSizeOption,
    StreamedObject,
    TypeOption,
    cause_lines,
    change_lines,
    json_pieces,
    print_pieces,
    read_filter,
)
from omnigraph.cli.render.output import print_json, print_line
from omnigraph.cli.render.page_output import PagedPoll
from omnigraph.cli.target import EPILOG, JsonOption, UriOption, open_graph, resolve_target

change_commands = typer.Typer(help="Read the change feed of a branch.", no_args_is_help=True)


@change_commands.command(epilog=EPILOG)
def poll(
    ctx: typer.Context,
    branch: BranchOption = None,
    cursor: Annotated[
        str | None,
        typer.Option("--cursor", metavar="CURSOR", help="Continue from the cursor of an earlier poll."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start", metavar="now|beginning|after:ID", help="Where to start without a cursor; default now."
        ),
    ] = None,
    limit: PageSizeOption = None,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    uri: UriOption = None,
    json: JsonOption = False,
) -> None:
    """Print the changes of a branch since a cursor, commit by commit, and the cursor to continue from.

    A poll returns at most 128 commits; caught_up is false if there are more. Delivery is at least once: store the
    cursor after its changes have been processed.
    """
    from omnigraph.graph.branch_names import MAIN

    if cursor is not None and start is not None:
        raise typer.BadParameter("cannot be combined with --cursor", param_hint="'--start'")
    target = resolve_target(ctx, uri)
    wanted = read_filter(kinds, types, ops)
    with open_graph(target, "r") as graph:
        found = PagedPoll(
            graph, MAIN if branch is None else branch, wanted, limit, cursor=cursor, start=start
        )
        print_pieces(_document(found) if json else _lines(found))


@change_commands.command(epilog=EPILOG)
def baseline(
    ctx: typer.Context,
    out: Annotated[str, typer.Option("--out", metavar="PATH", help="File to write.", show_default=False)],
    branch: BranchOption = None,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    uri: UriOption = None,
    json: JsonOption = False,
) -> None:
    """Write the newest state of a branch to a file, and print the cursor from which its changes continue.

    The file appears when it is complete and synced to disk; its last record also holds the cursor. --op applies to
    the cursor only. PATH.lock prevents concurrent writers of the same file.
    """
    from omnigraph.graph.branch_names import MAIN

    target = resolve_target(ctx, uri)
    wanted = read_filter(kinds, types, ops)
    with open_graph(target, "r") as graph, readable_write_errors(out):
        found = graph.baseline(out, branch=MAIN if branch is None else branch, **wanted)
    if json:
        print_json(found.to_json())
        return
    for key, value in found.to_json().items():
        print_line(f"{key}: {value}")


def _lines(poll: PagedPoll) -> Iterator[str]:
    for cause, changes in poll.blocks():
        yield from cause_lines(cause)
        for change in changes:
            yield from change_lines(change)
        yield "\n"
    yield f"cursor: {poll.cursor}\n"
    yield f"caught_up: {'true' if poll.caught_up else 'false'}\n"


def _document(poll: PagedPoll) -> Iterator[str]:
    yield from json_pieces(_members(poll))
    yield "\n"


def _members(poll: PagedPoll) -> Iterator[tuple[str, Any]]:
    """Yield the members of the document. The cursor is known only after all blocks have been read."""
    yield "blocks", _blocks(poll)
    yield "cursor", poll.cursor
    yield "caught_up", poll.caught_up


def _blocks(poll: PagedPoll) -> Iterator[StreamedObject]:
    for cause, changes in poll.blocks():
        yield StreamedObject(
            [("cause", cause.to_json()), ("changes", (change.to_json() for change in changes))]
        )
