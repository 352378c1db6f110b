"""`omnigraph commit`: list the history of a branch, show a commit and its changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.completion import complete_branch, complete_state
from omnigraph.cli.render.change_lines import (
    KindOption,
    OpOption,
    PageSizeOption,
    TypeOption,
    cause_lines,
    change_lines,
    json_pieces,
    print_pieces,
    read_filter,
)
from omnigraph.cli.render.output import escape_unprintable, print_json, print_line
from omnigraph.cli.render.page_output import stream_commit
from omnigraph.cli.state_arguments import format_moment
from omnigraph.cli.target import EPILOG, JsonOption, UriArgument, UriOption, open_graph, resolve_target

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.api.results.commits import Commit
    from omnigraph.changes.change_records import ChangeCause, EntityChange

commit_commands = typer.Typer(help="List commits, and show a commit and its changes.", no_args_is_help=True)


@commit_commands.command("list", epilog=EPILOG)
def list_(
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: Annotated[
        str | None,
        typer.Option(
            "--branch", metavar="BRANCH", help="Branch; default main.", autocompletion=complete_branch
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Maximum number of commits, newest first."),
    ] = None,
    filter_: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="actor=NAME",
            help="Only commits of this actor. Repeatable. omnigraph:recovery finds the commits of recovery.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the commits of a branch, newest first, including those it inherited.

    `--filter actor=omnigraph:recovery` also lists the interrupted writes that recovery discarded. They are in no
    history, so they are listed for all branches unless --branch is given.
    """
    from omnigraph.graph.branch_names import MAIN, check_branch_name
    from omnigraph.graph.recovery.interrupted_writes import RECOVERY_ACTOR
    from omnigraph.protocol.result_bodies import commit_body, recovery_body

    actors = _filtered_actors(filter_ or ())
    target = resolve_target(ctx, uri)
    name = check_branch_name(MAIN if branch is None else branch, "commit list")
    with open_graph(target, "r") as graph:
        commits = _commits(graph, name, actors, limit)
        document: dict[str, Any] = {"commits": [commit_body(item) for item in commits]}
        if RECOVERY_ACTOR in actors:
            records = (item for item in graph.recoveries() if branch is None or item.branch == name)
            document["recoveries"] = [recovery_body(item) for item in islice(records, limit)]
    if json:
        print_json(document)
    else:
        for line in _lines(document):
            print_line(line)


@commit_commands.command(epilog=EPILOG)
def show(
    ctx: typer.Context,
    id_: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the commit.", autocompletion=complete_state)
    ],
    uri: UriOption = None,
    json: JsonOption = False,
) -> None:
    """Show a commit."""
    from omnigraph.protocol.result_bodies import commit_body

    target = resolve_target(ctx, uri)
    with open_graph(target, "r") as graph:
        found = graph.commit(id_)
    document = commit_body(found)
    if json:
        print_json(document)
        return
    shown = {
        **document,
        "graph_branch": found.branch,
        "created_at": f"{document['created_at']} ({format_moment(document['created_at'])})",
    }
    for key, value in shown.items():
        print_line(f"{key}: {'null' if value is None else escape_unprintable(str(value))}")


@commit_commands.command(epilog=EPILOG)
def changes(
    ctx: typer.Context,
    id_: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the commit.", autocompletion=complete_state)
    ],
    limit: PageSizeOption = None,
    page_token: Annotated[
        str | None, typer.Option("--page-token", metavar="TOKEN", help="Print only this page.")
    ] = None,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    uri: UriOption = None,
    json: JsonOption = False,
) -> None:
    """Print the changes of a commit against its first parent: nodes before edges, by type and id."""
    target = resolve_target(ctx, uri)
    wanted = read_filter(kinds, types, ops)
    with open_graph(target, "r") as graph:
        if page_token is not None:
            page = graph.changes(id_, **wanted, limit=limit, page_token=page_token)
            _print_changes(page.cause, iter(page.changes), page.next_page_token, json=json)
        else:
            cause, found = stream_commit(graph, id_, wanted, limit)
            _print_changes(cause, found, None, json=json)


def _print_changes(
    cause: ChangeCause, found: Iterator[EntityChange], token: str | None, *, json: bool
) -> None:
    print_pieces(_change_document(cause, found, token) if json else _change_lines(cause, found, token))


def _change_lines(cause: ChangeCause, found: Iterator[EntityChange], token: str | None) -> Iterator[str]:
    yield from cause_lines(cause)
    for change in found:
        yield from change_lines(change)
    if token is not None:
        yield f"next_page_token: {token}\n"


def _change_document(cause: ChangeCause, found: Iterator[EntityChange], token: str | None) -> Iterator[str]:
    members: list[tuple[str, Any]] = [
        ("cause", cause.to_json()),
        ("changes", (change.to_json() for change in found)),
    ]
    if token is not None:
        members.append(("next_page_token", token))
    yield from json_pieces(members)
    yield "\n"


def _filtered_actors(filters: Sequence[str]) -> frozenset[str]:
    actors = set()
    for text in filters:
        key, equals, value = text.partition("=")
        if key != "actor" or not equals:
            raise typer.BadParameter(f"expected actor=NAME, got {text!r}", param_hint="'--filter'")
        actors.add(value)
    return frozenset(actors)


def _commits(graph: Graph, branch: str, actors: frozenset[str], limit: int | None) -> list[Commit]:
    """Return the newest commits of the given actors, or of all actors if none is given."""
    if not actors:
        return graph.commits(branch, limit)
    found = (item for item in graph.commits(branch, None) if _is_by(item, actors))
    return list(islice(found, limit))


def _is_by(commit: Commit, actors: frozenset[str]) -> bool:
    from omnigraph.graph.recovery.interrupted_writes import RECOVERY_ACTOR

    # `actor=` matches commits without an actor.
    return (commit.actor or "") in actors or (commit.recovered and RECOVERY_ACTOR in actors)


def _lines(document: dict[str, Any]) -> Iterator[str]:
    for item in document["commits"]:
        yield _line(item)
    shown = {item["graph_commit_id"] for item in document["commits"]}
    for item in document.get("recoveries", ()):
        # A write that recovery published is a commit. It needs its own line only if it is on another branch.
        if item["graph_commit_id"] is None or item["graph_commit_id"] not in shown:
            yield _recovery_line(item)


def _line(item: dict[str, Any]) -> str:
    parts = [
        f"graph_branch={item['graph_branch'] or 'main'}",
        f"graph_manifest_version={item['graph_manifest_version']}",
    ]
    message = [f"message={escape_unprintable(item['message'])}"] if "message" in item else []
    return " ".join([item["graph_commit_id"], *parts, *_actor_fields(item), *message])


def _recovery_line(item: dict[str, Any]) -> str:
    parts = [
        f"{item['outcome']} {item['graph_commit_id'] or item['operation_id']}",
        f"graph_branch={item['graph_branch'] or 'main'}",
        f"operation={item['operation']}",
    ]
    return f"{' '.join([*parts, *_actor_fields(item)])}: {escape_unprintable(item['reason'])}"


def _actor_fields(item: dict[str, Any]) -> Iterable[str]:
    if item["actor_id"] is not None:
        yield f"actor={escape_unprintable(item['actor_id'])}"
    if "recovered_by" in item:
        yield f"recovered_by={item['recovered_by']}"
