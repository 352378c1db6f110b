"""Small graphs with versions that share fragments, and what storage itself says is in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, accept
from omnigraph.catalog.columns import arrow_schema
from omnigraph.catalog.migration.evolve import evolve
from omnigraph.catalog.migration.planner import plan_migration
from omnigraph.engine.csr import Adjacency
from omnigraph.engine.layered_adjacency import degrees, expand_edges, expand_unique
from omnigraph.engine.memory.cached_table import CachedTable
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.graph.publish import publish
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.lang.ir import Direction
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.read.topology import Topology
from tests.support.places import fresh_memory
from tests.support.rows import compact

TEXT = """
node Person { name: String?  age: I32?  tags: [String]? }
node City { name: String? }
edge Knows: Person -> Person { since: I32? }
edge Lives: Person -> City
"""
WIDER = TEXT.replace("tags: [String]?", "tags: [String]?  zeal: String?")
PERSON, CITY, KNOWS, LIVES = "node:Person", "node:City", "edge:Knows", "edge:Lives"
PLENTY = 1 << 26

# Rows by id, each with some of its columns by logical name; the others are null.
Rows: TypeAlias = Mapping[str, Mapping[str, Any]]


def new_graph(uri: str | None = None) -> Repository:
    return Repository.init(uri or fresh_memory(), _accepted(TEXT), durability="os")


def _accepted(text: str) -> Catalog:
    return accept(load_schema(text), text)


def arrow(catalog: Catalog, key: str, rows: Rows) -> pa.Table:
    """Rows as they are stored."""
    table = catalog.tables[key]
    schema = arrow_schema(table, physical=True)
    values = [{"id": id_, **row} for id_, row in rows.items()]
    columns = [
        pa.array([row.get(column.name) for row in values], schema.field(column.physical).type)
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def change(
    graph: Repository,
    insert: Mapping[str, Rows] | None = None,
    delete: Mapping[str, Iterable[str]] | None = None,
    branch: str = "main",
) -> str:
    """One commit that deletes and then inserts rows; its id."""
    rows, doomed = insert or {}, {key: list(ids) for key, ids in (delete or {}).items()}

    def prepare(transaction: Transaction) -> Prepared[None]:
        for key in sorted({*rows, *doomed}):
            new = arrow(transaction.base.catalog, key, rows[key]) if rows.get(key) else None
            transaction.stage(key, delete_ids=doomed.get(key, ()), insert=new)
        return Prepared("insert", None)

    return _write(graph, prepare, branch)


def put(graph: Repository, key: str, rows: Rows, branch: str = "main") -> str:
    """Insert or replace rows."""
    return change(graph, {key: rows}, {key: list(rows)}, branch)


def drop(graph: Repository, key: str, ids: Iterable[str], branch: str = "main") -> str:
    return change(graph, None, {key: ids}, branch)


def rewrite(graph: Repository, key: str, branch: str = "main") -> None:
    """Rearrange the files of a table; nothing is committed when they are in order."""

    def prepare(transaction: Transaction) -> Prepared[None]:
        staged = compact(graph.tables, transaction.pin(key))
        if staged.version == transaction.pin(key).version:
            return Prepared(None, None)
        transaction.write(key, staged)
        return Prepared("maintenance", None)

    graph.write(branch, WriteRequest("optimize"), prepare)


def index(graph: Repository, key: str, *columns: str, branch: str = "main") -> None:
    """Index columns of a table."""

    def prepare(transaction: Transaction) -> Prepared[None]:
        for column in columns:
            transaction.write(key, graph.tables.stage_index(transaction.pin(key), column, "BTREE"))
        return Prepared("maintenance", None)

    _write(graph, prepare, branch)


def add_column(graph: Repository, branch: str = "main") -> None:
    """Give people some zeal, which those that are there do not have."""
    transaction = graph.begin(branch)
    old = transaction.base.catalog
    desired = load_schema(WIDER)
    new = evolve(old, desired, WIDER, plan_migration(old, desired))
    wider = arrow_schema(new.tables[PERSON], physical=True)
    staged = graph.tables.stage_columns(transaction.pin(PERSON), wider)
    transaction.write(PERSON, staged)
    plan = replace(
        transaction.plan("schema apply", "strict"),
        schema=new.fingerprint.removeprefix("sha256:"),
        schema_payload=json.dumps(new.to_json()),
    )
    publish(graph.manifest, plan)


def _write(graph: Repository, prepare: Callable[[Transaction], Prepared[None]], branch: str) -> str:
    receipt, _ = graph.write(branch, WriteRequest("write"), prepare)
    assert receipt is not None
    return receipt.commit.id


# --- what storage says -----------------------------------------------------------------------------------


def stored(snapshot: Snapshot, key: str, name: str) -> list[Any]:
    """A column in the order of its rows, read by Lance alone."""
    pin, physical = snapshot.pin(key), snapshot.table(key).physical(name)
    found = snapshot.tables.open(pin.path, pin.version).to_table(columns=[physical])
    values: list[Any] = found[physical].to_pylist()
    return values


def check_columns(snapshot: Snapshot, cache: Cache, keys: Sequence[str] = (PERSON, KNOWS)) -> None:
    """Every column through a cache is the one in storage, and every id is where it says."""
    for key in keys:
        frame = CachedTable(snapshot, key, cache)
        rows = frame.all_rows()
        for column in frame.layout.columns:
            expected = stored(snapshot, key, column.name)
            assert frame.values(column.name, rows).to_pylist() == expected
            assert frame.column(column.name).take(pa.array(rows)).to_pylist() == expected
        ids = stored(snapshot, key, "id")
        assert frame.positions(pa.array(ids, pa.string())).tolist() == rows.tolist()


def values(frame: CachedTable, name: str) -> list[Any]:
    """A column in the order of its rows, through the cache."""
    found: list[Any] = frame.column(name).take(pa.array(frame.all_rows())).to_pylist()
    return found


def row_numbers(frame: CachedTable, positions: Any) -> list[int]:
    """The place of each position among the rows, -1 for -1."""
    rows = frame.all_rows()
    places = np.searchsorted(rows, positions)
    found = [-1 if position < 0 else int(place) for position, place in zip(positions, places, strict=True)]
    assert all(place < 0 or rows[place] == at for place, at in zip(found, positions, strict=True))
    return found


def topology(snapshot: Snapshot, cache: Cache, edge_type: str = "Knows") -> Topology:
    edge = snapshot.catalog.schema.edge(edge_type)
    assert edge is not None
    edges, source, target = (
        CachedTable(snapshot, key, cache)
        for key in (f"edge:{edge.name}", f"node:{edge.source}", f"node:{edge.target}")
    )
    return Topology(edge, edges, source, target, cache)


def check_adjacency(snapshot: Snapshot, cache: Cache, edge_type: str = "Knows") -> None:
    """The adjacency through a cache is the one built from what is in storage."""
    found = topology(snapshot, cache, edge_type)
    where = {id_: place for place, id_ in enumerate(stored(snapshot, found.source.layout.key, "id"))}
    other = {id_: place for place, id_ in enumerate(stored(snapshot, found.target.layout.key, "id"))}
    near = np.array([where[id_] for id_ in stored(snapshot, found.key, "src")], np.int32)
    far = np.array([other[id_] for id_ in stored(snapshot, found.key, "dst")], np.int32)
    assert neighbours(found, "out") == built(near, far, len(where), len(other))
    assert neighbours(found, "in") == built(far, near, len(other), len(where))
    if found.source.layout.key == found.target.layout.key:
        loops = near == far
        edges = np.arange(len(near))
        sources, targets = np.concatenate([near, far[~loops]]), np.concatenate([far, near[~loops]])
        both = np.concatenate([edges, edges[~loops]])
        assert neighbours(found, "both") == built(sources, targets, len(where), len(other), both)


def neighbours(found: Topology, direction: Direction) -> list[Any]:
    """What the kernels say of all nodes, by the places of nodes and edges among the rows of their tables."""
    near, far = (found.target, found.source) if direction == "in" else (found.source, found.target)
    # A read from all nodes would fold the delta first.
    view = found.neighbourhood(direction, near.all_rows()[:0], 1, "csr")
    frontier = view.to_local(near.all_rows())
    rows, targets, edges = expand_edges(view.adjacency, frontier)
    targets = view.node_positions(targets)
    order = view.storage_order(rows, targets)
    if order is not None:
        rows, targets, edges = rows[order], targets[order], edges[order]
    counts = [degrees(view.adjacency, frontier, unique=unique).tolist() for unique in (True, False)]
    unique_rows, unique_targets = expand_unique(view.adjacency, frontier)
    unique_targets = view.node_positions(unique_targets)
    pairs = sorted(zip(unique_rows.tolist(), row_numbers(far, unique_targets), strict=True))
    return [rows.tolist(), row_numbers(far, targets), row_numbers(found.edges, edges), counts, pairs]


def built(near: Any, far: Any, n_near: int, n_far: int, edges: Any = None) -> list[Any]:
    """The same from an adjacency of its own."""
    adjacency = Adjacency.build(near, far, n_near, n_far, edges)
    frontier = np.arange(n_near)
    rows, targets, numbers = expand_edges(adjacency, frontier)
    counts = [degrees(adjacency, frontier, unique=unique).tolist() for unique in (True, False)]
    pairs = sorted(zip(*(item.tolist() for item in expand_unique(adjacency, frontier)), strict=True))
    return [rows.tolist(), targets.tolist(), numbers.tolist(), counts, pairs]
