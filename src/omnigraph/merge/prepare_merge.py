"""Merges and reverts as work on a transaction: which states meet, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from omnigraph.graph.progress import Progress
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import OperationClass
from omnigraph.merge.conflicts import Resolutions
from omnigraph.merge.merge_states import Merge, MergeResult, fast_forward, refuse
from omnigraph.merge.merge_tables import Sides
from omnigraph.merge.schema_merge import Reserve

Outcome: TypeAlias = Literal["already_up_to_date", "fast_forward", "merged"]


@dataclass
class MergeOutcome:
    """What a merge did, or with a dry run would do."""

    outcome: Outcome = "already_up_to_date"
    result: MergeResult = field(default_factory=MergeResult)


def prepare_merge(
    theirs: Snapshot,
    base_of: Callable[[Snapshot], Snapshot],
    resolutions: Resolutions,
    outcome: MergeOutcome,
    reserve: Reserve,
    *,
    progress: Progress | None = None,
    dry: bool = False,
) -> Callable[[Transaction], OperationClass | None]:
    """The work of merging a state into a branch, to be run on a transaction, again if it must be.

    `base_of` gives the state where the branch's history meets theirs. The commit has their commit as its second
    parent. A merge is a function of the two states, so one whose branch moved is simply done again on top of
    that. Conflicts raise `MergeConflicts`, but for a dry run, which leaves them in the outcome.
    """

    def prepare(transaction: Transaction) -> OperationClass | None:
        sides = Sides(base_of(transaction.base), transaction.base, theirs)
        outcome.outcome, outcome.result = "already_up_to_date", MergeResult()
        if sides.base.commit_id == theirs.commit_id:
            return None
        transaction.merged_parent = theirs.commit
        outcome.outcome = "fast_forward" if sides.base.commit_id == sides.ours.commit_id else "merged"
        if outcome.outcome == "fast_forward":
            resolutions.check_asked()
            outcome.result.taken = fast_forward(transaction, sides)
        else:
            merge = Merge(sides, resolutions, reserve, progress)
            _carry_out(merge, transaction, resolutions, outcome, dry=dry)
        return None if dry else "insert"

    return prepare


def prepare_revert(
    undone: Snapshot,
    before: Snapshot,
    resolutions: Resolutions,
    outcome: MergeOutcome,
    reserve: Reserve,
    *,
    progress: Progress | None = None,
    dry: bool = False,
) -> Callable[[Transaction], OperationClass | None]:
    """The work of undoing one commit: a merge of the state before it, as if that had been made of it.

    What later commits did stays, or is a conflict where it touches the same property.
    """

    def prepare(transaction: Transaction) -> OperationClass | None:
        sides = Sides(undone, transaction.base, before)
        outcome.result = MergeResult()
        outcome.outcome = "merged"
        if _is_same_state(undone, before):
            outcome.outcome = "already_up_to_date"
            return None
        merge = Merge(sides, resolutions, reserve, progress, theirs_may_go=True)
        _carry_out(merge, transaction, resolutions, outcome, dry=dry)
        result = outcome.result
        if transaction.is_unchanged and not result.affected and not result.conflicts:
            outcome.outcome = "already_up_to_date"
            return None
        return None if dry else "insert"

    return prepare


def _is_same_state(one: Snapshot, other: Snapshot) -> bool:
    """Whether two states have the same rows under the same schema, however they are stored."""
    states = [
        (item.commit.schema, {key: pin.content for key, pin in item.commit.tables.items()})
        for item in (one, other)
    ]
    return states[0] == states[1]


def _carry_out(
    merge: Merge, transaction: Transaction, resolutions: Resolutions, outcome: MergeOutcome, *, dry: bool
) -> None:
    outcome.result = merge.decide()
    if not dry:
        refuse(outcome.result, resolutions)
    if not outcome.result.conflicts:
        resolutions.check_asked()
        outcome.result = merge.stage(transaction, dry=dry)
