"""Which new properties existing rows get values for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph.catalog.migration.renames import Matching, PropertyName, all_types
from omnigraph.errors import InvalidInput
from omnigraph.lang.schema import Schema


def filled_properties(
    desired: Schema, matching: Matching, backfills: Iterable[str]
) -> frozenset[PropertyName]:
    """The new properties that no row lacks a value for.

    These are the ones that `backfills` names as ``Type.property`` and the interface properties they come
    from, if every node that has rows and inherits one anew is named. A name that is no new property of a
    type with rows is `InvalidInput`; `details["errors"]` lists all of them.
    """
    new = _new_properties(desired, matching)
    named = frozenset(backfills)
    errors = [
        f"backfill '{name}' names no new property of a type with rows" for name in sorted(named - new.keys())
    ]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        hint = f"new properties: {', '.join(sorted(new))}" if new else "this change adds no property"
        raise InvalidInput(errors[0] + more, details={"errors": errors}, hint=hint)
    filled = {item for name in named for item in new[name]}
    return frozenset(filled) | _handed_down(
        desired, {item for group in new.values() for item in group}, filled
    )


def _new_properties(desired: Schema, matching: Matching) -> Mapping[str, set[PropertyName]]:
    """By the name a backfill has; a node and an edge may share it."""
    found: dict[str, set[PropertyName]] = {}
    for item in all_types(desired):
        if item.kind == "interface" or (item.kind, item.name) not in matching.types:
            continue
        for name in item.by_name:
            place: PropertyName = (item.kind, item.name, name)
            if place not in matching.properties:
                found.setdefault(f"{item.name}.{name}", set()).add(place)
    return found


def _handed_down(desired: Schema, new: set[PropertyName], filled: set[PropertyName]) -> set[PropertyName]:
    found: set[PropertyName] = set()
    for face in desired.interfaces:
        nodes = [node.name for node in desired.nodes if face.name in node.implements]
        for name in face.by_name:
            heirs = new.intersection(("node", node, name) for node in nodes)
            if heirs and heirs <= filled:
                found.add(("interface", face.name, name))
    return found
