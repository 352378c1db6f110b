"""Merges and reverts from Python: bringing a branch into another, undoing a commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.api.commits import Commit, by_type_name
from omnigraph.errors import Conflict, InvalidInput, OmnigraphError
from omnigraph.graph.branch_names import stored_name

if TYPE_CHECKING:
    from omnigraph.api.access import Guard
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.graph.write_request import WriteResult
    from omnigraph.merge.prepare_merge import MergeResult

# A side, or by the id of a conflict a side or {"value": ...}.
Resolve: TypeAlias = str | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge or a revert did; with a dry run, what it would do.

    `outcome` is ``already_up_to_date``, ``fast_forward`` or ``merged``. `affected` counts the rows of the branch
    that changed, of types that were merged row by row; `taken` are the types whose version was taken over, where
    nobody counted. `conflicts` are those of a dry run: anything else raises them. `branch_deleted` is None unless
    that was asked for.
    """

    outcome: str
    commit: Commit | None = None
    affected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    taken: tuple[str, ...] = ()
    conflicts: tuple[Mapping[str, Any], ...] = ()
    dry_run: bool = False
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """Everything one can say about a merge or a revert."""

    into: str
    resolve: Resolve = None
    dry_run: bool = False
    message: str | None = None
    if_commit: str | None = None
    actor: str | None = None
    progress: Callable[[str, int], None] | None = None


def run_merge(
    repository: Repository, source: str, request: MergeRequest, guard: Guard, *, delete_source: bool
) -> Merged:
    """Merge a branch into another; delete it afterwards if that is wanted, allowed, and it has not moved on."""
    from omnigraph.graph.write_request import WriteRequest
    from omnigraph.merge.conflicts import Resolutions
    from omnigraph.merge.prepare_merge import MergeOptions, prepare_merge

    source, into = stored_name(source), stored_name(request.into)
    if source == into:
        raise InvalidInput("branch_merge requires distinct source and target branches")
    resolutions = Resolutions.of(request.resolve)
    theirs = repository.snapshot(source)

    def base_of(ours: Snapshot) -> Snapshot:
        return repository.merge_base(ours, theirs)

    options = MergeOptions(resolutions, repository.reserve_identities, request.progress, request.dry_run)
    write = WriteRequest(
        "merge", actor=request.actor, message=request.message, expected_head=request.if_commit
    )
    done = repository.write(
        into, write, lambda transaction: prepare_merge(transaction, theirs, base_of, options)
    )
    merged = _merged(done, request)
    if not delete_source or request.dry_run:
        return merged
    try:
        guard.admit("branch_delete", target=source, actor=request.actor)
        # A commit that came in meanwhile has not been merged: it must not go with the branch.
        repository.delete_branch(source, expected_head=theirs.commit_id)
    except OmnigraphError as error:
        return replace(merged, branch_deleted=False, branch_delete_error=error.message)
    return replace(merged, branch_deleted=True)


def run_revert(repository: Repository, commit_id: str, request: MergeRequest, guard: Guard) -> Merged:
    """Undo one commit with a new one; what it did to the schema, for those who may change that."""
    from omnigraph.graph.write_request import WriteRequest
    from omnigraph.merge.conflicts import Resolutions
    from omnigraph.merge.prepare_merge import MergeOptions, prepare_revert

    resolutions = Resolutions.of(request.resolve)
    undone = repository.snapshot(request.into, commit_id)
    if undone.commit.parent is None:
        raise Conflict(
            f"commit '{commit_id}' is the first one: there is nothing before it",
            details={"commit_id": commit_id},
        )
    if not repository.is_ancestor(undone.commit_id, request.into):
        raise InvalidInput(
            f"commit '{commit_id}' is not part of branch '{request.into}'",
            details={"commit_id": commit_id, "branch": request.into},
            hint="merge the branch that has it, or revert it there",
        )
    before = repository.snapshot(request.into, undone.commit.parent)
    if undone.commit.schema != before.commit.schema:
        guard.admit("schema_apply", target=request.into, actor=request.actor)
    options = MergeOptions(resolutions, repository.reserve_identities, request.progress, request.dry_run)
    write = WriteRequest(
        "revert",
        actor=request.actor,
        message=request.message if request.message is not None else f"revert {commit_id}",
        expected_head=request.if_commit,
    )
    done = repository.write(
        request.into, write, lambda transaction: prepare_revert(transaction, undone, before, options)
    )
    return _merged(done, request)


def _merged(done: WriteResult[MergeResult], request: MergeRequest) -> Merged:
    receipt, result = done
    assert result is not None, "a merge has no idempotency key, so it is always prepared"
    merged = result.merged
    return Merged(
        result.outcome,
        None if receipt is None else Commit.of(receipt.commit),
        by_type_name(merged.affected),
        tuple(key.split(":", 1)[1] for key in merged.taken),
        tuple(item.to_json() for item in merged.conflicts),
        request.dry_run,
    )
