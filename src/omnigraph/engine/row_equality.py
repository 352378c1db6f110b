"""Compare rows by value, to find writes that change nothing."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.diff.column_equality import differing


def has_same_rows(rows: pa.Table, others: pa.Table) -> bool:
    """Return whether two tables with unique ids have the same ids with equal values, in any order.

    The columns of `rows` are compared, as `differing` compares them.

    >>> one = pa.table({"id": ["a", "b"], "v": [1.0, None]})
    >>> has_same_rows(one, one.take([1, 0])), has_same_rows(one, one.slice(1))
    (True, False)
    """
    if rows.num_rows != others.num_rows:
        return False
    places = pc.index_in(rows["id"], value_set=others["id"].combine_chunks())
    if places.null_count:
        return False
    aligned = others.take(places)
    return not any(differing(rows[name], aligned[name]).any() for name in rows.column_names if name != "id")
