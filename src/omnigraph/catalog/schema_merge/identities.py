"""Which numbers the things of a merged schema have."""

from __future__ import annotations

from typing import TypeVar

from omnigraph.catalog.identity import Identities, PropertyIdentity, TypeIdentity, physical_column
from omnigraph.catalog.migration.renames import all_types
from omnigraph.catalog.schema_merge.declarations import Placed
from omnigraph.catalog.schema_merge.members import Presence
from omnigraph.catalog.schema_merge.three_way import ThreeWay

_Identity = TypeVar("_Identity", TypeIdentity, PropertyIdentity)


def merge_identities(placed: Placed, next_id: int, counter: int) -> Identities:
    """The identities of a merged schema; `next_id` is the next free number of the catalogs merged.

    What neither side knows gets numbers from there or from `counter` on, whichever is higher.

    Identities merge like everything else: what a side replaced stays replaced. Where both sides have their
    own number for a thing, it is ours.
    """
    types: list[TypeIdentity] = []
    properties: list[PropertyIdentity] = []
    for item in all_types(placed.schema):
        triple, presence = placed.types[item.kind, item.name]
        found = _merged(triple.identities, presence)
        # A type is in the merged schema because a side has it.
        assert found is not None
        types.append(TypeIdentity(found.id, item.kind, item.name, found.table))
        for name in sorted(item.by_name):
            known = placed.properties.get((item.kind, item.name, name))
            held = None if known is None else _merged(known.identities, presence)
            if held is None:
                next_id = max(next_id, counter)
                column = None if item.kind == "interface" else physical_column(name, next_id)
                properties.append(PropertyIdentity(next_id, found.id, name, column))
                next_id += 1
            else:
                properties.append(PropertyIdentity(held.id, found.id, name, held.column))
    return Identities(
        tuple(sorted(types, key=lambda item: item.id)),
        tuple(sorted(properties, key=lambda item: item.id)),
        next_id,
    )


def _merged(identities: ThreeWay[_Identity], presence: Presence) -> _Identity | None:
    """The identity that goes on. One that only the base has was dropped and does not come back."""
    if presence != "both":
        return identities.of(presence)
    base, ours, theirs = identities.parts
    if ours is None or theirs is None:
        return ours or theirs
    return theirs if base is not None and base.id == ours.id else ours
