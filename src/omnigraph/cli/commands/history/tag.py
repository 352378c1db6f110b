"""`omnigraph tag`: create, list and delete tags."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.completion import complete_branch
from omnigraph.cli.confirmation import announce, require_consent
from omnigraph.cli.query_arguments import MessageOption, refuse_local_options
from omnigraph.cli.render.output import print_json, print_line, print_note
from omnigraph.cli.state_arguments import read_moment
from omnigraph.cli.target import EPILOG, DurabilityOption, JsonOption, UriOption, open_graph, resolve_target

if TYPE_CHECKING:
    from omnigraph.api.interface.tags import Tag

tag_commands = typer.Typer(
    help="Create, list and delete tags. A tag is a name for a commit, and keeps its data.",
    no_args_is_help=True,
)

NameArgument: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Name of the tag.")]


@tag_commands.command(epilog=EPILOG)
def create(
    ctx: typer.Context,
    name: NameArgument,
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="STATE",
            help="State to name: a branch, a tag, a commit id, or a time on main.",
            autocompletion=complete_branch,
        ),
    ] = "main",
    message: MessageOption = None,
    uri: UriOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Give a commit a name. The tag is never moved, and garbage collection keeps the data of the commit."""
    target = resolve_target(ctx, uri)
    refuse_local_options(ctx, target)
    announce(target)
    state = read_moment(at)
    assert state is not None, "the option has a default"
    with open_graph(target, "rw", durability) as graph:
        made = graph.tags.create(name, state, message=message)
    if json:
        print_json(_document(made))
    else:
        print_line(f"created tag {made.name} at {made.commit_id}")


@tag_commands.command("list", epilog=EPILOG)
def list_(
    ctx: typer.Context,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Only tags whose names begin with TEXT.")
    ] = "",
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Maximum number of tags.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="NAME", help="Only tags after NAME: the next page.")
    ] = None,
    uri: UriOption = None,
    json: JsonOption = False,
) -> None:
    """List the tags and their commits, sorted by name.

    With --limit the list is a page. If there are more tags, the command for the next page is printed on stderr,
    and --json adds `next_after`.
    """
    target = resolve_target(ctx, uri)
    with open_graph(target, "r") as graph:
        # One tag more shows whether there is another page.
        found = graph.tags.list(prefix=prefix, after=after, limit=None if limit is None else limit + 1)
    tags = found[:limit]
    has_more = len(found) > len(tags)
    if json:
        more = {"next_after": tags[-1].name} if has_more else {}
        print_json({"tags": [_document(tag) for tag in tags], **more})
        return
    width = max((len(tag.name) for tag in tags), default=0)
    for tag in tags:
        note = "" if tag.message is None else f"  {tag.message}"
        print_line(f"{tag.name:<{width}}  {tag.commit_id}{note}")
    if has_more and not target.chosen.quiet:
        print_note(f"more tags follow: add --after {shlex.quote(tags[-1].name)}")


@tag_commands.command(epilog=EPILOG)
def delete(
    ctx: typer.Context,
    name: NameArgument,
    uri: UriOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Delete a tag. Garbage collection may then remove the data of its commit.

    A graph that is not local needs confirmation: --yes, or an answer on a terminal.
    """
    target = resolve_target(ctx, uri)
    refuse_local_options(ctx, target)
    announce(target)
    require_consent(target, json=json)
    with open_graph(target, "rw", durability) as graph:
        graph.tags.delete(name)
        actor = graph.actor
    if json:
        print_json({"name": name.strip(), "actor_id": actor})
    else:
        print_line(f"deleted tag {name.strip()}")


def _document(tag: Tag) -> dict[str, Any]:
    from omnigraph.protocol.result_bodies import tag_body

    return tag_body(tag)
