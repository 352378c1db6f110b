"""`omnigraph blob`: single values of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, TypeAlias, cast

import typer

from omnigraph.api.files import writing
from omnigraph.cli.query_arguments import BranchOption, SnapshotOption
from omnigraph.cli.render.output import readable, result_stream, say, say_json
from omnigraph.cli.scope import SHARED, JsonOption, Served, Target, opened_graph, resolve
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.blobs import Blob, BlobPlace
    from omnigraph.client.transport import Transport

EntityArgument: TypeAlias = Annotated[
    Literal["node", "edge"], typer.Argument(metavar="ENTITY", help="node or edge.")
]
TypeArgument: TypeAlias = Annotated[str, typer.Argument(metavar="TYPE", help="Its type.")]
IdArgument: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="Its id.")]
PropertyArgument: TypeAlias = Annotated[str, typer.Argument(metavar="PROPERTY", help="Its Blob property.")]

blob_commands = typer.Typer(help="Single values of bytes.", no_args_is_help=True)


@blob_commands.command(epilog=SHARED)
def get(
    ctx: typer.Context,
    entity: EntityArgument,
    type_name: TypeArgument,
    id_: IdArgument,
    property_: PropertyArgument,
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    offset: Annotated[
        int, typer.Option("--offset", metavar="N", min=0, help="The first byte, counted from 0.")
    ] = 0,
    length: Annotated[
        int | None, typer.Option("--length", metavar="N", help="How many bytes; as many as there are.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="PATH", help="Write a file instead; whole or not at all.")
    ] = None,
) -> None:
    """Write the bytes of a value, or some of them, to stdout as they are."""
    target = resolve(ctx, None)
    place = _place(entity, type_name, id_, property_, branch, snapshot)
    if length is not None and length < 1:
        raise InvalidInput(f"--length must be at least 1, not {length}")
    with _bytes(target, place, offset, length) as chunks:
        if out is None:
            stream = result_stream()
            stream.flush()
            stream.buffer.writelines(chunks)
            return
        from omnigraph.api.files import replacing

        with writing(out), replacing(out) as file:
            cast(TextIO, file).buffer.writelines(chunks)


@blob_commands.command(epilog=SHARED)
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
    """Tell how large a value is, or where it is kept."""
    target = resolve(ctx, None)
    place = _place(entity, type_name, id_, property_, branch, snapshot)
    found = _describe(place, _stat(target, place))
    if json:
        say_json(found)
        return
    for key in ("kind", "size", "etag", "uri"):
        if key in found:
            say(f"{key}: {readable(str(found[key]))}")
    say(f"resolved_snapshot: {readable(found['target']['resolved_snapshot'])}")


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
        raise typer.BadParameter("a commit names a state by itself", param_hint="'--branch'")
    return BlobPlace(entity, type_name, id_, property_, branch, snapshot)


@contextmanager
def _bytes(target: Target, place: BlobPlace, offset: int, length: int | None) -> Iterator[Iterator[bytes]]:
    if isinstance(target.place, Served):
        from omnigraph.client.blobs import read_blob, stat_blob

        with _connected(target.place) as transport:
            span, etag = None, None
            if offset or length is not None:
                # Where the value ends says what can be asked for; its tag, that it is still the same one.
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

    with opened_graph(target, "r") as graph:
        found, data = find_blob(graph, place)
    first, end = _span(found, offset, length)
    yield iter((data[first:end],))


def _stat(target: Target, place: BlobPlace) -> Blob:
    if isinstance(target.place, Served):
        from omnigraph.client.blobs import stat_blob

        with _connected(target.place) as transport:
            return stat_blob(transport, place)
    from omnigraph.api.blobs import find_blob

    with opened_graph(target, "r") as graph:
        return find_blob(graph, place)[0]


def _connected(place: Served) -> closing[Transport]:
    from omnigraph.client.blobs import connect_blobs

    return closing(connect_blobs(place.url, place.graph, place.token))


def _span(found: Blob, offset: int, length: int | None) -> tuple[int, int]:
    """The first byte that is meant, and the one behind the last; `InvalidInput` when there are none."""
    _refuse_external(found)
    size = found.size or 0
    if offset >= size > 0:
        raise InvalidInput(
            f"the value has {size} bytes; --offset {offset} is at or past its end", details={"size": size}
        )
    first = min(offset, size)
    return first, size if length is None else min(size, first + length)


def _refuse_external(found: Blob) -> None:
    if found.uri is not None:
        raise InvalidInput(
            f"the value is kept elsewhere, at {readable(found.uri)}", details={"uri": found.uri}
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
