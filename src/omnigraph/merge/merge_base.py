"""The three states of a merge: the merge base and the two sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.schema_merge.schema_conflicts import UndecidedAspect
from omnigraph.engine.memory.row_lookups import CachedIds
from omnigraph.graph.damage import CommitState
from omnigraph.graph.snapshot import Snapshot
from omnigraph.merge.overlay import Overlay

MergeSide: TypeAlias = Literal["ours", "theirs"]
StateName: TypeAlias = Literal["base", "ours", "theirs"]

SIDES: Final[tuple[MergeSide, ...]] = ("ours", "theirs")


@dataclass(frozen=True)
class VirtualTable:
    """A table of a virtual merge base: a stored version and the rows in which it differs.

    `columns` are the physical columns of the stored version by those of the virtual merge base.
    """

    columns: Mapping[str, str]
    overlay: Overlay | None = None


@dataclass(frozen=True)
class BaseState:
    """A merge base: the state of a commit, or a virtual one that was merged from several.

    A virtual merge base has the versions and the schema of `snapshot`, whose commit is the newest of those merged.
    `tables` has its tables by id where they are not just stored versions. `undecided` are the aspects of the schema
    on which the merged commits disagree, and `sources` all commits that were compared.
    """

    snapshot: Snapshot
    tables: Mapping[str, VirtualTable] = field(default_factory=dict)
    undecided: frozenset[UndecidedAspect] = frozenset()
    sources: tuple[Snapshot, ...] = ()

    @property
    def catalog(self) -> Catalog:
        """The schema."""
        return self.snapshot.catalog

    @property
    def is_virtual(self) -> bool:
        """Whether the state was merged from several commits."""
        return bool(self.sources)


@dataclass(frozen=True)
class MergeStates:
    """The merge base and the heads of both sides. `ours` is the branch that is merged into.

    `virtual` has the states that were merged from several commits. Theirs is one of them only when three or more
    merge bases are merged. `cache` has rows of small fragments and the fragments of versions.
    """

    base: Snapshot
    ours: Snapshot
    theirs: Snapshot
    virtual: Mapping[StateName, BaseState] = field(default_factory=dict)
    cache: CachedIds | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of_bases(
        cls, base: BaseState, ours: Snapshot, theirs: BaseState, cache: CachedIds | None = None
    ) -> MergeStates:
        """Return the states of a merge whose merge base, or whose other side, may be virtual."""
        named: dict[StateName, BaseState] = {"base": base, "theirs": theirs}
        virtual = {name: state for name, state in named.items() if state.is_virtual}
        return cls(base.snapshot, ours, theirs.snapshot, virtual, cache)

    def undecided(self, name: StateName) -> frozenset[UndecidedAspect]:
        """Return the aspects of the schema of a state on which several merge bases disagree."""
        state = self.virtual.get(name)
        return frozenset() if state is None else state.undecided

    def virtual_table(self, name: StateName, table: Table) -> VirtualTable | None:
        """Return a table of a virtual state; None where it is a stored version."""
        state = self.virtual.get(name)
        return None if state is None else state.tables.get(str(table.id))

    @property
    def commits(self) -> list[CommitState]:
        """The commits that a merge of these states reads."""
        commits = [state.state for state in (self.base, self.ours, self.theirs)]
        return commits + [item.state for state in self.virtual.values() for item in state.sources]

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
