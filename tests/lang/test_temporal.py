"""Date and datetime conversion, compared with the standard library."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput
from omnigraph.lang.temporal import (
    EPOCH,
    EPOCH_TIME,
    MAX_MILLIS,
    MIN_MILLIS,
    days_of,
    floor_datetime,
    floor_millis,
    format_date,
    format_datetime,
    millis_of,
    parse_date,
    parse_datetime,
)

offsets = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(timezones=st.just(UTC)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)


@given(st.dates())
def test_date_to_days_round_trips(day: date) -> None:
    days = days_of(day)
    assert EPOCH + timedelta(days=days) == day
    assert format_date(days) == day.isoformat()
    assert parse_date(day.isoformat()) == days


@given(moments)
def test_datetime_to_milliseconds_round_trips(moment: datetime) -> None:
    millis = millis_of(moment)
    assert EPOCH_TIME + timedelta(milliseconds=millis) == moment
    text = format_datetime(millis)
    assert datetime.fromisoformat(text) == moment
    assert parse_datetime(text) == millis


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31), timezones=offsets))  # noqa: DTZ001
def test_datetime_with_offset_is_converted_to_utc(moment: datetime) -> None:
    rounded = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    assert parse_datetime(rounded.isoformat()) == millis_of(rounded)
    # Digits below a millisecond are truncated only on request, before the epoch too.
    floor = (moment - EPOCH_TIME) // timedelta(milliseconds=1)
    assert floor_datetime(moment.isoformat()) == floor_millis(moment) == floor
    if moment.microsecond % 1000:
        with pytest.raises(InvalidInput, match="round it to milliseconds"):
            parse_datetime(moment.isoformat())
        with pytest.raises(InvalidInput, match="round it to milliseconds"):
            millis_of(moment)


@given(st.integers(MIN_MILLIS, MAX_MILLIS))
def test_datetime_text_has_one_form(millis: int) -> None:
    text = format_datetime(millis)
    assert len(text) == len("2024-01-31T12:00:00.000Z")
    assert parse_datetime(text) == millis


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("1970-01-01", 0),
        ("1969-12-31", -1),
        ("2000-02-29", 11016),
        ("2024-02-29", 19782),
        ("0001-01-01", -719162),
        ("9999-12-31", 2932896),
    ],
)
def test_date_days_count_from_the_epoch(text: str, days: int) -> None:
    assert parse_date(text) == days
    assert format_date(days) == text


@pytest.mark.parametrize(
    "text",
    [
        "1900-02-29", "2023-02-29", "2024-02-30", "2024-13-01", "2024-00-01", "2024-01-00", "0000-01-01",
        "2024-1-1", "24-01-01", "20240101", "2024-01-01Z", " 2024-01-01", "2024-01-01\n", "-2024-01-01",
        "٢٠٢٤-٠١-٠١", "", "today",
    ],
)  # fmt: skip
def test_parse_date_of_invalid_text_is_refused(text: str) -> None:
    assert parse_date(text) is None
    assert parse_datetime(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "1970-01-01T00:00:01.5Z",
        "1970-01-01t00:00:01.5z",
        "1970-01-01 00:00:01.5",
        "1970-01-01T00:00:01,500",
        "1970-01-01T00:00:01.500000000Z",
        "1970-01-01T01:00:01.5+01:00",
        "1970-01-01T01:00:01.5+0100",
        "1970-01-01T01:00:01.5+01",
        "1969-12-31T18:30:01.5-05:30",
    ],
)
def test_parse_datetime_accepts_iso_forms(text: str) -> None:
    assert parse_datetime(text) == 1500


def test_parse_datetime_of_date_or_minutes_fills_in_zeros() -> None:
    assert parse_datetime("1970-01-02") == 86_400_000
    assert parse_datetime("1970-01-01T00:01") == 60_000


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-31T24:00:00Z", "2024-01-31T12:60:00Z", "2024-01-31T23:59:60Z", "2024-01-31T12Z",
        "2024-01-31T12:00:00+24:00", "2024-01-31T12:00:00+01:60", "2024-01-31T12:00:00 +01:00",
        "2024-01-31T", "2024-02-30T00:00:00Z", "2024-01-31T12:00:00.Z", "2024-01-31T12:00:00.1234567890Z",
        "2024-01-31Z", "T12:00:00Z",
    ],
)  # fmt: skip
def test_parse_datetime_of_invalid_text_is_refused(text: str) -> None:
    assert parse_datetime(text) is None


def test_parse_datetime_with_offset_out_of_range_is_refused() -> None:
    assert parse_datetime("0001-01-01T00:00:00Z") == MIN_MILLIS
    assert parse_datetime("9999-12-31T23:59:59.999Z") == MAX_MILLIS
    assert parse_datetime("0001-01-01T00:00:00+00:01") is None
    assert parse_datetime("9999-12-31T23:59:59.999-00:01") is None


@pytest.mark.parametrize("number", [2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_date_text_out_of_range_is_the_number_of_days(number: int) -> None:
    assert format_date(number) == str(number)


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), MAX_MILLIS + 1, MIN_MILLIS - 1])
def test_datetime_text_out_of_range_is_the_number_of_milliseconds(number: int) -> None:
    assert format_datetime(number) == str(number)
