"""The records of a load in memory that a quarantine leaves out because of `@card`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.schema import EdgeType
from omnigraph.lang.types import STRING
from omnigraph.rules.delta import TableDelta
from omnigraph.rules.set_rules import cardinality_violation, comparable
from omnigraph.rules.violations import Violation


def cardinality_offenders(
    edge: EdgeType,
    delta: TableDelta,
    replaced: pa.Table | None,
    sources: pa.Array,
    counts: np.ndarray[Any, Any],
) -> Iterator[Violation]:
    """Yield a violation, with its position, for each record to leave out.

    `counts` has the number of edges of each of the `sources`, `replaced` the committed rows that a merge replaces.
    Of too many edges the first ones stay, those that replace an edge of the source before all others. Of too few
    edges none stays, and an edge that would move away from the source stays there. The rows are in input order, or
    in the order of their ids.
    """
    if not len(sources):
        return
    least, most = edge.cardinality.min, edge.cardinality.max
    source = _index(comparable(delta.rows["src"], STRING), sources)
    before = np.full(len(source), -1, np.int64)
    if replaced is not None and replaced.num_rows:
        at = _index(comparable(delta.rows["id"], STRING), replaced["id"].combine_chunks())
        known = at >= 0
        before[known] = _index(comparable(replaced["src"], STRING), sources)[at[known]]
    few = counts < least
    for of_record in (source, np.where(before == source, -1, before)):
        for position in np.flatnonzero((of_record >= 0) & few[of_record]).tolist():
            yield _violation(edge, delta, sources, counts, int(of_record[position]), position, "min", least)
    if most is not None:
        order = np.arange(len(source))
        if not delta.in_input_order:
            order[pc.sort_indices(delta.rows["id"]).to_numpy()] = np.arange(len(source))
        for position in _excess(source, before, counts, most, order).tolist():
            yield _violation(edge, delta, sources, counts, int(source[position]), position, "max", most)


def _excess(
    source: np.ndarray[Any, Any],
    before: np.ndarray[Any, Any],
    counts: np.ndarray[Any, Any],
    most: int,
    order_of: np.ndarray[Any, Any],
) -> np.ndarray[Any, Any]:
    """Return the last records of each source with more edges than `most`."""
    many = np.flatnonzero((source >= 0) & (counts > most)[source])
    if not len(many):
        return many
    of_record = source[many]
    order = np.lexsort((order_of[many], before[many] != of_record, of_record))
    many, of_record = many[order], of_record[order]
    starts = np.flatnonzero(np.diff(of_record, prepend=-1))
    lengths = np.diff(starts, append=len(many))
    rank = np.arange(len(many)) - np.repeat(starts, lengths) + 1
    kept = counts[of_record] - np.repeat(lengths, lengths)
    excess: np.ndarray[Any, Any] = many[kept + rank > most]
    return excess


def _violation(
    edge: EdgeType,
    delta: TableDelta,
    sources: pa.Array,
    counts: np.ndarray[Any, Any],
    source: int,
    position: int,
    side: str,
    bound: int,
) -> Violation:
    name = sources[source].as_py()
    found = cardinality_violation(delta.table.key, edge.name, name, int(counts[source]), side, bound)
    return replace(found, position=position)


def _index(values: pa.ChunkedArray, sources: pa.Array) -> np.ndarray[Any, Any]:
    """Return the index of each value among the sources, -1 for other values."""
    found = pc.index_in(values, value_set=sources).fill_null(-1)
    return np.concatenate([np.zeros(0, np.int64), *(chunk.to_numpy() for chunk in found.chunks)]).astype(
        np.int64
    )
