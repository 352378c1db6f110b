"""`omnigraph blob`: read Blob values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, TypeAlias, cast

import typer

from omnigraph.api.files.local_files import readable_write_errors
from omnigraph.cli.query_arguments import BranchOption, OutOption, SnapshotOption
from omnigraph.cli.render.output import escape_unprintable, print_json, print_line, result_stream
from omnigraph.cli.target import EPILOG, JsonOption, open_graph, resolve_target
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.results.blobs import Blob

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
    range_: Annotated[
        str | None,
        typer.Option("--range", metavar="START:END", help="Bytes from START up to, but not including, END."),
    ] = None,
    out: OutOption = None,
) -> None:
    """Write the bytes of a Blob value, or a range of them, to stdout."""
    target = resolve_target(ctx, None)
    state = _state(branch, snapshot)
    if range_ is not None:
        if offset or length is not None:
            raise typer.BadParameter("cannot be combined with --offset and --length", param_hint="'--range'")
        offset, length = _parse_range(range_)
    if length is not None and length < 1:
        raise InvalidInput(f"--length must be at least 1, got {length}")
    with (
        open_graph(target, "r") as graph,
        graph.blob(f"{entity}:{type_name}", id_, property_, **state) as blob,
    ):
        chunks = blob.chunks(*_byte_range(blob, offset, length))
        if out is None:
            stream = result_stream()
            stream.flush()
            stream.buffer.writelines(chunks)
            return
        from omnigraph.api.files.local_files import atomic_write

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
    state = _state(branch, snapshot)
    with (
        open_graph(target, "r") as graph,
        graph.blob(f"{entity}:{type_name}", id_, property_, **state) as blob,
    ):
        known = {"size": blob.size, "etag": blob.etag, "uri": blob.uri}
        found = {
            "selector": {"entity": entity, "type": type_name, "id": id_, "property": property_},
            "kind": blob.kind,
            **{key: value for key, value in known.items() if value is not None},
            "target": {
                **({"branch": branch or "main"} if snapshot is None else {"snapshot": snapshot}),
                "resolved_snapshot": blob.info.resolved_snapshot,
            },
        }
    if json:
        print_json(found)
        return
    for key in ("kind", "size", "etag", "uri"):
        if key in found:
            print_line(f"{key}: {escape_unprintable(str(found[key]))}")
    print_line(f"resolved_snapshot: {escape_unprintable(blob.info.resolved_snapshot)}")


def _state(branch: str | None, snapshot: str | None) -> dict[str, Any]:
    """Return the state that the options name, as arguments of the library."""
    if branch is not None and snapshot is not None:
        raise typer.BadParameter("cannot be combined with --snapshot", param_hint="'--branch'")
    return {"branch": branch or "main"} if snapshot is None else {"at": snapshot}


def _parse_range(text: str) -> tuple[int, int | None]:
    """Return the offset and the length of a half-open range ``START:END``; either side may be missing."""
    match = re.fullmatch(r"(\d{0,18}):(\d{0,18})", text, re.ASCII)
    start = int(match[1] or 0) if match else 0
    end = int(match[2]) if match and match[2] else None
    if match is None or (end is not None and end <= start):
        raise typer.BadParameter(f"expected START:END, got '{text}'", param_hint="'--range'")
    return start, None if end is None else end - start


def _byte_range(blob: Blob, offset: int, length: int | None) -> tuple[int, int | None]:
    """Return the first byte of a range and the byte after its end; None for the end of the value.

    Raises `InvalidInput` if the offset is at or past the end of a value that is not empty.
    """
    size = blob.size
    if size is None:
        # The blob says that it is external.
        return 0, None
    if offset >= size > 0:
        noun = "byte" if size == 1 else "bytes"
        raise InvalidInput(
            f"offset {offset} is at or past the end of the value, which has {size} {noun}",
            details={"size": size},
        )
    start = min(offset, size)
    return start, size if length is None else min(size, start + length)
