"""`omnigraph du`: the storage that each type takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.render.output import print_json, print_line
from omnigraph.cli.render.terminal import terminal_width
from omnigraph.cli.target import JsonOption, UriArgument, open_repository, resolve_target

if TYPE_CHECKING:
    from omnigraph.graph.repository import Repository

_WIDE = 1_000_000


@dataclass
class Usage:
    """Bytes of the files of a table, or of everything else in the graph."""

    name: str
    kind: str
    data: int = 0
    indexes: int = 0
    history: int = 0

    @property
    def total(self) -> int:
        """All bytes."""
        return self.data + self.indexes + self.history


def du(ctx: typer.Context, uri: UriArgument = None, json: JsonOption = False) -> None:
    """Print the storage of each type: data, indexes, and the records of versions. Files of all branches count.

    Files that no commit needs count until `cleanup` removes them.
    """
    target = resolve_target(ctx, uri)
    with open_repository(target, "r", recover=False) as repository:
        found = _measure(repository)
    if json:
        tables = [
            {
                "type_name": item.name,
                "entity_kind": item.kind,
                "data_bytes": item.data,
                "index_bytes": item.indexes,
                "history_bytes": item.history,
                "total_bytes": item.total,
            }
            for item in found
        ]
        print_json({"uri": target.uri, "tables": tables, "total_bytes": sum(item.total for item in found)})
        return
    from omnigraph.api.display.text_table import fitted_table_lines

    rows = [[item.name, item.kind, item.data, item.indexes, item.history, item.total] for item in found]
    rows.append(["total", "", *(sum(column) for column in zip(*(row[2:] for row in rows), strict=True))])
    columns = ["type", "kind", "data", "indexes", "history", "bytes"]
    for line in fitted_table_lines(columns, rows, terminal_width() or _WIDE):
        print_line(line)


def _measure(repository: Repository) -> list[Usage]:
    """Return the usage of each table, the largest first, and that of all other files."""
    snapshot = repository.snapshot("main")
    names = {snapshot.pin(table.key).path: table for table in snapshot.catalog.tables.values()}
    tables = {path: Usage(table.name, table.kind) for path, table in names.items()}
    others = {"nodes": Usage("(other types)", "node"), "edges": Usage("(other types)", "edge")}
    rest = Usage("(graph)", "")
    for item in repository.objects.list():
        parts = item.key.split("/")
        usage = tables.get("/".join(parts[:2])) or (others.get(parts[0]) if len(parts) > 2 else None)
        if usage is None:
            rest.history += item.size
        elif parts[2] == "data":
            usage.data += item.size
        elif parts[2] == "_indices":
            usage.indexes += item.size
        else:
            usage.history += item.size
    used = sorted(tables.values(), key=lambda usage: -usage.total)
    return [*used, *(usage for usage in others.values() if usage.total), rest]
