"""`omnigraph init`: a new graph."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.render.output import say
from omnigraph.cli.scope import DurabilityOption, Target, resolve
from omnigraph.cli.source_files import read_source, source_name
from omnigraph.cli.storage_errors import told_interruption, told_place
from omnigraph.errors import Conflict, InvalidInput, NotFound

CLUSTER_STATE = "__cluster/state.json"


def init(
    ctx: typer.Context,
    uri: Annotated[str, typer.Argument(metavar="URI", help="Where the graph is to be.")],
    schema: Annotated[str, typer.Option("--schema", metavar="FILE", help="Its schema; - is stdin.")],
    force: Annotated[
        bool, typer.Option("--force", help="Take over what a failed init left; never replaces a graph.")
    ] = False,
    durability: DurabilityOption = "full",
) -> None:
    """Make a new graph with a schema and a first, empty commit.

    Of several that are started at once for one place, one succeeds. What an interrupted one left cannot be opened,
    and the next one completes it.
    """
    from omnigraph.catalog.catalog import accept
    from omnigraph.lang.pg.schema_compiler import load_schema

    target = resolve(ctx, uri)
    text = read_source(schema)
    catalog = accept(load_schema(text, source_name(schema)), text)
    refuse_cluster(target)

    from omnigraph.graph.repository import Repository

    try:
        with told_interruption("rw"), told_place(uri, target.location, "rw"):
            made = Repository.init(
                uri,
                catalog,
                options=target.options or None,
                durability=durability,
                actor=target.chosen.actor,
            )
    except Conflict as error:
        if force and error.hint is None:
            error.hint = "--force never replaces a graph; remove it yourself if you mean to"
        raise
    made.close()
    say(f"initialized {uri}")


def refuse_cluster(target: Target) -> None:
    """A graph inside a cluster is made by the cluster, which would not know of one made here."""
    from omnigraph.store.location import Location

    location = target.location
    parent, _, name = location.path.rpartition("/")
    root, _, folder = parent.rpartition("/")
    if folder != "graphs" or not name.removesuffix(".omni") or not name.endswith(".omni"):
        return
    from omnigraph.store.objects.object_store import ObjectStore

    cluster = Location(location.scheme, location.authority, root or ("/" if location.is_local else ""))
    try:
        ObjectStore.open(cluster, target.options or None).get(CLUSTER_STATE)
    except NotFound:
        return
    raise InvalidInput(
        f"{target.uri} belongs to the cluster at {cluster}",
        hint="a cluster makes and changes its graphs by `cluster apply`, which this version does not have",
        details={"uri": target.uri, "cluster": str(cluster)},
    )
