"""Lookup of tables by the type names that callers pass."""

from __future__ import annotations

from omnigraph.catalog.catalog import Catalog, Table, table_key
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.lang.suggestions import did_you_mean


def find_table(catalog: Catalog, name: str) -> Table:
    """Return the table of a type; a prefix `node:` or `edge:` resolves a name that both kinds have.

    Raises `NotFound` for an unknown name and `InvalidInput` for an ambiguous one.
    """
    keys = (name, table_key("node", name), table_key("edge", name))
    tables = [catalog.tables[key] for key in keys if key in catalog.tables]
    if len(tables) == 1:
        return tables[0]
    if tables:
        raise InvalidInput(
            f"ambiguous type '{name}': there is a node type and an edge type of that name",
            hint=f"write node:{name} or edge:{name}",
        )
    names = sorted(table.name for table in catalog.tables.values())
    raise NotFound(
        f"unknown type '{name}'{did_you_mean(name, names)}", details={"type": name, "types": names}
    )
