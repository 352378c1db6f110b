"""Render the conflicts and the result of a merge or revert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from omnigraph.api.display.text_table import cell, table_lines
from omnigraph.cli.failures import FAILURE
from omnigraph.cli.merge_options import SIDES
from omnigraph.cli.precondition import report_lost_precondition
from omnigraph.cli.render.output import (
    count,
    escape_unprintable,
    print_error,
    print_json,
    print_line,
    print_note,
)
from omnigraph.errors import MergeConflicts

if TYPE_CHECKING:
    from omnigraph.api.results.merges import Merged

COLUMNS = ("id", "kind", "entity", "property", "base", "ours", "theirs")
MAX_ROWS = 20
MAX_EXAMPLES = 3
VALUE_WIDTH = 24

# Conflicts between two values of one property. The table shows both, and `{value: ...}` can resolve them.
_VALUE_CONFLICTS = frozenset({"divergent_insert", "divergent_update"})
_ABSENT = "<absent>"


@dataclass(frozen=True)
class SideNames:
    """Descriptions of the two sides of a conflict."""

    ours: str
    theirs: str


@contextmanager
def report_conflicts(sides: SideNames, *, json: bool) -> Iterator[None]:
    """Print conflicts or a failed precondition, on stderr or as JSON on stdout, and exit with an error code."""
    try:
        with report_lost_precondition(json=json):
            yield
    except MergeConflicts as error:
        if json:
            listed = list(error.conflicts)
            print_json({"error": error.message, "code": "conflict", "merge_conflicts": listed})
        else:
            # Without the hint: the lines below explain how to resolve the conflicts.
            print_error(MergeConflicts(escape_unprintable(error.message)))
            total = error.details.get("conflicts", len(error.conflicts))
            for line in conflict_lines(error.conflicts, total, sides):
                print_note(line)
            for id_ in error.details.get("unknown_conflicts", ()):
                print_note(f"{id_} is not one of these conflicts")
        raise typer.Exit(FAILURE) from error


def describe_merged(merged: Merged) -> dict[str, Any]:
    """Return the result of a merge, revert or dry run as JSON."""
    from omnigraph.protocol.result_bodies import commit_body

    return {
        "commit": None if merged.commit is None else commit_body(merged.commit),
        "affected": {name: dict(counts) for name, counts in merged.affected.items()},
        "taken": list(merged.taken),
        "conflicts": [dict(item) for item in merged.conflicts],
        "dry_run": merged.dry_run,
    }


def print_preview(would: str, merged: Merged, sides: SideNames) -> None:
    """Print the result of a dry run: the changes to each type, or the conflicts."""
    if merged.conflicts:
        print_line(f"{would}: {count(len(merged.conflicts), 'conflict')}")
        for line in conflict_lines(merged.conflicts, len(merged.conflicts), sides):
            print_line(line)
        return
    print_line(f"{would}: {merged.outcome}")
    for name, counts in merged.affected.items():
        print_line(f"{name}: {', '.join(f'{number} {what}' for what, number in counts.items() if number)}")
    for name in merged.taken:
        print_line(f"{name}: taken over")


# --- conflicts ----------------------------------------------------------------------------------------------


def conflict_lines(conflicts: Sequence[Mapping[str, Any]], total: int, sides: SideNames) -> Iterator[str]:
    """Yield a table of conflicts, the messages that do not fit into it, and how to resolve them."""
    shown = conflicts[:MAX_ROWS]
    yield from table_lines(COLUMNS, map(_cells, shown))
    if total > len(shown):
        yield f"and {total - len(shown)} more"
    for item in shown:
        if item["kind"] not in _VALUE_CONFLICTS and item["kind"] != "delete_vs_update":
            yield f"{item['id']}: {escape_unprintable(item['message'])}"
    yield f"ours is {sides.ours}, theirs is {sides.theirs}"
    yield "resolve them with --resolve ours or --resolve theirs, or one by one with --resolve FILE, for example:"
    for item in conflicts[:MAX_EXAMPLES]:
        value = ", or {value: ...}" if item["kind"] in _VALUE_CONFLICTS else ""
        yield f"  {item['id']}: ours  # or theirs{value}"
    if total > MAX_EXAMPLES:
        yield "  '*': theirs  # the rest"


def _cells(conflict: Mapping[str, Any]) -> list[str]:
    named = "" if conflict["entity_id"] is None else f" '{conflict['entity_id']}'"
    entity = f"{conflict['entity_kind']} {conflict['type_name']}{named}"
    values = (_cut(text) for text in _values(conflict))
    return [conflict["id"], conflict["kind"], entity, conflict["property"] or "", *values]


def _values(conflict: Mapping[str, Any]) -> list[str]:
    """Return the cells of the base and the two sides."""
    values = [conflict[side] for side in ("base", *SIDES)]
    match conflict["kind"]:
        case "divergent_update":
            return [cell(value) for value in values]
        case "divergent_insert":
            return [_ABSENT, *(cell(value) for value in values[1:])]
        case "delete_vs_update":
            flat = [None if value is None else _flat(value) for value in values]
            base = flat[0] or {}
            updated = flat[1] or flat[2] or {}
            keys = [key for key, value in updated.items() if key not in base or base[key] != value]
            return [_ABSENT if item is None else cell({key: item.get(key) for key in keys}) for item in flat]
    return [
        "" if value is None else cell(_property_value(_flat(value), conflict["property"])) for value in values
    ]


def _property_value(value: Any, name: str | None) -> Any:
    """Return the value of the property that a violated rule names, or the whole entity."""
    return value[name] if isinstance(value, Mapping) and name in value else value


def _flat(image: Any) -> Any:
    """Return the endpoints and properties of an entity as one mapping; return any other value unchanged."""
    if not isinstance(image, Mapping) or "properties" not in image:
        return image
    return {**image.get("endpoints", {}), **image["properties"]}


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_WIDTH else text[: VALUE_WIDTH - 1] + "…"
