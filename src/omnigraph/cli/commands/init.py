"""`omnigraph init`: create a graph."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.render.output import print_line
from omnigraph.cli.source_files import read_source, source_name
from omnigraph.cli.storage_errors import explain_storage_errors, report_interruption
from omnigraph.cli.target import DurabilityOption, GraphTarget, resolve_target
from omnigraph.errors import Conflict, InvalidInput, NotFound

CLUSTER_STATE = "__cluster/state.json"


def init(
    ctx: typer.Context,
    uri: Annotated[str, typer.Argument(metavar="URI", help="Storage URI of the new graph.")],
    schema: Annotated[str, typer.Option("--schema", metavar="FILE", help="Schema file; - is stdin.")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace the files that a failed init left. Never replaces a graph."),
    ] = False,
    durability: DurabilityOption = "full",
) -> None:
    """Create a graph with a schema and a first, empty commit.

    If several processes create a graph at one URI, one succeeds. An interrupted init leaves nothing that can be
    opened, and the next init completes it.
    """
    from omnigraph.catalog.catalog import accept
    from omnigraph.lang.pg.schema_compiler import load_schema

    target = resolve_target(ctx, uri)
    text = read_source(schema)
    catalog = accept(load_schema(text, source_name(schema)), text)
    refuse_cluster(target)

    from omnigraph.graph.repository import Repository

    try:
        with report_interruption("rw"), explain_storage_errors(uri, target.location, "rw"):
            repository = Repository.init(
                uri,
                catalog,
                options=target.options or None,
                durability=durability,
                actor=target.chosen.actor,
            )
    except Conflict as error:
        if not force or error.hint is not None:
            raise
        hint = "--force never replaces a graph; delete the old one to create it again"
        raise Conflict(error.reason, hint=hint, details=error.details, location=error.location) from error
    repository.close()
    print_line(f"initialized {uri}")


def refuse_cluster(target: GraphTarget) -> None:
    """Raise `InvalidInput` if the target is inside a cluster, which must create and change its graphs itself."""
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
        hint="declare the change in cluster.yaml and run `omnigraph cluster apply`",
        details={"uri": target.uri, "cluster": str(cluster)},
    )
