"""Small graphs whose branches are merged, and how they are written and looked at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pytest

import omnigraph as og
from omnigraph.errors import MergeConflicts
from tests.support.places import fresh_memory

SCHEMA = """
node Person { name: String @key  age: I32?  mail: String? @unique  team: String? }
node City { name: String @key  size: I64? }
edge Knows: Person -> Person { since: I32?  code: String? @unique }
edge Lives: Person -> City @card(0..1)
edge Owns: Person -> City @card(1..3)
"""

Record: TypeAlias = dict[str, Any]
# Rows by id, by the name of their type.
State: TypeAlias = dict[str, dict[str, Record]]
Conflict: TypeAlias = Mapping[str, Any]


def make(schema: str = SCHEMA, records: Iterable[Record] = ()) -> og.Graph:
    """A graph in memory with some rows on main."""
    graph = og.init(fresh_memory(), schema=schema)
    rows = list(records)
    if rows:
        graph.load(rows)
    return graph


def node(type_name: str, name: str, **data: Any) -> Record:
    """A record of a node whose key is its name."""
    return {"type": type_name, "data": {"name": name, **data}}


def person(name: str, **data: Any) -> Record:
    """A record of a person."""
    return node("Person", name, **data)


def edge(type_name: str, id_: str, source: str, target: str, **data: Any) -> Record:
    """A record of an edge."""
    return {"edge": type_name, "from": source, "to": target, "data": {"id": id_, **data}}


def change(graph: og.Graph, statements: str, branch: str = "main") -> og.Commit:
    """Mutate, and see that it changed something."""
    commit = graph.mutate(f"query change() {{ {statements} }}", branch=branch).commit
    assert commit is not None
    return commit


def put(graph: og.Graph, *records: Record, branch: str = "main") -> og.Commit:
    """Insert or replace rows."""
    commit = graph.load(list(records), "merge", branch=branch).commit
    assert commit is not None
    return commit


def state(graph: og.Graph, branch: str = "main", at: str | None = None) -> State:
    """Every row of a branch, by its logical columns; a NaN is written as a text, so that it equals itself."""
    snapshot = graph.snapshot(branch, at)
    found: State = {}
    for key, table in snapshot.catalog.tables.items():
        columns = {item.physical: item.name for item in table.columns}
        rows = snapshot.scan(key).select(list(columns)).rename_columns(list(columns.values())).to_pylist()
        found[table.name] = {row["id"]: {name: _plain(value) for name, value in row.items()} for row in rows}
        assert len(found[table.name]) == len(rows) == snapshot.pin(key).rows
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def column(graph: og.Graph, name: str, branch: str = "main", type_name: str = "Person") -> dict[str, Any]:
    """One property of every entity of a type."""
    return {id_: row[name] for id_, row in state(graph, branch)[type_name].items()}


def head(graph: og.Graph, branch: str = "main") -> str:
    """The commit that a branch stands at."""
    return graph.snapshot(branch).commit_id


def refused(graph: og.Graph, source: str, into: str = "main", **options: Any) -> list[Conflict]:
    """The conflicts of a merge that is refused; nothing has moved by it."""
    before = head(graph, into)
    with pytest.raises(MergeConflicts) as caught:
        graph.branches.merge(source, into, **options)
    assert head(graph, into) == before
    return list(caught.value.conflicts)


def only(conflicts: Iterable[Conflict]) -> Conflict:
    """The one conflict that there is."""
    (found,) = conflicts
    return found


def kinds(conflicts: Iterable[Conflict]) -> list[tuple[str, str, str | None, str | None]]:
    """What each conflict is about: kind, type, entity and property."""
    return [(item["kind"], item["type_name"], item["entity_id"], item["property"]) for item in conflicts]
