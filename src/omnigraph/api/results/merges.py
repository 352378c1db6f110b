"""The arguments and the result of a merge or a revert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from omnigraph.api.results.commits import Commit
from omnigraph.graph.progress import Progress

# ``"ours"``, ``"theirs"``, or a mapping from conflict id to a side or to ``{"value": ...}``.
Resolve: TypeAlias = str | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge or a revert; for a dry run, the result that it would have.

    `outcome` is ``already_up_to_date``, ``fast_forward`` or ``merged``. `affected` counts the changed rows of types
    that were merged row by row. `taken` lists the types whose version was adopted from one side without counting
    rows. `conflicts` is set by a dry run only, because otherwise conflicts raise `MergeConflicts`. `branch_deleted`
    is None unless `delete_source` was given; `branch_delete_error` says why the branch was not deleted.
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
    """The arguments of `Branches.merge` and `Graph.revert`. `into` is the branch that receives the commit."""

    into: str
    resolve: Resolve = None
    dry_run: bool = False
    message: str | None = None
    if_commit: str | None = None
    actor: str | None = None
    progress: Progress | None = None
    delete_source: bool = False
