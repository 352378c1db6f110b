"""Identities of a merged schema."""

from __future__ import annotations

from typing import TypeVar

from omnigraph.catalog.identity import Identities, PropertyIdentity, TypeIdentity, physical_column
from omnigraph.catalog.schema_merge.declarations import SchemaOrigins
from omnigraph.catalog.schema_merge.members import Presence
from omnigraph.catalog.schema_merge.three_way import ThreeWay
from omnigraph.lang.schema import all_types

_Identity = TypeVar("_Identity", TypeIdentity, PropertyIdentity)


def merge_identities(origins: SchemaOrigins, next_id: int, counter: int) -> Identities:
    """Return the identities of a merged schema; `next_id` is the next unused number of the merged catalogs.

    Properties that neither side has get numbers from the higher of `next_id` and `counter`.

    Identities are merged like other aspects: an identity that one side replaced stays replaced. When both sides
    have their own number for an element, that of ours is kept.
    """
    types: list[TypeIdentity] = []
    properties: list[PropertyIdentity] = []
    for item in all_types(origins.schema):
        matched, presence = origins.types[item.kind, item.name]
        identity = _merged(matched.identities, presence)
        # Every type of the merged schema exists on a side.
        assert identity is not None
        types.append(TypeIdentity(identity.id, item.kind, item.name, identity.table))
        for name in sorted(item.by_name):
            known = origins.properties.get((item.kind, item.name, name))
            held = None if known is None else _merged(known.identities, presence)
            if held is None:
                next_id = max(next_id, counter)
                column = None if item.kind == "interface" else physical_column(name, next_id)
                properties.append(PropertyIdentity(next_id, identity.id, name, column))
                next_id += 1
            else:
                properties.append(PropertyIdentity(held.id, identity.id, name, held.column))
    return Identities(
        tuple(sorted(types, key=lambda item: item.id)),
        tuple(sorted(properties, key=lambda item: item.id)),
        next_id,
    )


def _merged(identities: ThreeWay[_Identity], presence: Presence) -> _Identity | None:
    """Return the merged identity. An identity that only the merge base has was dropped and is not restored."""
    if presence != "both":
        return identities.of(presence)
    base, ours, theirs = identities.parts
    if ours is None or theirs is None:
        return ours or theirs
    return theirs if base is not None and base.id == ours.id else ours
