"""Read the server configuration (cluster) that a command addresses."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.options import GlobalOptions, refuse_options
from omnigraph.cli.settings.config import Config, load_config
from omnigraph.cli.settings.graph_address import PROFILE, GraphAddress, find_address
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.hosting.graph_sources import GraphSource, Hosting

NO_CLUSTER = (
    "no cluster addressed — pass --cluster <config>, or --profile <name> of a profile that binds a cluster"
)


def resolve_cluster(ctx: typer.Context) -> tuple[Hosting, GraphAddress]:
    """Return the configuration that the command line addresses, and the address, which may include a graph id."""
    command = ctx.command_path.partition(" ")[2]
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    refuse_options(command, chosen)
    scope = _scope(ctx, chosen)
    if scope.kind != "cluster":
        raise InvalidInput(
            f"`{command}` reads a server configuration; {scope.origin} addresses a {scope.kind} and does not "
            "apply. Pass --cluster <config>."
        )
    return read_cluster(load_config(ctx), scope.value), scope


def read_cluster(config: Config, named: str) -> Hosting:
    """Read a server configuration. `named` is its path, or its name under `clusters:` in the settings.

    Of a cluster, the applied revision is read.
    """
    from omnigraph.cluster.serving.served_cluster import read_hosting_at
    from omnigraph.store.storage_options import s3_options

    return read_hosting_at(config.clusters.get(named, named), s3_options(os.environ))


def find_source(hosting: Hosting, scope: GraphAddress) -> GraphSource:
    """Return the graph that the address names, or the only one.

    Raises `InvalidInput` if the graph does not exist, or if there are several and none is named.
    """
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
        f"{scope.origin} has several graphs: choose one with --graph <id>"
        if found
        else f"{scope.origin} has no graphs",
        hint=f"graphs: {', '.join(found)}" if found else None,
        details={"graphs": list(found)},
    )


def _scope(ctx: typer.Context, chosen: GlobalOptions) -> GraphAddress:
    config = load_config(ctx)
    if chosen.cluster is None and chosen.profile is None and not os.environ.get(PROFILE):
        # The defaults of the settings are a server or a store, never a cluster.
        raise InvalidInput(NO_CLUSTER)
    return find_address(lambda: config, None, chosen, os.environ)
