"""The journal of a client: each request is recorded before it is sent, and again with its response."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

# Additional statuses: the connection broke after the request was sent, or could not be established.
UNANSWERED, UNSENT = 0, -1


@dataclass(frozen=True)
class Entry:
    """One request and its outcome. `seen` are the commits that the response named: branch and id."""

    client: int
    number: int
    op: str
    what: Mapping[str, Any] = field(default_factory=dict)
    status: int = UNANSWERED
    ms: float = 0.0
    commit: str | None = None
    seen: tuple[tuple[str, str], ...] = ()
    fed: tuple[str, ...] = ()
    text: str = ""

    @property
    def is_done(self) -> bool:
        """Whether it was acknowledged."""
        return self.status == 200

    @property
    def is_open(self) -> bool:
        """Whether its outcome is unknown."""
        return self.status == UNANSWERED


class Journal:
    """The append-only journal file of one client."""

    def __init__(self, folder: Path, client: int) -> None:
        self._file = (folder / f"client-{client}.ndjson").open("a", encoding="utf-8")
        self._next = 0

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def begin(self, op: str, what: Mapping[str, Any]) -> int:
        """Record a request before it is sent, and return its number."""
        self._next += 1
        self._write({"number": self._next, "op": op, "what": what})
        return self._next

    def end(self, number: int, **outcome: Any) -> None:
        """Record the outcome of a request."""
        self._write({"number": number, **outcome})

    def record_violation(self, text: str) -> None:
        """Record a response that violates an invariant."""
        self._write({"wrong": text})

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class Story:
    """The contents of the journal of one client: its requests in order, and the violations it recorded."""

    client: int
    entries: tuple[Entry, ...]
    wrong: tuple[str, ...]


def read_stories(folder: Path) -> list[Story]:
    """Read all journals of a folder. A request without a recorded outcome has no response."""
    return [_read(path) for path in sorted(folder.glob("client-*.ndjson"))]


def _read(path: Path) -> Story:
    client = int(path.stem.partition("-")[2])
    requests: dict[int, dict[str, Any]] = {}
    wrong: list[str] = []
    for line in _lines(path):
        if "wrong" in line:
            wrong.append(f"client {client}: {line['wrong']}")
        else:
            requests.setdefault(line["number"], {"client": client}).update(line)
    return Story(client, tuple(_entry(item) for item in requests.values()), tuple(wrong))


def _entry(line: dict[str, Any]) -> Entry:
    seen = tuple((branch, commit) for branch, commit in line.pop("seen", ()))
    return Entry(seen=seen, fed=tuple(line.pop("fed", ())), **line)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
