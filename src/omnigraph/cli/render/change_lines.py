"""Render changes as text lines, or as one JSON document that is streamed and never held in memory as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

import typer

from omnigraph.cli.render.output import data_stdout, escape_unprintable
from omnigraph.cli.state_arguments import format_moment

if TYPE_CHECKING:
    from omnigraph.changes.change_records import ChangeCause, EntityChange, Image, Kind, Op


class KindName(StrEnum):
    """Values of ``--kind``. An enum, because Typer does not support lists of literals."""

    node = "node"
    edge = "edge"


class OpName(StrEnum):
    """Values of ``--op``."""

    insert = "insert"
    update = "update"
    delete = "delete"


KindOption: TypeAlias = Annotated[
    list[KindName] | None,
    typer.Option("--kind", metavar="node|edge", help="Only nodes, or only edges. Repeatable."),
]
TypeOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type. Repeatable.")
]
OpOption: TypeAlias = Annotated[
    list[OpName] | None,
    typer.Option("--op", metavar="OP", help="Only this operation: insert, update or delete. Repeatable."),
]
PageSizeOption: TypeAlias = Annotated[
    int | None, typer.Option("--limit", metavar="N", help="Number of changes to fetch at a time.")
]

_ABSENT = object()


class FilterArguments(TypedDict):
    """Filter of changes, as keyword arguments of the methods of a graph."""

    kinds: list[Kind] | None
    types: list[str] | None
    ops: list[Op] | None


def read_filter(
    kinds: list[KindName] | None, types: list[str] | None, ops: list[OpName] | None
) -> FilterArguments:
    """Return the filter that the options describe."""
    return {
        "kinds": [item.value for item in kinds] if kinds else None,
        "types": types or None,
        "ops": [item.value for item in ops] if ops else None,
    }


def print_pieces(pieces: Iterable[str]) -> None:
    """Write pieces of text to stdout as they are produced."""
    stream = data_stdout()
    for piece in pieces:
        stream.write(piece)


def cause_lines(cause: ChangeCause) -> Iterator[str]:
    """Yield the lines that describe the commit of a block of changes."""
    shown = {
        "commit": cause.graph_commit_id,
        "branch": cause.authored_branch,
        "parent": cause.parent_commit_id,
        "merged_parent": cause.merged_parent_commit_id,
        "actor": cause.actor_id,
        "authored_at": f"{cause.authored_at} ({format_moment(cause.authored_at)})",
    }
    for key, value in shown.items():
        if value is not None:
            yield f"{key}: {escape_unprintable(value)}\n"


def change_lines(change: EntityChange) -> Iterator[str]:
    """Yield the lines of one change: operation, entity, endpoints of an edge, and the affected values."""
    yield f"{change.op} {change.kind} {change.type_name} {escape_unprintable(change.id)}\n"
    yield from value_lines(change.op, change.before, change.after, change.changed)


def value_lines(
    op: str, before_image: Image | None, after_image: Image | None, changed: Sequence[str]
) -> Iterator[str]:
    """Yield the lines of the endpoints and the affected values of a change."""
    before, after = before_image or {}, after_image or {}
    ends = [_ends(image) for image in (before, after) if "endpoints" in image]
    if ends:
        yield f"  {' => '.join(dict.fromkeys(ends))}\n"
    old, new = before.get("properties", {}), after.get("properties", {})
    if op == "update":
        for key in dict.fromkeys([*new, *old]):
            was, is_ = old.get(key, _ABSENT), new.get(key, _ABSENT)
            if key in changed or (was is _ABSENT) != (is_ is _ABSENT):
                yield f"  {key}: {_format_value(was)} -> {_format_value(is_)}\n"
        return
    sign = "-" if op == "delete" else "+"
    for key, value in (new or old).items():
        yield f"  {sign} {key}: {_format_value(value)}\n"


def _ends(image: Image) -> str:
    return (
        f"{escape_unprintable(image['endpoints']['from'])} -> {escape_unprintable(image['endpoints']['to'])}"
    )


def _format_value(value: Any) -> str:
    if value is _ABSENT:
        return "<absent>"
    if value is None:
        return "<null>"
    if isinstance(value, str):
        return escape_unprintable(value)
    return escape_unprintable(json.dumps(value, ensure_ascii=False))


# --- JSON ---------------------------------------------------------------------------------------------------


def json_pieces(members: Iterable[tuple[str, Any]], depth: int = 0) -> Iterator[str]:
    """Yield an object in pieces, formatted as by ``json.dumps(..., indent=2)``. An iterator becomes an array.

    >>> print("".join(json_pieces([("a", 1), ("b", iter([[], {"c": 2}]))])))
    {
      "a": 1,
      "b": [
        [],
        {
          "c": 2
        }
      ]
    }
    """
    inner = "  " * (depth + 1)
    start = "{"
    for key, value in members:
        yield f"{start}\n{inner}{json.dumps(key)}: "
        yield from _value_pieces(value, depth + 1)
        start = ","
    yield "{}" if start == "{" else f"\n{'  ' * depth}}}"


class StreamedObject:
    """A JSON object whose members are streamed."""

    def __init__(self, members: Iterable[tuple[str, Any]]) -> None:
        self.members = members


def _value_pieces(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, StreamedObject):
        yield from json_pieces(value.members, depth)
    elif isinstance(value, Iterator):
        yield from _array_pieces(value, depth)
    else:
        text = json.dumps(value, indent=2, ensure_ascii=False)
        yield text.replace("\n", "\n" + "  " * depth)


def _array_pieces(values: Iterator[Any], depth: int) -> Iterator[str]:
    inner = "  " * (depth + 1)
    start = "["
    for value in values:
        yield f"{start}\n{inner}"
        yield from _value_pieces(value, depth + 1)
        start = ","
    yield "[]" if start == "[" else f"\n{'  ' * depth}]"
