"""Select the rows of one table by predicates on these rows alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from omnigraph.catalog.keys import TypeKey
from omnigraph.engine.arrow_expressions import matches
from omnigraph.engine.key_predicates import specified_id, specified_values
from omnigraph.engine.memory.cached_table import NO_ROWS, CachedTable, Ordinals
from omnigraph.engine.pushdown import push_down
from omnigraph.lang import ir
from omnigraph.read.column_sources import RowsSource, TableSource
from omnigraph.read.read_session import ReadSession, conjunction
from omnigraph.read.references import has_search, properties_of


def select_rows(session: ReadSession, table: CachedTable, where: Sequence[ir.Predicate]) -> Ordinals:
    """Return the positions of the rows that satisfy all predicates, ascending."""
    if not where:
        return table.all_rows()
    predicate = conjunction(where)
    found = _look_up_key(session, table, where)
    if found is not None:
        return found if len(where) == 1 else _recheck(session, table, predicate, found)
    if _is_in_memory(table, predicate):
        found_rows: npt.NDArray[np.bool_] = matches(
            predicate, TableSource(session, table), session.bindings
        ).to_numpy(zero_copy_only=False)
        live = table.numbers.live_mask()
        return np.flatnonzero(found_rows if live is None else found_rows & live)
    pushed = push_down(predicate, lambda ref: physical_name(table, ref), session.bindings)
    if pushed.sql is None:
        return _recheck(session, table, predicate, table.all_rows())
    found, _ = table.find_rows(pushed.sql)
    return found if pushed.exact else _recheck(session, table, predicate, found)


def satisfies(
    session: ReadSession, table: CachedTable, where: Sequence[ir.Predicate], ordinals: Ordinals
) -> npt.NDArray[np.bool_]:
    """Return which of the given rows, which may repeat, satisfy all predicates."""
    predicate = conjunction(where)
    if len(ordinals) > table.num_rows and _is_in_memory(table, predicate):
        mask = matches(predicate, TableSource(session, table), session.bindings)
        of_table: npt.NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
        return of_table[ordinals]
    mask = matches(predicate, RowsSource(session, table, ordinals), session.bindings)
    of_rows: npt.NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
    return of_rows


def _recheck(
    session: ReadSession, table: CachedTable, predicate: ir.Predicate, candidates: Ordinals
) -> Ordinals:
    if not len(candidates):
        return candidates
    mask = matches(predicate, RowsSource(session, table, candidates), session.bindings)
    kept: Ordinals = candidates[mask.to_numpy(zero_copy_only=False)]
    return kept


def _look_up_key(session: ReadSession, table: CachedTable, where: Sequence[ir.Predicate]) -> Ordinals | None:
    """Return the row with the key that the predicates specify, or None if they do not specify a key."""
    found = specified_key(session, table, where)
    if found is None:
        return None
    id_ = specified_id(*found)
    position = -1 if id_ is None else table.position(id_)
    return NO_ROWS if position < 0 else np.array([position], np.int64)


def specified_key(
    session: ReadSession, table: CachedTable, where: Sequence[ir.Predicate]
) -> tuple[TypeKey, dict[str, ir.Value]] | None:
    """Return the key of the table's nodes and its values, if equality predicates specify all of its properties."""
    values = specified_values(table.key, where, session.bindings)
    return None if table.key is None or values is None else (table.key, values)


def _is_in_memory(table: CachedTable, predicate: ir.Predicate) -> bool:
    """Return whether all columns of the predicate are cached; caches those that should be."""
    if has_search(predicate):
        return True
    return all(table.cached_column(ref.property) is not None for ref in properties_of(predicate))


def physical_name(table: CachedTable, ref: ir.PropertyRef | ir.ColumnRef) -> str | None:
    """Return the name in storage of a referenced column; None if the table does not have it."""
    return table.layout.physical(ref.property) if isinstance(ref, ir.PropertyRef) else None
