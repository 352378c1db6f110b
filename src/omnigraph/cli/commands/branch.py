"""`omnigraph branch`: make, list, merge and delete branches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.completion import complete_branch
from omnigraph.cli.confirmation import announce, require_consent
from omnigraph.cli.query_arguments import refuse_local_options
from omnigraph.cli.render.conflicts import (
    DryRunOption,
    IfCommitOption,
    MessageOption,
    ResolveOption,
    SideNames,
    describe_merged,
    read_resolve,
    say_preview,
    told_refusals,
)
from omnigraph.cli.render.output import say, say_json, warn
from omnigraph.cli.render.progress import shown_progress
from omnigraph.cli.scope import SHARED, DurabilityOption, JsonOption, UriOption, opened_graph, resolve
from omnigraph.cli.shell import FAILURE
from omnigraph.cli.state_arguments import read_moment

if TYPE_CHECKING:
    from omnigraph.api.merges import Merged

branch_commands = typer.Typer(help="Make, list, merge and delete branches.", no_args_is_help=True)

NameArgument: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The branch.")]


@branch_commands.command(epilog=SHARED)
def create(
    ctx: typer.Context,
    name: NameArgument,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="BRANCH", help="Where to start; default main.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="COMMIT|TIME", help="An earlier state: a commit id, or a time on --from."
        ),
    ] = None,
    uri: UriOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Make a branch at the head of another, or at an earlier state. Copies nothing."""
    from omnigraph.graph.branch_names import MAIN, check_branch_name

    target = resolve(ctx, uri)
    refuse_local_options(ctx, target)
    moment = read_moment(at)
    if isinstance(moment, str) and from_ is not None:
        raise typer.BadParameter("a commit id says where to start by itself", param_hint="'--from'")
    source = check_branch_name(MAIN if from_ is None else from_, "branch create")
    announce(target)
    with opened_graph(target, "rw", durability) as graph:
        made, actor = graph.branches.create(name, source, at=moment), graph.actor
    start = moment if isinstance(moment, str) else source
    if json:
        say_json({"uri": target.uri, "from": start, "name": made.name, "actor_id": actor})
    else:
        say(f"created branch {made.name} from {start}")


@branch_commands.command("list", epilog=SHARED)
def list_(ctx: typer.Context, uri: UriOption = None, json: JsonOption = False) -> None:
    """List the branches by name."""
    target = resolve(ctx, uri)
    with opened_graph(target, "r") as graph:
        names = graph.branches.list()
    if json:
        say_json({"branches": names})
        return
    for name in names:
        say(name)


@branch_commands.command(epilog=SHARED)
def delete(
    ctx: typer.Context,
    name: NameArgument,
    uri: UriOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Delete a branch. Its own commits go with the next cleanup; branches made from it stay as they are.

    On storage that is not local this needs --yes, or an answer on a terminal.
    """
    target = resolve(ctx, uri)
    refuse_local_options(ctx, target)
    announce(target)
    require_consent(target, json=json)
    with opened_graph(target, "rw", durability) as graph:
        graph.branches.delete(name)
        actor = graph.actor
    if json:
        say_json({"uri": target.uri, "name": name.strip(), "actor_id": actor})
    else:
        say(f"deleted branch {name.strip()}")


@branch_commands.command(epilog=SHARED)
def merge(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The branch to bring in; it stays as it is.",
            autocompletion=complete_branch,
        ),
    ],
    into: Annotated[
        str,
        typer.Option(
            "--into",
            metavar="BRANCH",
            help="The branch that gets the commit.",
            show_default=True,
            autocompletion=complete_branch,
        ),
    ] = "main",
    delete_branch: Annotated[
        bool, typer.Option("--delete-branch", help="Delete SOURCE when it has been merged.")
    ] = False,
    dry_run: DryRunOption = False,
    resolve_: ResolveOption = None,
    message: MessageOption = None,
    if_commit: IfCommitOption = None,
    uri: UriOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Bring what a branch did into another, as one commit with two parents.

    What both changed is merged property by property. Where they disagree nothing is written, and the conflicts are
    listed; --resolve settles them.
    """
    target = resolve(ctx, uri)
    refuse_local_options(ctx, target)
    answers = read_resolve(resolve_)
    source, into = source.strip(), into.strip()
    sides = SideNames(f"what {into} has", f"what {source} has")
    announce(target)
    with (
        told_refusals(sides, json=json),
        opened_graph(target, "rw", durability) as graph,
        shown_progress("merging", silent=json or target.chosen.quiet) as report,
    ):
        merged = graph.branches.merge(
            source,
            into,
            delete_source=delete_branch,
            resolve=answers,
            dry_run=dry_run,
            message=message,
            if_commit=if_commit,
            progress=report,
        )
        document = {
            "source": source,
            "target": into,
            "outcome": merged.outcome,
            "actor_id": graph.actor,
            **_deletion(merged),
            **describe_merged(merged),
        }
    if merged.branch_deleted is False:
        warn(f"merged, but could not delete branch '{source}': {merged.branch_delete_error}")
    if json:
        say_json(document)
    elif dry_run:
        say_preview(f"would merge {source} into {into}", merged, sides)
    else:
        say(f"merged {source} into {into}: {merged.outcome}")
        if merged.branch_deleted:
            say(f"deleted branch {source}")
    if merged.conflicts:
        raise typer.Exit(FAILURE)


def _deletion(merged: Merged) -> dict[str, Any]:
    """What became of the source, if it was to be deleted."""
    if merged.branch_deleted is None:
        return {}
    if merged.branch_deleted:
        return {"branch_deleted": True}
    return {"branch_deleted": False, "branch_delete_error": merged.branch_delete_error}
