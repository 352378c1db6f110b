"""`omnigraph revert`: undo one commit with a new one."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.confirmation import announce
from omnigraph.cli.query_arguments import BranchOption, refuse_local_options
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
from omnigraph.cli.render.output import say, say_json
from omnigraph.cli.render.progress import shown_progress
from omnigraph.cli.scope import DurabilityOption, JsonOption, UriOption, opened_graph, resolve
from omnigraph.cli.shell import FAILURE


def revert(
    ctx: typer.Context,
    commit: Annotated[str, typer.Argument(metavar="COMMIT", help="The commit to undo.")],
    branch: BranchOption = None,
    dry_run: DryRunOption = False,
    resolve_: ResolveOption = None,
    message: MessageOption = None,
    if_commit: IfCommitOption = None,
    uri: UriOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Undo one commit of a branch with a new one; what came after it stays.

    Where later commits changed the same things it is refused like a merge: then `ours` keeps the branch as it is,
    and `theirs` goes back. Undoing a merge takes back all that it brought.
    """
    from omnigraph.graph.branch_names import MAIN, check_branch_name

    target = resolve(ctx, uri)
    refuse_local_options(ctx, target)
    answers = read_resolve(resolve_)
    name = check_branch_name(MAIN if branch is None else branch, "revert")
    sides = SideNames(f"what {name} has", f"what was there before {commit}")
    announce(target)
    with (
        told_refusals(sides, json=json),
        opened_graph(target, "rw", durability) as graph,
        shown_progress("reverting", silent=json or target.chosen.quiet) as report,
    ):
        merged = graph.revert(
            commit,
            branch=name,
            resolve=answers,
            dry_run=dry_run,
            message=message,
            if_commit=if_commit,
            progress=report,
        )
        document = {
            "branch": name,
            "reverted_commit_id": commit,
            "outcome": merged.outcome,
            "actor_id": graph.actor,
            **describe_merged(merged),
        }
    if json:
        say_json(document)
    elif merged.outcome == "already_up_to_date":
        say("nothing to revert")
    elif dry_run:
        say_preview(f"would revert {commit} on {name}", merged, sides)
    elif merged.commit is not None:
        say(f"reverted {commit} on {name}: {merged.commit.id}")
    if merged.conflicts:
        raise typer.Exit(FAILURE)
