"""`omnigraph diff`: compare two states of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.completion import complete_state
from omnigraph.cli.render.change_lines import (
    KindOption,
    OpOption,
    TypeOption,
    change_lines,
    json_pieces,
    print_pieces,
    read_filter,
)
from omnigraph.cli.state_arguments import read_compared
from omnigraph.cli.target import JsonOption, UriOption, open_graph, resolve_target

if TYPE_CHECKING:
    from omnigraph.api.results.changes import Diff


def diff(
    ctx: typer.Context,
    before: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="State to compare from: a branch, a commit id, or a time on main.",
            autocompletion=complete_state,
        ),
    ],
    after: Annotated[
        str,
        typer.Argument(
            metavar="B", help="State to compare with, in the same form.", autocompletion=complete_state
        ),
    ],
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    stat: Annotated[
        bool, typer.Option("--stat", help="Print only the number of changes of each type.")
    ] = False,
    uri: UriOption = None,
    json: JsonOption = False,
) -> None:
    """Print the changes from state A to state B: nodes before edges, by type and id."""
    target = resolve_target(ctx, uri)
    wanted = read_filter(kinds, types, ops)
    with open_graph(target, "r") as graph:
        found = graph.diff(read_compared(graph, before), read_compared(graph, after), **wanted)
        print_pieces(_document(found, stat) if json else _lines(found, stat))


def _lines(diff: Diff, stat: bool) -> Iterator[str]:
    if not stat:
        for change in diff:
            yield from change_lines(change)
        return
    for name, counts in diff.stats().items():
        yield f"{name}: {', '.join(f'{count} {op}' for op, count in counts.items() if count)}\n"


def _document(diff: Diff, stat: bool) -> Iterator[str]:
    yield from json_pieces(_members(diff, stat))
    yield "\n"


def _members(diff: Diff, stat: bool) -> Iterator[tuple[str, Any]]:
    yield "from_graph_commit_id", diff.commits[0]
    yield "to_graph_commit_id", diff.commits[1]
    if stat:
        yield "stats", diff.stats()
    else:
        yield "changes", (change.to_json() for change in diff)
