"""Normalized results of calls, which are equal for two graphs with the same history."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph.api.results.changes import Diff
from omnigraph.catalog.migration.steps import MigrationPlan
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang.diagnostics import LanguageError

# Ids of commits and of entities without a key, and table versions, anywhere in a text.
_ID = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")
_VERSION = re.compile(r"(?<![\w.])\d{15,20}(?![\w.])")
# Members that always differ: durations, times, and opaque tokens that contain ids.
_OWN = frozenset({"seconds", "created_at", "authored_at", "version"})
_OPAQUE = frozenset({"cursor", "next_page_token", "resume_cursor"})


class Recorder:
    """Runs calls of a graph and records their normalized results and errors."""

    def __init__(self, folder: Path) -> None:
        self.record: list[tuple[str, Any]] = []
        self._folder = str(folder)
        self._names: dict[str, str] = {}

    def do(self, name: str, work: Callable[[], Any]) -> Any:
        """Run a call, record its outcome, and return its result, or None if it raises."""
        try:
            found = work()
        except og.OmnigraphError as error:
            self.record.append((name, self._refusal(error)))
            return None
        self.record.append((name, self.normal(found)))
        return found

    def normal(self, value: Any) -> Any:
        """Return a value with ids replaced by numbers in the order of their first occurrence."""
        match value:
            case str():
                text = value.replace(self._folder, "<folder>")
                return _VERSION.sub("<version>", _ID.sub(self._number, text))
            case int() | float() | bytes() | None:
                return value
            case date():
                return value.isoformat()
            case Enum():
                return value.name
            case pa.Table():
                return (str(value.schema), self.normal(value.to_pylist()))
            case og.Result():
                return ("Result", self.normal(value.to_json()), self.normal(value.table))
            case Snapshot():
                catalog = value.catalog.fingerprint
                return (
                    "Snapshot",
                    value.branch,
                    self.normal(value.commit_id),
                    catalog,
                    self.normal(value.types),
                )
            case Diff():
                return (
                    "Diff",
                    self.normal(value.commits),
                    value.branch,
                    [self.normal(item) for item in value],
                )
            case MigrationPlan():
                return ("Plan", value.supported, self.normal(value.to_json()))
            case Mapping():
                return {self.normal(key): self._member(key, item) for key, item in value.items()}
            case list() | tuple() | set() | frozenset() | Iterator():
                return [self.normal(item) for item in value]
        if is_dataclass(value) and not isinstance(value, type):
            compared = [item.name for item in fields(value) if item.compare]
            found = {name: self._member(name, getattr(value, name)) for name in compared}
            return (type(value).__name__, found)
        raise AssertionError(f"{type(value)} is no answer")

    def _member(self, name: Any, value: Any) -> Any:
        if name in _OWN:
            return "<own>"
        if name in _OPAQUE:
            return value is not None
        return self.normal(value)

    def _refusal(self, error: og.OmnigraphError) -> Any:
        said: dict[str, Any] = {
            "message": error.message,
            "details": error.details,
            "hint": error.hint,
            "text": str(error),
        }
        if isinstance(error, LanguageError):
            said["diagnostics"] = list(error.diagnostics)
        for name in ("violations", "conflicts"):
            if hasattr(error, name):
                said[name] = getattr(error, name)
        return ("raised", type(error).__name__, error.code, self.normal(said))

    def _number(self, found: re.Match[str]) -> str:
        return self._names.setdefault(found[0], f"<id {len(self._names) + 1}>")
