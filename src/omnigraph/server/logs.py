"""The server log: one JSON object per line.

It never contains tokens, bodies or query strings of URLs. The texts of slow queries are logged, without parameters.
The decisions of policies are part of it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, get_args

from omnigraph.errors import InvalidInput
from omnigraph.policy.decision_log import LOGGER as DECISIONS

LOGGER = logging.getLogger("omnigraph.server")
# Members of every line.
_COMMON: dict[str, str] = {}
_LOGGER_NAMES = (LOGGER.name, "uvicorn.error", DECISIONS.name)
# The id of the request that is being handled, for lines that are written while it is.
REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
# The decisions of policies that are logged.
LoggedDecisions: TypeAlias = Literal["all", "denied", "off"]
DECISIONS_VARIABLE = "OMNIGRAPH_DECISION_LOG"
# `json.dumps` would create an encoder for every line.
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON, with the members of ``extra={"fields": {...}}``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        members = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **_COMMON,
            **getattr(record, "fields", {}),
        }
        if "request_id" not in members and (request_id := REQUEST_ID.get()) is not None:
            members["request_id"] = request_id
        if record.exc_info:
            members["trace"] = self.formatException(record.exc_info)
        return _ENCODER.encode(members)


def log_request(fields: Mapping[str, Any]) -> None:
    """Write a line of the access log. The place in the source that logs it is not looked up."""
    if LOGGER.isEnabledFor(logging.INFO):
        record = logging.LogRecord(LOGGER.name, logging.INFO, __file__, 0, "request", None, None)
        record.fields = fields
        LOGGER.handle(record)


def name_process(name: str) -> None:
    """Add the name of this process to every line of its log."""
    _COMMON["process"] = name


def read_logged_decisions(environment: Mapping[str, str]) -> LoggedDecisions:
    """Return which decisions of policies are logged. Raises `InvalidInput`.

    >>> read_logged_decisions({}), read_logged_decisions({"OMNIGRAPH_DECISION_LOG": "denied"})
    ('all', 'denied')
    """
    text = environment.get(DECISIONS_VARIABLE, "").strip() or "all"
    for known in get_args(LoggedDecisions):
        if text == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(f"{DECISIONS_VARIABLE} must be all, denied or off, got {text!r}")


def log_to_stderr(decisions: LoggedDecisions = "all") -> None:
    """Send the log of the server and of uvicorn, and the decisions of policies, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in _LOGGER_NAMES:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False
    DECISIONS.disabled = decisions == "off"
    DECISIONS.filters = [_is_denial] if decisions == "denied" else []


def _is_denial(record: logging.LogRecord) -> bool:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return not fields.get("allowed")
