"""One node or edge by its id."""

from __future__ import annotations

from typing import Any

import numpy as np

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.entity_images import ENDS
from omnigraph.catalog.row_json import json_values
from omnigraph.errors import NotFound
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.read.session import ReadSession


def find_entity(session: ReadSession, type_name: str, id_: str) -> dict[str, Any] | None:
    """Its id, for an edge its ends, and its properties as JSON values; None when there is none."""
    frame = session.frame(named_table(session.catalog, type_name).key)
    place = frame.position(id_)
    if place < 0:
        return None
    at = np.array([place], np.int64)
    return {
        ENDS.get(column.name, column.name): json_values(frame.values(column.name, at), column.type)[0]
        for column in frame.table.columns
    }


def named_table(catalog: Catalog, type_name: str) -> Table:
    """The table of a type by its name; ``node:`` or ``edge:`` before it tells two of one name apart."""
    kind, _, bare = type_name.rpartition(":")
    for table in catalog.tables.values():
        if table.name == bare and kind in ("", table.kind):
            return table
    names = [table.name for table in catalog.tables.values()]
    raise NotFound(f"unknown type '{type_name}'{did_you_mean(bare, names)}", details={"type": type_name})
