"""Conversion of dates and datetimes between stored integers and ISO 8601 text."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from omnigraph.errors import InvalidInput
from omnigraph.lang.types import Scalar

EPOCH = date(1970, 1, 1)
EPOCH_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MICROSECOND = timedelta(microseconds=1)
MIN_MILLIS = (datetime.min.replace(tzinfo=UTC) - EPOCH_TIME) // _MILLISECOND
MAX_MILLIS = (datetime.max.replace(tzinfo=UTC) - EPOCH_TIME) // _MILLISECOND
# Stored values of the years 1 to 9999. Other years have no ISO form and no Python value.
TEMPORAL_RANGES = {
    Scalar.DATE: ((date.min - EPOCH).days, (date.max - EPOCH).days),
    Scalar.DATETIME: (MIN_MILLIS, MAX_MILLIS),
}

_DATE_LENGTH = len("YYYY-MM-DD")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})\Z", re.ASCII)
_DATETIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})"
    r"(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(Z|z|[+-]\d{2}(?::?\d{2})?)?)?\Z",
    re.ASCII,
)


def epoch_micros(moment: datetime) -> int:
    """Return a time in microseconds since the epoch.

    >>> epoch_micros(datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC))
    1000005
    """
    return (moment - EPOCH_TIME) // _MICROSECOND


def parse_date(text: str) -> int | None:
    """Parse ``YYYY-MM-DD`` to days since the epoch; return None when the text is not a date.

    >>> parse_date("1970-01-31"), parse_date("1969-12-31"), parse_date("2023-02-29")
    (30, -1, None)
    """
    return _days_of_text(text) if len(text) == _DATE_LENGTH else None


# The dates of a column repeat from block to block of a file. 16,384 days are 44 years.
@lru_cache(maxsize=16_384)
def _days_of_text(text: str) -> int | None:
    match = _DATE.match(text)
    if match is None:
        return None
    try:
        return days_of(date(int(match[1]), int(match[2]), int(match[3])))
    except ValueError:
        return None


def parse_datetime(text: str) -> int | None:
    """Parse an ISO 8601 datetime to milliseconds since the epoch; return None when the text is not one.

    Without an offset the time is UTC. A date without a time is midnight. A datetime that its offset moves out of
    the years 1 to 9999 is rejected, because it has no ISO form in UTC. Digits below a millisecond other than 0
    raise `InvalidInput`, because they cannot be stored.

    >>> parse_datetime("1970-01-01T00:00:01.5Z"), parse_datetime("1970-01-01T01:00+01:00")
    (1500, 0)
    """
    millis = floor_datetime(text)
    match = _DATETIME.match(text)
    if millis is not None and match is not None and (match[5] or "")[3:].strip("0"):
        raise too_precise(text)
    return millis


def floor_datetime(text: str) -> int | None:
    """Parse an ISO 8601 datetime as `parse_datetime` does, but truncate digits below a millisecond.

    >>> floor_datetime("1970-01-01T00:00:01.500999Z")
    1500
    """
    match = _DATETIME.match(text)
    if match is None:
        return None
    day = parse_date(match[1])
    if day is None:
        return None
    hour, minute, second = (int(match[i] or 0) for i in (2, 3, 4))
    if hour > 23 or minute > 59 or second > 59:
        return None
    millis = int((match[5] or "0").ljust(3, "0")[:3])
    offset = _offset_minutes(match[6])
    if offset is None:
        return None
    total = day * 86_400_000 + ((hour * 60 + minute - offset) * 60 + second) * 1000 + millis
    return total if MIN_MILLIS <= total <= MAX_MILLIS else None


def parse_moment(text: str) -> datetime | None:
    """Parse an ISO 8601 datetime to a UTC `datetime` with microseconds; return None when the text is not one.

    >>> parse_moment("1970-01-01T01:00:01.500002+01:00").isoformat()
    '1970-01-01T00:00:01.500002+00:00'
    """
    millis, match = floor_datetime(text), _DATETIME.match(text)
    if millis is None or match is None:
        return None
    micros = (match[5] or "").ljust(6, "0")[3:6]
    return EPOCH_TIME + timedelta(milliseconds=millis, microseconds=int(micros))


def _offset_minutes(text: str | None) -> int | None:
    if text is None or text in "Zz":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        return None
    total = hours * 60 + minutes
    return -total if text[0] == "-" else total


def days_of(day: date) -> int:
    """Return the days since the epoch of a date."""
    return (day - EPOCH).days


def too_precise(text: str) -> InvalidInput:
    """Return the error for a datetime with digits below a millisecond."""
    return InvalidInput(
        f'DateTime has milliseconds, got "{text}"; round it to milliseconds',
        hint="a cast such as `truncate:DateTime` in the mapping of a load truncates the digits",
    )


def millis_of(moment: datetime) -> int:
    """Return the milliseconds since the epoch of a datetime; a naive one is UTC.

    Raises `InvalidInput` for a datetime with microseconds, or nanoseconds of pandas, that are no milliseconds.
    """
    if moment.microsecond % 1000 or getattr(moment, "nanosecond", 0):
        raise too_precise(moment.isoformat())
    return floor_millis(moment)


def floor_millis(moment: datetime) -> int:
    """Return the milliseconds since the epoch of a datetime without its digits below a millisecond."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - EPOCH_TIME) // _MILLISECOND


def last_micros_of(moment: datetime) -> int:
    """Return the last microsecond since the epoch that a datetime covers; a naive one is UTC.

    A datetime with microseconds is exact. Without them it covers its whole millisecond, because most callers
    have timestamps with milliseconds only.

    >>> last_micros_of(datetime(1970, 1, 1, 0, 0, 0, 1_500)), last_micros_of(datetime(1970, 1, 1, 0, 0, 0, 2_000))
    (1500, 2999)
    """
    micros = moment.microsecond % 1000
    return floor_millis(moment) * 1000 + (micros or 999)


def format_date(days: int) -> str:
    """Format days since the epoch as ``YYYY-MM-DD``; outside the years 1 to 9999 return the number itself.

    >>> format_date(30)
    '1970-01-31'
    """
    try:
        return (EPOCH + timedelta(days=days)).isoformat()
    except OverflowError:
        return str(days)


def format_datetime(millis: int) -> str:
    """Format milliseconds since the epoch as ``YYYY-MM-DDTHH:MM:SS.mmmZ``.

    Outside the years 1 to 9999 return the number itself.

    >>> format_datetime(1500)
    '1970-01-01T00:00:01.500Z'
    """
    try:
        moment = EPOCH_TIME + timedelta(milliseconds=millis)
    except OverflowError:
        return str(millis)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
