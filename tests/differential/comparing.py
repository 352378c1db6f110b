"""Whether the rows that an engine gave are among the right answers, and if not, in which way they differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from omnigraph.lang import ir
from tests.differential.naive import JsonRow, NaiveResult


def explain_difference(query: ir.ReadQuery, right: NaiveResult, rows: Sequence[JsonRow]) -> str | None:
    """None when the rows are a right answer, else what is wrong with them.

    Columns, their order, the types of values and the number of rows must agree. Rows that tie may stand in any
    order, a limit may cut any of them off, and the items of a collected list may stand in any order.
    """
    collected = {item.name for item in query.outputs if _is_collected(item.expr)}
    expected = len(right.rows)
    if len(rows) != expected:
        return f"{len(rows)} rows instead of {expected}"
    names = list(
        dict.fromkeys(item.name if item.entity is None else item.entity.name for item in query.outputs)
    )
    for row in rows:
        if list(row) != names:
            return f"columns {list(row)} instead of {names}"
    start, given = right.skip, list(rows)
    for part in right.classes:
        # What `skip` leaves of the class, up to what there is after `limit`.
        left = max(0, len(part) - start)
        start = max(0, start - len(part))
        here, given = given[:left], given[left:]
        candidates = list(part)
        for row in here:
            same = next((item for item in candidates if _same_row(row, item, collected)), None)
            if same is None:
                return f"{row} is not right here; it could be one of {candidates[:5]}"
            candidates.remove(same)
    return None


def _is_collected(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Aggregate) and expr.fn == "collect"


def _same_row(row: JsonRow, other: JsonRow, collected: set[str]) -> bool:
    return all(
        same_value(_in_some_order(value), _in_some_order(other[name]))
        if name in collected
        else same_value(value, other[name])
        for name, value in row.items()
    )


def _in_some_order(items: list[Any]) -> list[Any]:
    # Numbers before texts: a float list may hold "NaN".
    return sorted(items, key=lambda item: (isinstance(item, str), item))


def same_value(left: Any, right: Any) -> bool:
    """Whether two JSON values are of one type and equal; floats may differ by the order of additions.

    >>> same_value(1, 1.0), same_value(True, 1), same_value([0.0], [-0.0]), same_value(0.1 + 0.2, 0.3)
    (False, False, True, True)
    """
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        pairs = zip(left, right, strict=False)
        return len(left) == len(right) and all(same_value(one, other) for one, other in pairs)
    if isinstance(left, float):
        return math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-12)
    return bool(left == right)
