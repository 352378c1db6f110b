"""`omnigraph branch`: make, list and delete branches."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from omnigraph.cli.moment import read_moment
from omnigraph.cli.output import say, say_json
from omnigraph.cli.safety import announce, require_consent
from omnigraph.cli.scope import SHARED, DurabilityOption, JsonOption, UriOption, opened, resolve

branch_commands = typer.Typer(help="Make, list and delete branches.", no_args_is_help=True)

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
    from omnigraph.graph.branches import MAIN, check_branch_name

    target = resolve(ctx, uri)
    moment = read_moment(at)
    if isinstance(moment, str) and from_ is not None:
        raise typer.BadParameter("a commit id says where to start by itself", param_hint="'--from'")
    source = check_branch_name(MAIN if from_ is None else from_, "branch create")
    announce(target)
    actor = target.chosen.actor
    with opened(target, "rw", durability) as repository:
        head = repository.create_branch(name, source, at=moment, actor=actor)
    start = moment if isinstance(moment, str) else source
    if json:
        say_json({"uri": target.uri, "from": start, "name": head.branch, "actor_id": actor})
    else:
        say(f"created branch {head.branch} from {start}")


@branch_commands.command("list", epilog=SHARED)
def list_(ctx: typer.Context, uri: UriOption = None, json: JsonOption = False) -> None:
    """List the branches by name."""
    target = resolve(ctx, uri)
    with opened(target, "r") as repository:
        names = list(repository.branches())
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
    announce(target)
    require_consent(target, json=json)
    with opened(target, "rw", durability) as repository:
        repository.delete_branch(name)
    if json:
        say_json({"uri": target.uri, "name": name.strip(), "actor_id": target.chosen.actor})
    else:
        say(f"deleted branch {name.strip()}")
