"""Merges and reverts as work on a transaction: which states meet, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from omnigraph.graph.progress import Progress
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.merge.conflicts import Resolutions
from omnigraph.merge.merge_states import Merge, MergedState, fast_forward, refuse
from omnigraph.merge.merge_tables import Sides
from omnigraph.merge.schema_merge import Reserve

Outcome: TypeAlias = Literal["already_up_to_date", "fast_forward", "merged"]


@dataclass(frozen=True)
class MergeOptions:
    """The options of a merge or a revert.

    `reserve` reserves identities for types and properties that the merged schema adds. A `dry` merge writes nothing
    and reports its conflicts instead of raising them.
    """

    resolutions: Resolutions
    reserve: Reserve
    progress: Progress | None = None
    dry: bool = False


@dataclass(frozen=True)
class MergeResult:
    """The effect of a merge, or with a dry run the effect it would have."""

    outcome: Outcome
    merged: MergedState = field(default_factory=MergedState)


_UP_TO_DATE: Prepared[MergeResult] = Prepared(None, MergeResult("already_up_to_date"))


def prepare_merge(
    transaction: Transaction,
    theirs: Snapshot,
    base_of: Callable[[Snapshot], Snapshot],
    options: MergeOptions,
) -> Prepared[MergeResult]:
    """Stage the merge of a state into the branch of a transaction.

    `base_of` returns the merge base of the branch and `theirs`. The commit has their commit as its second parent.
    A merge depends only on the two states, so a merge whose branch moved is prepared again. Conflicts raise
    `MergeConflicts`; a dry run returns them.
    """
    sides = Sides(base_of(transaction.base), transaction.base, theirs)
    if sides.base.commit_id == theirs.commit_id:
        return _UP_TO_DATE
    transaction.merged_parent = theirs.commit
    if sides.base.commit_id == sides.ours.commit_id:
        options.resolutions.check_asked()
        result = MergeResult("fast_forward", MergedState(taken=fast_forward(transaction, sides)))
    else:
        merge = Merge(sides, options.resolutions, options.reserve, options.progress)
        result = MergeResult("merged", _stage(merge, transaction, options))
    return Prepared(None if options.dry else "insert", result)


def prepare_revert(
    transaction: Transaction, undone: Snapshot, before: Snapshot, options: MergeOptions
) -> Prepared[MergeResult]:
    """Stage the reversal of one commit: a merge of the state before it, with the commit as the merge base.

    Changes of later commits stay, or are a conflict where they touch the same property.
    """
    if _is_same_state(undone, before):
        return _UP_TO_DATE
    sides = Sides(undone, transaction.base, before)
    merge = Merge(sides, options.resolutions, options.reserve, options.progress, theirs_may_go=True)
    merged = _stage(merge, transaction, options)
    if transaction.is_unchanged and not merged.affected and not merged.conflicts:
        return _UP_TO_DATE
    return Prepared(None if options.dry else "insert", MergeResult("merged", merged))


def _is_same_state(one: Snapshot, other: Snapshot) -> bool:
    """Whether two states have the same rows under the same schema, however they are stored."""
    states = [
        (item.commit.schema, {key: pin.content for key, pin in item.commit.tables.items()})
        for item in (one, other)
    ]
    return states[0] == states[1]


def _stage(merge: Merge, transaction: Transaction, options: MergeOptions) -> MergedState:
    decided = merge.decide()
    if not options.dry:
        refuse(decided, options.resolutions)
    if decided.conflicts:
        return decided
    options.resolutions.check_asked()
    return merge.stage(transaction, dry=options.dry)
