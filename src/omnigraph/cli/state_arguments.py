"""Parse and format points in history: commit ids and times."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph


def read_moment(text: str | None) -> str | datetime | None:
    """Parse the value of ``--at``: a time if it can be parsed as one, else a commit id.

    >>> read_moment("2026-05-04T12:00+02:00").isoformat()
    '2026-05-04T10:00:00+00:00'
    >>> read_moment("01JBZ8Q0000000000000000000")
    '01JBZ8Q0000000000000000000'
    """
    from omnigraph.lang.temporal import parse_moment

    moment = None if text is None else parse_moment(text)
    return text if moment is None else moment


def read_compared(graph: Graph, text: str) -> str | datetime:
    """Parse a state to compare: a time if it can be parsed as one and no branch has this name, else a name."""
    moment = read_moment(text)
    return text if moment is None or (moment != text and text.strip() in graph.branches.list()) else moment


def format_moment(micros: int) -> str:
    """Format microseconds since the epoch as an ISO 8601 time in UTC.

    >>> format_moment(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    from omnigraph.lang.temporal import EPOCH_TIME

    moment = EPOCH_TIME + timedelta(microseconds=micros)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
