"""`omnigraph blob`: read Blob values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, TypeAlias, cast

import typer

from omnigraph.api.files import readable_write_errors
from omnigraph.cli.query_arguments import BranchOption, SnapshotOption
from omnigraph.cli.render.output import escape_unprintable, print_json, print_line, result_stream
from omnigraph.cli.target import EPILOG, GraphTarget, JsonOption, Served, open_graph, resolve_target
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.blobs import BlobInfo, Blobs, BlobSelector

EntityArgument: TypeAlias = Annotated[
    Literal["node", "edge"], typer.Argument(metavar="ENTITY", help="node or edge.")
]
TypeArgument: TypeAlias = Annotated[str, typer.Argument(metavar="TYPE", help="Node or edge type.")]
IdArgument: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="Id of the node or edge.")]
PropertyArgument: TypeAlias = Annotated[str, typer.Argument(metavar="PROPERTY", help="Blob property.")]

blob_commands = typer.Typer(help="Read Blob values.", no_args_is_help=True)


@blob_commands.command(epilog=EPILOG)
def get(
    ctx: typer.Context,
    entity: EntityArgument,
    type_name: TypeArgument,
    id_: IdArgument,
    property_: PropertyArgument,
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    offset: Annotated[
        int, typer.Option("--offset", metavar="N", min=0, help="First byte to read, counted from 0.")
    ] = 0,
    length: Annotated[
        int | None,
        typer.Option("--length", metavar="N", help="Number of bytes to read; default: to the end."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="PATH",
            help="Write to a file instead of stdout. The file is complete or not written.",
        ),
    ] = None,
) -> None:
    """Write the bytes of a Blob value, or a range of them, to stdout."""
    target = resolve_target(ctx, None)
    selector = _selector(entity, type_name, id_, property_, branch, snapshot)
    if length is not None and length < 1:
        raise InvalidInput(f"--length must be at least 1, got {length}")
    with _open_blobs(target) as blobs, blobs.open(selector, offset, length) as chunks:
        if out is None:
            stream = result_stream()
            stream.flush()
            stream.buffer.writelines(chunks)
            return
        from omnigraph.api.files import atomic_write

        with readable_write_errors(out), atomic_write(out) as file:
            cast(TextIO, file).buffer.writelines(chunks)


@blob_commands.command(epilog=EPILOG)
def stat(
    ctx: typer.Context,
    entity: EntityArgument,
    type_name: TypeArgument,
    id_: IdArgument,
    property_: PropertyArgument,
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    json: JsonOption = False,
) -> None:
    """Print the size of a Blob value, or the URI of an external value."""
    target = resolve_target(ctx, None)
    selector = _selector(entity, type_name, id_, property_, branch, snapshot)
    with _open_blobs(target) as blobs:
        found = _describe(selector, blobs.stat(selector))
    if json:
        print_json(found)
        return
    for key in ("kind", "size", "etag", "uri"):
        if key in found:
            print_line(f"{key}: {escape_unprintable(str(found[key]))}")
    print_line(f"resolved_snapshot: {escape_unprintable(found['target']['resolved_snapshot'])}")


def _selector(
    entity: Literal["node", "edge"],
    type_name: str,
    id_: str,
    property_: str,
    branch: str | None,
    snapshot: str | None,
) -> BlobSelector:
    from omnigraph.api.blobs import BlobSelector

    if branch is not None and snapshot is not None:
        raise typer.BadParameter("cannot be combined with --snapshot", param_hint="'--branch'")
    return BlobSelector(entity, type_name, id_, property_, branch, snapshot)


@contextmanager
def _open_blobs(target: GraphTarget) -> Iterator[Blobs]:
    if isinstance(target.place, Served):
        from omnigraph.client.blobs import connect_blobs

        with connect_blobs(target.place.url, target.place.graph, target.place.token) as remote:
            yield remote
        return
    from omnigraph.api.local.local_blobs import LocalBlobs

    with open_graph(target, "r") as graph:
        yield LocalBlobs(graph)


def _describe(selector: BlobSelector, info: BlobInfo) -> dict[str, Any]:
    known = {"size": info.size, "etag": info.etag, "uri": info.uri}
    state = {"snapshot": selector.snapshot} if selector.snapshot else {"branch": selector.branch or "main"}
    return {
        "selector": {
            "entity": selector.entity,
            "type": selector.type_name,
            "id": selector.id,
            "property": selector.property,
        },
        "kind": "managed" if info.uri is None else "external",
        **{key: value for key, value in known.items() if value is not None},
        "target": {**state, "resolved_snapshot": info.resolved_snapshot},
    }
