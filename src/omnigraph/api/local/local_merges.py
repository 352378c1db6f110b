"""Merge and revert in a local graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.api.results.commits import Commit
from omnigraph.api.results.merges import Merged, MergeRequest
from omnigraph.api.results.receipts import by_type_name
from omnigraph.errors import Conflict, InvalidInput, MergeConflicts, OmnigraphError
from omnigraph.graph.branch_names import normalize_branch_name
from omnigraph.graph.state_names import qualify

if TYPE_CHECKING:
    from omnigraph.api.local.authorizer import Authorizer
    from omnigraph.engine.memory.row_lookups import CachedIds
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.write_request import WriteResult
    from omnigraph.merge.prepare_merge import MergeResult
    from omnigraph.merge.state_merge import MergeOptions


def run_merge(
    repository: Repository, source: str, request: MergeRequest, authorizer: Authorizer, cache: CachedIds
) -> Merged:
    """Merge a branch into another.

    With `delete_source` the branch is deleted afterwards if the policy allows it and the branch has no new commits.
    Otherwise the result says why it was not deleted.
    """
    from omnigraph.graph.write_request import WriteRequest
    from omnigraph.merge.prepare_merge import prepare_merge

    source, into = normalize_branch_name(source), normalize_branch_name(request.into)
    if source == into:
        raise InvalidInput("branch_merge requires distinct source and target branches")
    options = _merge_options(repository, request, cache)
    theirs = repository.snapshot(source)

    write = WriteRequest(
        "merge",
        actor=request.actor,
        message=request.message,
        expected_head=request.if_commit,
        starts_group=True,
    )
    with _hiding_values(authorizer, request, ("base", "ours")) as hide:
        written = repository.write(
            into,
            write,
            lambda transaction: prepare_merge(transaction, theirs, repository.merge_bases, options),
        )
        merged = hide(_merged(written, request))
    if not request.delete_source or request.dry_run:
        return merged
    try:
        authorizer.authorize("branch_delete", target=source, actor=request.actor)
        # A commit that was added during the merge is not merged and must not be deleted with the branch.
        repository.delete_branch(source, expected_head=theirs.commit_id)
    except OmnigraphError as error:
        return replace(merged, branch_deleted=False, branch_delete_error=error.message)
    return replace(merged, branch_deleted=True)


def run_revert(
    repository: Repository, commit_id: str, request: MergeRequest, authorizer: Authorizer, cache: CachedIds
) -> Merged:
    """Undo a commit with a new commit.

    A revert writes the values from before the commit, so the actor must be allowed to read the commit. Undoing a
    schema change needs the permission to change the schema.
    """
    from omnigraph.graph.write_request import WriteRequest
    from omnigraph.merge.prepare_merge import prepare_revert

    commit_id = authorizer.authorize_commit_id(
        "read", qualify(commit_id, request.into.strip()), actor=request.actor
    )
    options = _merge_options(repository, request, cache)
    undone = repository.snapshot(request.into, commit_id)
    if undone.commit.parent is None:
        raise Conflict(
            f"commit '{commit_id}' is the first commit of the graph and cannot be reverted",
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
        authorizer.authorize("schema_apply", target=request.into, actor=request.actor)
    write = WriteRequest(
        "revert",
        actor=request.actor,
        message=request.message if request.message is not None else f"revert {commit_id}",
        expected_head=request.if_commit,
        starts_group=True,
    )
    with _hiding_values(authorizer, request, ("ours",)) as hide:
        written = repository.write(
            request.into, write, lambda transaction: prepare_revert(transaction, undone, before, options)
        )
        return hide(_merged(written, request))


@contextmanager
def _hiding_values(
    authorizer: Authorizer, request: MergeRequest, members: tuple[str, ...]
) -> Iterator[Callable[[Merged], Merged]]:
    """Remove values of the target branch from reported conflicts if the actor may not read the branch.

    Yields a function that does so in the result of a dry run.
    """
    if authorizer.allows("read", request.into, actor=request.actor):
        yield lambda merged: merged
        return
    hidden = dict.fromkeys(members)
    try:
        yield lambda merged: replace(merged, conflicts=tuple({**item, **hidden} for item in merged.conflicts))
    except MergeConflicts as error:
        error.conflicts = tuple({**item, **hidden} for item in error.conflicts)
        raise


def _merge_options(repository: Repository, request: MergeRequest, cache: CachedIds) -> MergeOptions:
    from omnigraph.merge.resolutions import Resolutions
    from omnigraph.merge.state_merge import MergeOptions

    resolutions = Resolutions.of(request.resolve)
    return MergeOptions(resolutions, repository.reserve_identities, request.progress, request.dry_run, cache)


def _merged(written: WriteResult[MergeResult], request: MergeRequest) -> Merged:
    receipt, result = written
    assert result is not None, "a merge has no idempotency key, so it is always prepared"
    return Merged(
        result.outcome,
        None if receipt is None else Commit.of(receipt.commit),
        by_type_name(result.affected),
        tuple(key.split(":", 1)[1] for key in result.adopted),
        tuple(conflict.to_json() for conflict in result.conflicts),
        request.dry_run,
    )
