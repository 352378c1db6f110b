"""The result of a backup, restore or clone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Operation: TypeAlias = Literal["backup", "restore", "clone"]
# `quick` checks the sizes of the copied files. `full` also reads them back and compares them with recorded digests,
# and verifies the whole target afterwards.
Verification: TypeAlias = Literal["quick", "full"]


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file of the source that is missing or damaged. The target lacks it. `file` is relative to the graph."""

    file: str
    problem: str


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The result of a backup, restore or clone.

    `commits` is the number of commits in the target, and `commits_added` how many of them are new there. `heads`
    has the head of each branch. `published` is false if the target was up to date. `since` is the commit from which
    on a backup has data, or None if it has all data. `verified` is ``sizes``, or ``digests`` if the files of the
    target were read back. `damaged` lists the files that ``skip_damaged`` left out. `ok` is true if there are none.
    """

    operation: Operation
    source: str
    target: str
    graph_id: str
    heads: Mapping[str, str]
    commits: int
    commits_added: int
    files_copied: int
    files_skipped: int
    bytes_copied: int
    bytes_skipped: int
    since: str | None = None
    published: bool = True
    verified: Literal["sizes", "digests"] = "sizes"
    warnings: tuple[str, ...] = ()
    damaged: tuple[SkippedFile, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the target has everything that was to be copied."""
        return not self.damaged

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        values = {name: getattr(self, name) for name in self.__slots__}
        damaged = [{"file": item.file, "problem": item.problem} for item in self.damaged]
        return {**values, "heads": dict(self.heads), "warnings": list(self.warnings), "damaged": damaged}
