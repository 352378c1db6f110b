"""Incremental reads by a growing column: the rows between the value of the last run and the greatest value now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from omnigraph.errors import InvalidInput
from omnigraph.lang.suggestions import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MOMENT = "timestamp"
_TIMES = (_MOMENT, "timestamp_ntz", "date")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Watermark:
    """A value of a column as text, and its Spark type. A moment is in UTC, as the text of a session's time zone
    would be another moment in another session, and ambiguous when clocks are set back.
    """

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
    kind = item.dataType.simpleString()
    greatest = F.max(F.col(f"`{item.name}`"))
    shown = F.unix_micros(greatest) if kind == _MOMENT else greatest.cast("string")
    row = frame.agg(shown.alias("high")).first()
    value = None if row is None else row["high"]
    if value is None:
        return None
    return Watermark(_moment_text(value) if kind == _MOMENT else value, kind)


def _moment_text(micros: int) -> str:
    """Return a moment as text.

    >>> _moment_text(1_500_000)
    '1970-01-01 00:00:01.500000Z'
    """
    moment = _EPOCH + timedelta(microseconds=micros)
    return f"{moment.replace(tzinfo=None)}Z"


def rows_between(
    frame: DataFrame, column: str, low: Watermark | None, high: Watermark, lag: timedelta | int | None
) -> DataFrame:
    """Return the rows after `low`, or from `lag` before it, up to `high`. Rows without a value are left out.

    A database may store more digits of a time than the microseconds of Spark. A time therefore stands for its whole
    microsecond, so that the greatest row is read, and read once.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    name = F.col(f"`{find_column(frame, column).name}`")
    is_time = high.type in _TIMES and high.type != "date"
    selected = frame.where(name < _next(high) if is_time else name <= _literal(high))
    if low is None:
        return selected
    if lag:
        return selected.where(name >= _before(low, lag))
    return selected.where(name >= _next(low) if is_time else name > _literal(low))


def _next(mark: Watermark) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    return _literal(mark) + F.expr("INTERVAL '0.000001' SECOND")


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
