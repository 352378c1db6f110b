"""The three states of a merge: the merge base and the two sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from omnigraph.graph.snapshot import Snapshot

MergeSide: TypeAlias = Literal["ours", "theirs"]
StateName: TypeAlias = Literal["base", "ours", "theirs"]

SIDES: Final[tuple[MergeSide, ...]] = ("ours", "theirs")


@dataclass(frozen=True)
class MergeStates:
    """The merge base and the heads of both sides. `ours` is the branch that is merged into."""

    base: Snapshot
    ours: Snapshot
    theirs: Snapshot

    def of(self, name: StateName) -> Snapshot:
        """Return one of the states by name."""
        return {"base": self.base, "ours": self.ours, "theirs": self.theirs}[name]

    @property
    def is_up_to_date(self) -> bool:
        """Whether ours has every commit of theirs."""
        return self.base.commit_id == self.theirs.commit_id

    @property
    def is_fast_forward(self) -> bool:
        """Whether theirs has every commit of ours."""
        return self.base.commit_id == self.ours.commit_id


def other_side(side: MergeSide) -> MergeSide:
    """Return the opposite side."""
    return "ours" if side == "theirs" else "theirs"
