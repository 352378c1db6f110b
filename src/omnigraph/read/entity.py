"""Look up one node or edge by its id."""

from __future__ import annotations

from typing import Any

import numpy as np

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.columns import ENDPOINT_NAMES
from omnigraph.catalog.row_json import json_values
from omnigraph.errors import NotFound
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.read.read_session import ReadSession


def find_entity(session: ReadSession, type_name: str, id_: str) -> dict[str, Any] | None:
    """Return the id, the endpoints of an edge, and the properties as JSON values; None if there is no such
    entity.
    """
    table = session.table(named_table(session.catalog, type_name).key)
    position = table.position(id_)
    if position < 0:
        return None
    ordinals = np.array([position], np.int64)
    return {
        ENDPOINT_NAMES.get(column.name, column.name): json_values(
            table.values(column.name, ordinals), column.type
        )[0]
        for column in table.layout.columns
    }


def named_table(catalog: Catalog, type_name: str) -> Table:
    """Return the table of a type. The prefix ``node:`` or ``edge:`` selects one of two types of the same name.

    Raises `NotFound` for an unknown type.
    """
    kind, _, bare = type_name.rpartition(":")
    for table in catalog.tables.values():
        if table.name == bare and kind in ("", table.kind):
            return table
    names = [table.name for table in catalog.tables.values()]
    raise NotFound(f"unknown type '{type_name}'{did_you_mean(bare, names)}", details={"type": type_name})
