"""The rows of one table that satisfy predicates about nothing but themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.catalog.keys import NodeKey, derive_id
from omnigraph.engine.arrow_expressions import matches
from omnigraph.engine.exact_numbers import constant_value, fitting
from omnigraph.engine.memory.table_columns import Frame, Ordinals
from omnigraph.engine.pushdown import push_down
from omnigraph.lang import ir
from omnigraph.lang.types import FLOATS
from omnigraph.read.references import has_search, properties_of
from omnigraph.read.session import FrameRows, ReadSession, SomeRows, all_of, no_rows

_CONSTANT = (ir.Const, ir.ParamRef, ir.Now)


def select_rows(session: ReadSession, frame: Frame, where: Sequence[ir.Predicate]) -> Ordinals:
    """Positions of the rows on which every predicate is true, ascending."""
    if not where:
        return np.arange(frame.num_rows, dtype=np.int64)
    predicate = all_of(where)
    found = _by_key(session, frame, where)
    if found is not None:
        return found if len(where) == 1 else _check(session, frame, predicate, found)
    if _in_memory(frame, predicate):
        mask = matches(predicate, FrameRows(session, frame), session.bindings)
        return np.flatnonzero(mask.to_numpy(zero_copy_only=False))
    pushed = push_down(predicate, lambda ref: physical_name(frame, ref), session.bindings)
    if pushed.sql is None:
        return _check(session, frame, predicate, np.arange(frame.num_rows, dtype=np.int64))
    found, _ = frame.search(pushed.sql)
    return found if pushed.exact else _check(session, frame, predicate, found)


def satisfies(
    session: ReadSession, frame: Frame, where: Sequence[ir.Predicate], ordinals: Ordinals
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of the given rows, repeated or not, satisfy every predicate."""
    predicate = all_of(where)
    if len(ordinals) > frame.num_rows and _in_memory(frame, predicate):
        mask = matches(predicate, FrameRows(session, frame), session.bindings)
        whole: np.ndarray[tuple[int], np.dtype[np.bool_]] = mask.to_numpy(zero_copy_only=False)
        return whole[ordinals]
    mask = matches(predicate, SomeRows(session, frame, ordinals), session.bindings)
    some: np.ndarray[tuple[int], np.dtype[np.bool_]] = mask.to_numpy(zero_copy_only=False)
    return some


def _check(session: ReadSession, frame: Frame, predicate: ir.Predicate, found: Ordinals) -> Ordinals:
    if not len(found):
        return found
    mask = matches(predicate, SomeRows(session, frame, found), session.bindings)
    kept: Ordinals = found[mask.to_numpy(zero_copy_only=False)]
    return kept


def _by_key(session: ReadSession, frame: Frame, where: Sequence[ir.Predicate]) -> Ordinals | None:
    """The one row whose key the predicates spell out, or None when they do not."""
    found = spelled_key(session, frame, where)
    if found is None:
        return None
    key, values = found
    exact: dict[str, ir.Value] = {}
    for column in key.columns:
        value = values[column.name]
        assert not isinstance(value, tuple)
        fitted = None if value is None else fitting(value, column.type.scalar)
        if fitted is None:
            return no_rows()
        exact[column.name] = fitted
    place = frame.position(derive_id(key, exact))
    return no_rows() if place < 0 else np.array([place], np.int64)


def spelled_key(
    session: ReadSession, frame: Frame, where: Sequence[ir.Predicate]
) -> tuple[NodeKey, dict[str, ir.Value]] | None:
    """The key of the table's nodes and the values that equalities ask of it, when they ask for all of it."""
    key = frame.key
    # Two spellings of a float may be equal, and some floats cannot be a key at all.
    if key is None or any(column.type.scalar in FLOATS for column in key.columns):
        return None
    names = {column.name for column in key.columns}
    values: dict[str, ir.Value] = {}
    for item in where:
        if isinstance(item, ir.Compare) and item.op == "=":
            left, right = item.left, item.right
            if isinstance(left, _CONSTANT):
                left, right = right, left
            if isinstance(left, ir.PropertyRef) and isinstance(right, _CONSTANT) and left.property in names:
                values.setdefault(left.property, constant_value(right, session.bindings))
    return (key, values) if len(values) == len(names) else None


def _in_memory(frame: Frame, predicate: ir.Predicate) -> bool:
    """Whether all that the predicate looks at is in memory, or belongs there."""
    if has_search(predicate):
        return True
    return all(frame.held(ref.property) is not None for ref in properties_of(predicate))


def physical_name(frame: Frame, ref: ir.PropertyRef | ir.ColumnRef) -> str | None:
    """The name in storage of the column that a reference means; None when it is none of the table's."""
    return frame.table.physical(ref.property) if isinstance(ref, ir.PropertyRef) else None
