"""The server log: one JSON object per line.

It never contains tokens, bodies or query strings of URLs. The texts of slow queries are logged, without parameters.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

LOGGER = logging.getLogger("omnigraph.server")
# Members of every line.
_COMMON: dict[str, str] = {}
_LOGGER_NAMES = (LOGGER.name, "uvicorn.error")
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


def log_to_stderr() -> None:
    """Send the log of the server and of uvicorn to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in _LOGGER_NAMES:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False
