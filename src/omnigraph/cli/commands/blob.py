"""`omnigraph blob`: read Blob values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, TypeAlias, cast

import typer

from omnigraph.api.files import writing
from omnigraph.cli.query_arguments import BranchOption, SnapshotOption
from omnigraph.cli.render.output import count, escape_unprintable, print_json, print_line, result_stream
from omnigraph.cli.target import EPILOG, GraphTarget, JsonOption, Served, open_graph, resolve_target
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.blobs import Blob, BlobPlace
    from omnigraph.client.transport import Transport

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
    place = _place(entity, type_name, id_, property_, branch, snapshot)
    if length is not None and length < 1:
        raise InvalidInput(f"--length must be at least 1, got {length}")
    with _bytes(target, place, offset, length) as chunks:
        if out is None:
            stream = result_stream()
            stream.flush()
            stream.buffer.writelines(chunks)
            return
        from omnigraph.api.files import replacing

        with writing(out), replacing(out) as file:
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
    place = _place(entity, type_name, id_, property_, branch, snapshot)
    found = _describe(place, _stat(target, place))
    if json:
        print_json(found)
        return
    for key in ("kind", "size", "etag", "uri"):
        if key in found:
            print_line(f"{key}: {escape_unprintable(str(found[key]))}")
    print_line(f"resolved_snapshot: {escape_unprintable(found['target']['resolved_snapshot'])}")


def _place(
    entity: Literal["node", "edge"],
    type_name: str,
    id_: str,
    property_: str,
    branch: str | None,
    snapshot: str | None,
) -> BlobPlace:
    from omnigraph.api.blobs import BlobPlace

    if branch is not None and snapshot is not None:
        raise typer.BadParameter("cannot be combined with --snapshot", param_hint="'--branch'")
    return BlobPlace(entity, type_name, id_, property_, branch, snapshot)


@contextmanager
def _bytes(
    target: GraphTarget, place: BlobPlace, offset: int, length: int | None
) -> Iterator[Iterator[bytes]]:
    if isinstance(target.place, Served):
        from omnigraph.client.blobs import read_blob, stat_blob

        with _connect(target.place) as transport:
            span, etag = None, None
            if offset or length is not None:
                # The size bounds the requested range. The ETag ensures that the same value is read.
                found = stat_blob(transport, place)
                span, etag = _span(found, offset, length), found.etag
                if span[0] == span[1]:
                    yield iter(())
                    return
            with read_blob(transport, place, span, etag) as (found, chunks):
                _refuse_external(found)
                yield chunks
        return
    from omnigraph.api.blobs import find_blob

    with open_graph(target, "r") as graph:
        found, data = find_blob(graph, place)
    first, end = _span(found, offset, length)
    yield iter((data[first:end],))


def _stat(target: GraphTarget, place: BlobPlace) -> Blob:
    if isinstance(target.place, Served):
        from omnigraph.client.blobs import stat_blob

        with _connect(target.place) as transport:
            return stat_blob(transport, place)
    from omnigraph.api.blobs import find_blob

    with open_graph(target, "r") as graph:
        return find_blob(graph, place)[0]


def _connect(place: Served) -> closing[Transport]:
    from omnigraph.client.blobs import connect_blobs

    return closing(connect_blobs(place.url, place.graph, place.token))


def _span(found: Blob, offset: int, length: int | None) -> tuple[int, int]:
    """Return the range of bytes to read, end exclusive. Raises `InvalidInput` if the offset is past the end."""
    _refuse_external(found)
    size = found.size or 0
    if offset >= size > 0:
        raise InvalidInput(
            f"--offset {offset} is at or past the end of the value, which has {count(size, 'byte')}",
            details={"size": size},
        )
    first = min(offset, size)
    return first, size if length is None else min(size, first + length)


def _refuse_external(found: Blob) -> None:
    if found.uri is not None:
        raise InvalidInput(
            f"the value is external: it is stored at {escape_unprintable(found.uri)}",
            details={"uri": found.uri},
        )


def _describe(place: BlobPlace, found: Blob) -> dict[str, Any]:
    known = {"size": found.size, "etag": found.etag, "uri": found.uri}
    state = {"snapshot": place.snapshot} if place.snapshot else {"branch": place.branch or "main"}
    return {
        "selector": {
            "entity": place.entity,
            "type": place.type_name,
            "id": place.id,
            "property": place.property,
        },
        "kind": "managed" if found.uri is None else "external",
        **{key: value for key, value in known.items() if value is not None},
        "target": {**state, "resolved_snapshot": found.resolved_snapshot},
    }
