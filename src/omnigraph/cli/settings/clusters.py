"""What is configured to be served, as the commands that look at configuration see it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.options import GlobalOptions, refuse_options
from omnigraph.cli.settings.addresses import PROFILE, Scope, find_scope
from omnigraph.cli.settings.config import Config, config_of
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.hosting import GraphSource, Hosting

NO_CLUSTER = "no cluster addressed — pass --cluster <config>, or --profile <name> of one that binds a cluster"


def resolve_cluster(ctx: typer.Context) -> tuple[Hosting, Scope]:
    """The configuration that the command line addresses, and the scope that says so, perhaps with a graph."""
    command = ctx.command_path.partition(" ")[2]
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    refuse_options(command, chosen)
    scope = _scope(ctx, chosen)
    if scope.kind != "cluster":
        raise InvalidInput(
            f"`{command}` looks at what is configured; {scope.origin} addresses a {scope.kind} and does not apply. "
            "Pass --cluster <config>."
        )
    return read_cluster(config_of(ctx), scope.value), scope


def read_cluster(config: Config, named: str) -> Hosting:
    """What a file or folder says is to be served; `named` is its path, or a name of the settings for it."""
    from omnigraph.api.hosting import read_hosting
    from omnigraph.store.storage_options import s3_options

    return read_hosting(config.clusters.get(named, named), s3_options(os.environ))


def find_source(hosting: Hosting, scope: Scope) -> GraphSource:
    """The graph that is meant: the one that was chosen, or the only one."""
    found = {item.id: item for item in hosting.graphs}
    if scope.graph is not None:
        if scope.graph not in found:
            from omnigraph.lang.suggestions import did_you_mean

            raise InvalidInput(
                f"{scope.origin} has no graph '{scope.graph}'{did_you_mean(scope.graph, list(found))}",
                details={"graphs": list(found)},
            )
        return found[scope.graph]
    if len(found) == 1:
        return next(iter(found.values()))
    raise InvalidInput(
        f"{scope.origin} has several graphs; say which with --graph <id>"
        if found
        else f"{scope.origin} names no graph",
        hint=f"it has: {', '.join(found)}" if found else None,
        details={"graphs": list(found)},
    )


def _scope(ctx: typer.Context, chosen: GlobalOptions) -> Scope:
    config = config_of(ctx)
    if chosen.cluster is None and chosen.profile is None and not os.environ.get(PROFILE):
        # A default scope is for data: it is never a cluster.
        raise InvalidInput(NO_CLUSTER)
    return find_scope(lambda: config, None, chosen, os.environ)
