"""Preparation of merges and reverts as writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from omnigraph.graph.pipeline_runs import RunChanges, merge_runs
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.merge.conflicts import MergeConflict, merge_conflicts_error
from omnigraph.merge.merge_base import BaseState, MergeStates
from omnigraph.merge.merge_staging import Counts
from omnigraph.merge.state_merge import MergeOptions, StateMerge, fast_forward
from omnigraph.merge.virtual_base import FindBases, find_merge_base, has_same_content

MergeOutcome: TypeAlias = Literal["already_up_to_date", "fast_forward", "merged"]


@dataclass(frozen=True)
class MergeResult:
    """The effect of a merge, or of a dry run the effect it would have.

    `affected` and `adopted` are those of `StagedMerge`. Only a dry run has conflicts.
    """

    outcome: MergeOutcome
    affected: Mapping[str, Counts] = field(default_factory=dict)
    adopted: tuple[str, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()


_UP_TO_DATE: Prepared[MergeResult] = Prepared(None, MergeResult("already_up_to_date"))


def prepare_merge(
    transaction: Transaction,
    theirs: Snapshot,
    find_bases: FindBases,
    options: MergeOptions,
) -> Prepared[MergeResult]:
    """Stage the merge of a state into the branch of a transaction.

    `find_bases` returns the best common ancestors of commits. The commit has their commit as its second parent.
    A merge depends only on the two states, so a merge whose branch moved is prepared again. Conflicts raise
    `MergeConflicts`; a dry run returns them.
    """
    base = find_merge_base(find_bases, transaction.base, theirs)
    states = MergeStates.of_bases(base, transaction.base, BaseState(theirs), options.cache)
    if states.is_up_to_date:
        return _UP_TO_DATE
    transaction.merged_parent = theirs.commit
    transaction.change_runs(_merged_runs(states))
    if states.is_fast_forward:
        options.resolutions.check_ids()
        result = MergeResult("fast_forward", adopted=fast_forward(transaction, states))
    else:
        result = _merge_and_stage(StateMerge(states, options), transaction, options)
    return Prepared(None if options.dry_run else "insert", result)


def prepare_revert(
    transaction: Transaction, undone: Snapshot, before: Snapshot, options: MergeOptions
) -> Prepared[MergeResult]:
    """Stage the reversal of one commit: a merge of the state before it, with the commit as the merge base.

    Changes of later commits stay, or are a conflict where they touch the same property. The state of pipelines is
    restored too, so that the next run reads again what the commit had loaded.
    """
    if has_same_content(undone, before):
        return _UP_TO_DATE
    states = MergeStates(undone, transaction.base, before, cache=options.cache)
    transaction.change_runs(_merged_runs(states))
    merge = StateMerge(states, options, theirs_is_temporary=True)
    result = _merge_and_stage(merge, transaction, options)
    if transaction.is_unchanged and not result.affected and not result.conflicts:
        return _UP_TO_DATE
    return Prepared(None if options.dry_run else "insert", result)


def _merged_runs(states: MergeStates) -> RunChanges:
    base, ours, theirs = (item.commit.runs for item in (states.base, states.ours, states.theirs))
    return merge_runs(base, ours, theirs)


def _merge_and_stage(merge: StateMerge, transaction: Transaction, options: MergeOptions) -> MergeResult:
    unresolved = merge.merge(transaction.begin_intent)
    if unresolved:
        if not options.dry_run:
            raise merge_conflicts_error(unresolved, options.resolutions.unknown_ids())
        return MergeResult("merged", conflicts=unresolved.listed)
    options.resolutions.check_ids()
    staged = merge.stage(transaction)
    return MergeResult("merged", staged.affected, staged.adopted)
