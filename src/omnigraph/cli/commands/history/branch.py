"""`omnigraph branch`: create, list, merge and delete branches."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.completion import complete_branch, complete_state
from omnigraph.cli.confirmation import announce, require_consent
from omnigraph.cli.failures import FAILURE
from omnigraph.cli.merge_options import (
    DryRunOption,
    IfCommitOption,
    ResolveOption,
    read_resolve,
)
from omnigraph.cli.query_arguments import MessageOption, refuse_local_options
from omnigraph.cli.render.conflict_table import SideNames, describe_merged, print_preview, report_conflicts
from omnigraph.cli.render.output import print_json, print_line, print_note, print_warning
from omnigraph.cli.render.progress_bar import show_progress
from omnigraph.cli.state_arguments import read_moment
from omnigraph.cli.target import EPILOG, DurabilityOption, JsonOption, UriOption, open_graph, resolve_target

if TYPE_CHECKING:
    from omnigraph.api.results.merges import Merged

branch_commands = typer.Typer(help="Create, list, merge and delete branches.", no_args_is_help=True)

ExistingArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the branch.", autocompletion=complete_branch)
]
NameArgument: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Name of the branch.")]


@branch_commands.command(epilog=EPILOG)
def create(
    ctx: typer.Context,
    name: NameArgument,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="BRANCH",
            help="Branch to start from; default main.",
            autocompletion=complete_branch,
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="COMMIT|TIME",
            help="Start from an earlier state: a commit id, or a time on --from.",
            autocompletion=complete_state,
        ),
    ] = None,
    uri: UriOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Create a branch at the head of another branch, or at an earlier state. No data is copied."""
    from omnigraph.graph.branch_names import MAIN, check_branch_name

    target = resolve_target(ctx, uri)
    refuse_local_options(ctx, target)
    moment = read_moment(at)
    if isinstance(moment, str) and from_ is not None:
        raise typer.BadParameter("cannot be combined with a commit id in --at", param_hint="'--from'")
    source = check_branch_name(MAIN if from_ is None else from_, "branch create")
    announce(target)
    with open_graph(target, "rw", durability) as graph:
        made, actor = graph.branches.create(name, source, at=moment), graph.actor
    start = moment if isinstance(moment, str) else source
    if json:
        print_json({"uri": target.uri, "from": start, "name": made.name, "actor_id": actor})
    else:
        print_line(f"created branch {made.name} from {start}")


@branch_commands.command("list", epilog=EPILOG)
def list_(
    ctx: typer.Context,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Only branches whose names begin with TEXT.")
    ] = "",
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Maximum number of branches.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="NAME", help="Only branches after NAME: the next page.")
    ] = None,
    uri: UriOption = None,
    json: JsonOption = False,
) -> None:
    """List the branches, sorted by name.

    With --limit the list is a page. If there are more branches, the command for the next page is printed on stderr,
    and --json adds `next_after`.
    """
    target = resolve_target(ctx, uri)
    with open_graph(target, "r") as graph:
        # One name more shows whether there is another page.
        found = graph.branches.list(prefix=prefix, after=after, limit=None if limit is None else limit + 1)
    names = found[:limit]
    has_more = len(found) > len(names)
    if json:
        print_json({"branches": names, **({"next_after": names[-1]} if has_more else {})})
        return
    for name in names:
        print_line(name)
    if has_more and not target.chosen.quiet:
        print_note(f"more branches follow: add --after {shlex.quote(names[-1])}")


@branch_commands.command(epilog=EPILOG)
def delete(
    ctx: typer.Context,
    name: ExistingArgument,
    uri: UriOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Delete a branch. Garbage collection later removes its own commits. Branches created from it are unaffected.

    A graph that is not local needs confirmation: --yes, or an answer on a terminal.
    """
    target = resolve_target(ctx, uri)
    refuse_local_options(ctx, target)
    announce(target)
    require_consent(target, json=json)
    with open_graph(target, "rw", durability) as graph:
        graph.branches.delete(name)
        actor = graph.actor
    if json:
        print_json({"uri": target.uri, "name": name.strip(), "actor_id": actor})
    else:
        print_line(f"deleted branch {name.strip()}")


@branch_commands.command(epilog=EPILOG)
def merge(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Branch to merge. It is not changed.",
            autocompletion=complete_branch,
        ),
    ],
    into: Annotated[
        str,
        typer.Option(
            "--into",
            metavar="BRANCH",
            help="Branch to merge into.",
            show_default=True,
            autocompletion=complete_branch,
        ),
    ] = "main",
    delete_branch: Annotated[
        bool, typer.Option("--delete-branch", help="Delete SOURCE after the merge.")
    ] = False,
    dry_run: DryRunOption = False,
    resolve_: ResolveOption = None,
    message: MessageOption = None,
    if_commit: IfCommitOption = None,
    uri: UriOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Merge a branch into another, as one commit with two parents.

    Entities that both branches changed are merged property by property. If there are conflicts, they are printed
    and nothing is written; --resolve resolves them.
    """
    target = resolve_target(ctx, uri)
    refuse_local_options(ctx, target)
    resolutions = read_resolve(resolve_)
    source, into = source.strip(), into.strip()
    sides = SideNames(f"branch {into}", f"branch {source}")
    announce(target)
    with (
        report_conflicts(sides, json=json),
        open_graph(target, "rw", durability) as graph,
        show_progress("merging", silent=json or target.chosen.quiet) as report,
    ):
        merged = graph.branches.merge(
            source,
            into,
            delete_source=delete_branch,
            resolve=resolutions,
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
        print_warning(f"merged, but could not delete branch '{source}': {merged.branch_delete_error}")
    if json:
        print_json(document)
    elif dry_run:
        print_preview(f"would merge {source} into {into}", merged, sides)
    else:
        print_line(f"merged {source} into {into}: {merged.outcome}")
        if merged.branch_deleted:
            print_line(f"deleted branch {source}")
    if merged.conflicts:
        raise typer.Exit(FAILURE)


def _deletion(merged: Merged) -> dict[str, Any]:
    """Return the members for the deletion of the source branch, if it was requested."""
    if merged.branch_deleted is None:
        return {}
    if merged.branch_deleted:
        return {"branch_deleted": True}
    return {"branch_deleted": False, "branch_delete_error": merged.branch_delete_error}
