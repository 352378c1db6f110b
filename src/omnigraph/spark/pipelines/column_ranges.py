"""Incremental reads by a growing column: the rows between the value of the last run and the greatest value now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from omnigraph.errors import InvalidInput
from omnigraph.lang.suggestions import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True)
class Watermark:
    """A value of a column as text, and its Spark type."""

    value: str
    type: str


def find_column(frame: DataFrame, name: str) -> Any:
    """Return the field of a column. Names are compared without case, as Spark does."""
    for item in frame.schema.fields:
        if item.name.lower() == name.lower():
            return item
    known = frame.schema.fieldNames()
    raise InvalidInput(f"the source has no column '{name}'{did_you_mean(name, known)}")


def greatest_value(frame: DataFrame, column: str) -> Watermark | None:
    """Return the greatest value of a column, None if there is none. One row travels to the driver."""
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    item = find_column(frame, column)
    row = frame.agg(F.max(F.col(f"`{item.name}`")).cast("string").alias("high")).first()
    value = None if row is None else row["high"]
    return None if value is None else Watermark(value, item.dataType.simpleString())


def rows_between(
    frame: DataFrame, column: str, low: Watermark | None, high: Watermark, lag: timedelta | int | None
) -> DataFrame:
    """Return the rows after `low`, or from `lag` before it, up to `high`. Rows without a value are left out."""
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    name = F.col(f"`{find_column(frame, column).name}`")
    selected = frame.where(name <= _literal(high))
    if low is None:
        return selected
    if not lag:
        return selected.where(name > _literal(low))
    return selected.where(name >= _before(low, lag))


def _literal(mark: Watermark) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    return F.lit(mark.value).cast(mark.type)


def _before(mark: Watermark, lag: timedelta | int) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    if isinstance(lag, int):
        if mark.type in _TIMES:
            return _before(mark, timedelta(seconds=lag))
        return _literal(mark) - F.lit(lag)
    if mark.type not in _TIMES:
        raise InvalidInput(f"a lag of a column of type {mark.type} is a number", hint="write lag: 1000")
    if mark.type == "date":
        return F.date_sub(_literal(mark), -(-lag // timedelta(days=1)))
    return _literal(mark) - F.expr(f"INTERVAL '{int(lag.total_seconds())}' SECOND")
