"""Lookup of tables by the type names that callers pass."""

from __future__ import annotations

from omnigraph.catalog.catalog import Catalog, Table, table_key
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.lang.suggestions import did_you_mean


def find_table(catalog: Catalog, name: str) -> Table:
    """Return the table of a type; a prefix `node:` or `edge:` resolves a name that both kinds have.

    Edge names are case-insensitive. Raises `NotFound` for an unknown name and `InvalidInput` for an ambiguous one.
    """
    if name in catalog.tables:
        return catalog.tables[name]
    entities = (catalog.schema.node(name), catalog.schema.edge(name))
    keys = [table_key(item.kind, item.name) for item in entities if item is not None]
    if len(keys) == 1:
        return catalog.tables[keys[0]]
    if keys:
        raise InvalidInput(
            f"ambiguous type '{name}': there is a node type and an edge type of that name",
            hint=f"write {' or '.join(keys)}",
        )
    names = sorted(table.name for table in catalog.tables.values())
    raise NotFound(
        f"unknown type '{name}'{did_you_mean(name, names)}", details={"type": name, "types": names}
    )
