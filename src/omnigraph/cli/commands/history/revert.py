"""`omnigraph revert`: undo a commit with a new commit."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.completion import complete_state
from omnigraph.cli.confirmation import announce
from omnigraph.cli.failures import FAILURE
from omnigraph.cli.merge_options import (
    DryRunOption,
    IfCommitOption,
    ResolveOption,
    read_resolve,
)
from omnigraph.cli.query_arguments import BranchOption, MessageOption, refuse_local_options
from omnigraph.cli.render.conflict_table import SideNames, describe_merged, print_preview, report_conflicts
from omnigraph.cli.render.output import print_json, print_line
from omnigraph.cli.render.progress_bar import show_progress
from omnigraph.cli.target import DurabilityOption, JsonOption, UriOption, open_graph, resolve_target


def revert(
    ctx: typer.Context,
    commit: Annotated[
        str, typer.Argument(metavar="COMMIT", help="Commit to revert.", autocompletion=complete_state)
    ],
    branch: BranchOption = None,
    dry_run: DryRunOption = False,
    resolve_: ResolveOption = None,
    message: MessageOption = None,
    if_commit: IfCommitOption = None,
    uri: UriOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Revert one commit of a branch with a new commit. Later commits are kept.

    If later commits changed the same entities, there are conflicts as in a merge: `ours` keeps the value of the
    branch, `theirs` restores the value before the commit. Reverting a merge undoes everything that it brought in.
    """
    from omnigraph.graph.branch_names import MAIN, check_branch_name

    target = resolve_target(ctx, uri)
    refuse_local_options(ctx, target)
    resolutions = read_resolve(resolve_)
    name = check_branch_name(MAIN if branch is None else branch, "revert")
    sides = SideNames(f"branch {name}", f"the state before {commit}")
    announce(target)
    with (
        report_conflicts(sides, json=json),
        open_graph(target, "rw", durability) as graph,
        show_progress("reverting", silent=json or target.chosen.quiet) as report,
    ):
        merged = graph.revert(
            commit,
            branch=name,
            resolve=resolutions,
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
        print_json(document)
    elif merged.outcome == "already_up_to_date":
        print_line("nothing to revert")
    elif dry_run:
        print_preview(f"would revert {commit} on {name}", merged, sides)
    elif merged.commit is not None:
        print_line(f"reverted {commit} on {name}: {merged.commit.id}")
    if merged.conflicts:
        raise typer.Exit(FAILURE)
