"""Resolution of the properties that a migration backfills."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph.catalog.migration.renames import Matching, PropertyName
from omnigraph.errors import InvalidInput
from omnigraph.lang.schema import Schema, all_types


def backfilled_properties(
    desired: Schema, matching: Matching, backfills: Iterable[str]
) -> frozenset[PropertyName]:
    """Return the new properties for which a backfill sets a value in every existing row.

    These are the properties that `backfills` names as ``Type.property``, and each interface property for which
    all existing node types that newly inherit it are named. Raises `InvalidInput` for names that are not new
    properties of an existing type; `details["errors"]` lists all of them.
    """
    new = _new_properties(desired, matching)
    named = frozenset(backfills)
    errors = [
        f"backfill '{name}' is not a new property of an existing node or edge type"
        for name in sorted(named - new.keys())
    ]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        hint = f"new properties: {', '.join(sorted(new))}" if new else "the change adds no properties"
        raise InvalidInput(errors[0] + more, details={"errors": errors}, hint=hint)
    backfilled = {item for name in named for item in new[name]}
    all_new = {item for group in new.values() for item in group}
    return frozenset(backfilled | _interface_properties(desired, all_new, backfilled))


def _new_properties(desired: Schema, matching: Matching) -> Mapping[str, set[PropertyName]]:
    """Return new properties by their backfill name, which a node and an edge may share."""
    new: dict[str, set[PropertyName]] = {}
    for item in all_types(desired):
        if item.kind == "interface" or (item.kind, item.name) not in matching.types:
            continue
        for name in item.by_name:
            key: PropertyName = (item.kind, item.name, name)
            if key not in matching.properties:
                new.setdefault(f"{item.name}.{name}", set()).add(key)
    return new


def _interface_properties(
    desired: Schema, new: set[PropertyName], backfilled: set[PropertyName]
) -> set[PropertyName]:
    properties: set[PropertyName] = set()
    for interface in desired.interfaces:
        nodes = [node.name for node in desired.nodes if interface.name in node.implements]
        for name in interface.by_name:
            inheriting = new.intersection(("node", node, name) for node in nodes)
            if inheriting and inheriting <= backfilled:
                properties.add(("interface", interface.name, name))
    return properties
