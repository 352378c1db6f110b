"""The rejected records of one load, on disk until their target is written.

Readers reject records once. The rules between rows reject records for one state of the branch, and a load that is
prepared again begins with the rejects of its readers.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import IO, Any

from omnigraph.sources.rejects import INVALID_RECORD, Reject
from omnigraph.sources.valid_json import valid_json

_MEMORY_BYTES = 1 << 20
# The first rejected records, which the error of a refused load lists.
MAX_LISTED = 100


class RejectLog:
    """Rejected records in the order in which they were found, and their numbers by type and rule.

    The ids of rejected nodes are in memory, because the rejects of their edges name them.
    """

    def __init__(self) -> None:
        self._read = _Lines()
        self._between = _Lines()

    def __enter__(self) -> RejectLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._read.close()
        self._between.close()

    def add(self, reject: Reject) -> None:
        """Add a record that a reader or a row rule rejects."""
        self._read.add(reject.to_json())

    def add_line(self, line: Mapping[str, Any]) -> None:
        """Add a rejected record that is given in its JSON form."""
        self._read.add(line)

    def add_between(self, reject: Reject) -> None:
        """Add a record that a rule between rows rejects."""
        self._between.add(reject.to_json())

    def restart(self) -> None:
        """Forget the records that rules between rows rejected."""
        self._between.close()
        self._between = _Lines()

    @property
    def read_count(self) -> int:
        """The number of records that readers and row rules rejected."""
        return self._read.count

    @property
    def count(self) -> int:
        """The number of rejected records."""
        return self._read.count + self._between.count

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The number of rejected records by type and rule. The type of an unreadable record is empty."""
        counts: dict[str, dict[str, int]] = {}
        for (type_name, rule), number in sorted((self._read.counts + self._between.counts).items()):
            counts.setdefault(type_name, {})[rule] = number
        return counts

    def has_node(self, type_name: str, id_: str) -> bool:
        """Return whether a record of this node was rejected."""
        return any(id_ in lines.ids.get(type_name, ()) for lines in (self._read, self._between))

    def add_node(self, type_name: str, id_: str) -> None:
        """Add the id of a node whose record a rule between rows rejects, before the record itself is added."""
        self._between.ids.setdefault(type_name, set()).add(id_)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the records in their JSON form."""
        yield from self._read
        yield from self._between

    def first(self) -> list[dict[str, Any]]:
        """Return the first records, for an error."""
        return [line for line, _ in zip(self.lines(), range(MAX_LISTED), strict=False)]


class _Lines:
    """Rejected records as lines of JSON, in a temporary file if they are many."""

    def __init__(self) -> None:
        self.count = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self.ids: dict[str, set[str]] = {}
        self._file: IO[bytes] | None = None

    def add(self, reject: Mapping[str, Any]) -> None:
        if self._file is None:
            self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)  # noqa: SIM115 - closed by `close`
        self._file.write(reject_line(reject))
        self.count += 1
        type_name, id_ = reject.get("type"), reject.get("id")
        self.counts[type_name or "", reject.get("rule") or INVALID_RECORD] += 1
        if type_name is not None and id_ is not None:
            self.ids.setdefault(type_name, set()).add(id_)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._file is None:
            return
        self._file.seek(0)
        for line in self._file:
            yield json.loads(line)
        self._file.seek(0, 2)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def reject_line(reject: Mapping[str, Any]) -> bytes:
    """Return a rejected record as a line of strict JSON.

    >>> reject_line({"line": 1, "record": {"share": float("nan")}})
    b'{"line": 1, "record": {"share": "NaN"}}\\n'
    """
    text = json.dumps(valid_json(reject), ensure_ascii=False, allow_nan=False)
    # A lone surrogate is written as its JSON escape.
    return text.encode("utf-8", "backslashreplace") + b"\n"
