"""The record of a pipeline run: the state of its sources afterwards, and the input that it read.

The record is part of the run's commit. Its size is bounded: a file that was read takes 8 bytes as long as the
source lists it, and at most `MAX_LISTED` names of files are listed for each source.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from omnigraph.errors import InvalidInput

FORMAT: Final = 1
MAX_LISTED: Final = 100

# The state of one source, as JSON: what has been read.
SourceState: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class SourceLineage:
    """What a run read from one source: files, or a range of a column, of commits or of offsets."""

    kind: str
    files: Sequence[str] = ()
    file_count: int = 0
    start: str | None = None
    stop: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        body: dict[str, Any] = {"kind": self.kind}
        if self.kind == "files":
            body |= {"files": list(self.files), "file_count": self.file_count}
        else:
            body |= {"from": self.start, "to": self.stop}
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SourceLineage:
        """Parse the JSON form."""
        return cls(
            str(body["kind"]),
            tuple(body.get("files", ())),
            int(body.get("file_count", 0)),
            body.get("from"),
            body.get("to"),
        )


@dataclass(frozen=True)
class RunRecord:
    """A run: its id, the definition it ran, the state of every source after it, and what it read."""

    pipeline: str
    run_id: str
    started_at: str
    definition: str
    previous: str | None = None
    state: Mapping[str, SourceState] = field(default_factory=dict)
    sources: Mapping[str, SourceLineage] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the JSON text that the commit holds."""
        body = {
            "format": FORMAT,
            "pipeline": self.pipeline,
            "run_id": self.run_id,
            "started_at": self.started_at,
            "definition": self.definition,
            "previous": self.previous,
            "state": {name: dict(item) for name, item in sorted(self.state.items())},
            "sources": {name: item.to_json() for name, item in sorted(self.sources.items())},
        }
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> RunRecord:
        """Parse the text of a commit."""
        body = json.loads(text)
        if body["format"] != FORMAT:
            raise InvalidInput(
                f"the state of pipeline '{body['pipeline']}' has format {body['format']}, which is not supported",
                hint="update omnigraph",
            )
        return cls(
            body["pipeline"],
            body["run_id"],
            body["started_at"],
            body["definition"],
            body["previous"],
            body["state"],
            {name: SourceLineage.from_json(item) for name, item in body["sources"].items()},
        )


def encode_hashes(hashes: Collection[int]) -> str:
    """Return 64-bit hashes as text, 11 characters each.

    >>> sorted(decode_hashes(encode_hashes({5, 2**64 - 1})))
    [5, 18446744073709551615]
    """
    return base64.b64encode(np.array(sorted(hashes), dtype="<u8").tobytes()).decode("ascii")


def decode_hashes(text: str) -> frozenset[int]:
    """Return the hashes of a text."""
    return frozenset(np.frombuffer(base64.b64decode(text), dtype="<u8").tolist())
