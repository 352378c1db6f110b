"""Reset of a damaged branch: a new commit whose tables are those of an intact commit in its history.

The history stays. The reset is a commit on the present head, made by the same compare-and-swap as every write. If
the head itself cannot be read, its file in `__manifest` is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omnigraph.errors import Conflict, InvalidInput, NotFound, StorageError
from omnigraph.graph.branch_names import branch_not_found, check_branch_name
from omnigraph.graph.publish import check_adopted_versions, now_micros, publish
from omnigraph.graph.repository import Repository
from omnigraph.graph.write_plan import TableWrite, WritePlan
from omnigraph.maintain.verification.verify import GraphVerifier
from omnigraph.maintain.verification.verify_options import VerifyOptions
from omnigraph.store.manifest.manifest import SwapLost
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.records import CommitRecord, HeadRecord

OPERATION = "reset"


@dataclass(frozen=True, slots=True)
class ResetType:
    """A type before and after a reset. A number of rows is None if the state does not have the type."""

    type_key: str
    rows_before: int | None
    rows_after: int | None
    number_before: int | None
    number_after: int | None
    damaged: bool


@dataclass(frozen=True, slots=True)
class BranchReset:
    """The result of a reset, or of its preview.

    `head` is the head before, None if it could not be read. `to` is the commit whose state the branch gets. `lost`
    are the commits whose changes the branch no longer has, newest first. `commit` is the new commit, None in a
    preview or if the branch is intact already.
    """

    branch: str
    head: str | None
    to: str
    lost: tuple[str, ...]
    types: tuple[ResetType, ...]
    commit: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "branch": self.branch,
            "head": self.head,
            "to": self.to,
            "lost_commits": list(self.lost),
            "types": [
                {
                    "type_key": item.type_key,
                    "rows_before": item.rows_before,
                    "rows_after": item.rows_after,
                    "damaged": item.damaged,
                }
                for item in self.types
            ],
            "commit_id": self.commit,
        }


def reset_branch(
    repository: Repository,
    branch: str,
    to: str | None = None,
    *,
    confirm: bool = False,
    actor: str | None = None,
) -> BranchReset:
    """Reset a branch to a commit of its history, by default to its newest intact commit.

    Without `confirm` nothing changes. The commit must be intact by the checks of a verification. `StorageError` if
    no commit is intact, `NotFound` or `InvalidInput` if `to` is not an intact commit of the branch, `Conflict` if
    the branch moves meanwhile.
    """
    branch = check_branch_name(branch, "reset")
    if confirm:
        repository.check_writable("reset a branch")
    verifier = GraphVerifier(repository.tables.root, repository.objects, VerifyOptions(branch=branch))
    if to is not None and to in verifier.inspection.tags:
        to = verifier.inspection.tags[to].commit
    branches = verifier.lineage.branches()
    if branch not in branches:
        raise branch_not_found(branch, branches)
    head = verifier.inspection.heads.get(branches[branch])
    base = verifier.head_of(branch)
    if base is None and to is not None:
        # A branch without commits of its own whose head is lost: its fork point is not known.
        base = verifier.find_commit(to)
    if base is None:
        raise StorageError(
            f"no commit of branch '{branch}' can be read",
            details={"branch": branch},
            hint="name a commit, delete the branch, or restore the graph from a backup",
        )
    target = _target(verifier, branch, base, to)
    result = BranchReset(
        branch,
        None if head is None else head.commit.id,
        target.id,
        tuple(_lost(verifier, base, target)),
        tuple(_types(verifier, base, target)),
    )
    if not confirm or (head is not None and _same_state(base, target)):
        return result
    plan = _plan(branch, branches[branch], base, target, actor)
    commit = _publish(repository, plan) if head is not None else _replace_head(repository, plan, base)
    return BranchReset(result.branch, result.head, result.to, result.lost, result.types, commit.id)


def _target(verifier: GraphVerifier, branch: str, base: CommitRecord, to: str | None) -> CommitRecord:
    if to is None:
        found = verifier.newest_intact(branch)
        if found is None:
            raise StorageError(
                f"no commit of branch '{branch}' is intact",
                details={"branch": branch},
                hint="restore the graph from a backup",
            )
        return found
    commit = verifier.find_commit(to)
    if commit is None:
        raise NotFound(f"commit '{to}' not found", details={"commit_id": to})
    if all(item.id != to for item in _ancestors(verifier, base)):
        raise InvalidInput(
            f"commit '{to}' is not in the history of branch '{branch}'",
            details={"branch": branch, "commit_id": to},
        )
    if not verifier.is_intact(commit):
        newest = verifier.newest_intact(branch)
        raise InvalidInput(
            f"commit '{to}' is not intact",
            details={"branch": branch, "commit_id": to},
            hint=None if newest is None else f"the newest intact commit is {newest.id}",
        )
    return commit


def _ancestors(verifier: GraphVerifier, start: CommitRecord) -> Iterator[CommitRecord]:
    """Yield a commit and its ancestors over both parents, as far as they can be read, children first."""
    waiting, seen = [start], {start.id}
    while waiting:
        commit = waiting.pop(0)
        yield commit
        for parent in (commit.parent, commit.merged_parent):
            above = None if parent is None or parent in seen else verifier.find_commit(parent)
            if above is not None:
                seen.add(above.id)
                waiting.append(above)


def _lost(verifier: GraphVerifier, base: CommitRecord, target: CommitRecord) -> Iterator[str]:
    """Yield the commits that the base has in its history and the target has not, newest first."""
    kept = {commit.id for commit in _ancestors(verifier, target)}
    lost = [commit for commit in _ancestors(verifier, base) if commit.id not in kept]
    return (commit.id for commit in sorted(lost, key=lambda item: item.created_at, reverse=True))


def _types(verifier: GraphVerifier, base: CommitRecord, target: CommitRecord) -> Iterator[ResetType]:
    keys: dict[str, str] = {}
    for commit in (base, target):
        catalog = verifier.lineage.catalog(commit.schema)
        keys |= {} if catalog is None else {str(table.id): table.key for table in catalog.tables.values()}
    verifier.versions.check((pin.path, pin.version) for pin in base.tables.values())
    for table in sorted({*base.tables, *target.tables}, key=lambda item: keys.get(item, item)):
        before, after = base.tables.get(table), target.tables.get(table)
        yield ResetType(
            keys.get(table, table),
            None if before is None else before.rows,
            None if after is None else after.rows,
            None if before is None else before.number,
            None if after is None else after.number,
            before is not None and not verifier.versions.is_intact(before),
        )


def _same_state(base: CommitRecord, target: CommitRecord) -> bool:
    return base.tables == target.tables and base.schema == target.schema


def _plan(
    branch: str, incarnation: str, base: CommitRecord, target: CommitRecord, actor: str | None
) -> WritePlan:
    writes = {}
    for table, pin in target.tables.items():
        before = base.tables.get(table)
        if before != pin:
            expected = None if before is None else before.version
            # With the content id of the target: its rows are adopted as they are.
            writes[table] = TableWrite(pin.path, expected, pin.version, pin.rows, pin.content)
    return WritePlan(
        commit_id=new_id(),
        branch=branch,
        incarnation=incarnation,
        base=base.id,
        base_schema=base.schema,
        base_tables=base.tables,
        operation=OPERATION,
        operation_class="strict",
        writes=writes,
        drops=frozenset(base.tables) - frozenset(target.tables),
        schema=target.schema,
        actor=actor,
        message=f"reset to {target.id}",
        expected_head=base.id,
    )


def _publish(repository: Repository, plan: WritePlan) -> CommitRecord:
    repository.manifest.refresh()
    return publish(repository.manifest, plan).commit


def _replace_head(repository: Repository, plan: WritePlan, base: CommitRecord) -> CommitRecord:
    """Replace a head that cannot be read. The swap removes its file, and fails if another process did so first."""
    manifest = repository.manifest
    view = manifest.refresh()
    commit = plan.commit_on(base, now_micros())
    entry = manifest.branch(view, plan.branch)
    registry = manifest.registry(view)
    change = ManifestChange(
        registry=registry.with_next_epoch(),
        heads=[HeadRecord(plan.branch, plan.incarnation, commit)],
        commits=[commit],
    )
    # All of them, because the head that cannot be read may pin other versions than the commit below it.
    pins = [(pin.path, pin.version) for pin in commit.tables.values()]
    check_adopted_versions(manifest, view, plan, pins)
    try:
        if entry is None or entry.incarnation != plan.incarnation:
            raise SwapLost
        manifest.replace_unreadable_head(view, plan.branch, entry, change)
    except SwapLost as error:
        raise Conflict(
            f"branch '{plan.branch}' moved during the reset",
            details={"branch": plan.branch},
            hint="verify the branch again",
        ) from error
    return commit
