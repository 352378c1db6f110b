"""The options of a verification."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.engine.engine_choice import Engine


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What a verification covers. `branch` restricts it to one branch; `record` adds missing digests."""

    quick: bool = False
    all_commits: bool = False
    branch: str | None = None
    record: bool = False
    engine: Engine = "auto"
