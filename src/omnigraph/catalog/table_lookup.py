"""Types by the names that callers give."""

from __future__ import annotations

from omnigraph.catalog.catalog import Catalog, Table, table_key
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.lang.suggestions import did_you_mean


def find_table(catalog: Catalog, name: str) -> Table:
    """The type of that name; `node:` or `edge:` before it tells two of the same name apart."""
    keys = (name, table_key("node", name), table_key("edge", name))
    found = [catalog.tables[key] for key in keys if key in catalog.tables]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidInput(
            f"'{name}' is a node type and an edge type", hint=f"write node:{name} or edge:{name}"
        )
    names = sorted(table.name for table in catalog.tables.values())
    raise NotFound(
        f"unknown type '{name}'{did_you_mean(name, names)}", details={"type": name, "types": names}
    )
