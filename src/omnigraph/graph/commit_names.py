"""The commit that a text names: an id or the beginning of one, a tag, a branch, or a commit before one of them."""

from __future__ import annotations

import re
from itertools import islice

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.graph.branch_lookup import unknown_branch
from omnigraph.graph.branch_names import LISTED_IN_ERRORS, MAIN, has_form_of_commit_id
from omnigraph.graph.damage import CommitState, check_versions, reclaimed_error
from omnigraph.graph.history import commit_at, first_parents, get_commit
from omnigraph.graph.state_names import HEAD, id_prefix, split_name
from omnigraph.lang.suggestions import suggestion
from omnigraph.lang.temporal import last_micros_of, parse_moment
from omnigraph.store.manifest.collection_fence import find_reclaimed
from omnigraph.store.manifest.commit_ids import commit_ids_with_prefix
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord

_VERSION = re.compile(r"[0-9]{1,18}")
# The commits that the error for an ambiguous short id names.
_CANDIDATES = 8


def find_named_commit(manifest: Manifest, view: ManifestView, name: str, branch: str = MAIN) -> CommitRecord:
    """Return the commit that a text names. `HEAD` is the head of `branch`.

    A name is looked up as a commit id, then as a tag, a branch and the beginning of a commit id. A name with
    suffixes, such as ``review~2``, is first looked up as a whole, because branches may have such names. Raises
    `NotFound`, and `InvalidInput` for an ambiguous beginning of an id.
    """
    name = name.strip()
    if not name or has_form_of_commit_id(name):
        return get_commit(manifest, view, name)
    base, suffixes = split_name(name)
    for count in range(len(suffixes), -1, -1):
        known = base + "".join(suffixes[:count])
        found = _exact(manifest, view, known, branch)
        if found is not None:
            commit, is_head = found
            for suffix in suffixes[count:]:
                commit = _step(manifest, view, commit, suffix, name if is_head else None)
                is_head = False
            return commit
    commit = _by_prefix(manifest, view, base)
    for suffix in suffixes:
        commit = _step(manifest, view, commit, suffix, None)
    return commit


def named_branch(manifest: Manifest, view: ManifestView, name: str, branch: str) -> str | None:
    """Return the branch from whose head a name starts; None if it starts from a commit or a tag."""
    name = name.strip()
    if not name or has_form_of_commit_id(name):
        return None
    base, suffixes = split_name(name)
    for count in range(len(suffixes), -1, -1):
        known = base + "".join(suffixes[:count])
        if known and manifest.tags.get(view, known) is not None:
            return None
        if known and manifest.branch(view, known) is not None:
            return known
        if known in (HEAD, ""):
            return branch
    return None


def unknown_tag(manifest: Manifest, view: ManifestView, name: str) -> NotFound:
    """Return the error for a tag that a view does not have."""
    first = islice(manifest.tags.names(view), LISTED_IN_ERRORS)
    names = sorted({*first, *manifest.tags.names_near(view, name)})
    return NotFound(
        f"tag '{name}' not found",
        details={"tag": name, "tags": names[:LISTED_IN_ERRORS]},
        hint=suggestion(name, names),
    )


def check_readable(manifest: Manifest, view: ManifestView, state: CommitState) -> None:
    """Raise `NotFound` if garbage collection has removed, or is removing, the data of a table of a commit."""
    pins = [(pin.path, pin.version) for pin in state.commit.tables.values()]
    if any(find_reclaimed(manifest, view, pins)):
        raise reclaimed_error(state.commit)
    check_versions(state)


def _exact(
    manifest: Manifest, view: ManifestView, name: str, branch: str
) -> tuple[CommitRecord, bool] | None:
    """Return the commit of a commit id, a tag or a branch, and whether it is the head of a branch."""
    if has_form_of_commit_id(name):
        return get_commit(manifest, view, name), False
    tag = manifest.tags.get(view, name) if name else None
    if tag is not None:
        return get_commit(manifest, view, tag.commit), False
    head = manifest.head(view, name) if name else None
    if head is None and name in (HEAD, ""):
        head = manifest.head(view, branch)
        if head is None:
            raise unknown_branch(manifest, view, branch)
    return None if head is None else (head.commit, True)


def _by_prefix(manifest: Manifest, view: ManifestView, name: str) -> CommitRecord:
    prefix = id_prefix(name)
    if prefix is not None:
        ids = list(islice(commit_ids_with_prefix(manifest, view, prefix), _CANDIDATES + 1))
        if len(ids) > 1:
            raise _ambiguous(manifest, view, name, sorted(ids))
        if ids:
            return get_commit(manifest, view, ids[0])
    try:
        return get_commit(manifest, view, name)
    except NotFound as error:
        hint = suggestion(name, manifest.tags.names_near(view, name))
        if error.hint is not None or hint is None:
            raise
        raise NotFound(error.message, details=error.details, hint=hint) from error


def _ambiguous(manifest: Manifest, view: ManifestView, name: str, ids: list[str]) -> InvalidInput:
    named = ids[:_CANDIDATES]
    more = " and others" if len(ids) > len(named) else ""
    commits = (get_commit(manifest, view, id_) for id_ in named)
    lines = ", ".join(f"{commit.id} ({commit.operation} on {commit.branch})" for commit in commits)
    return InvalidInput(
        f"commit '{name}' is ambiguous: several commit ids begin with it",
        details={"commit_id": name, "candidates": named},
        hint=f"use more characters of one of {lines}{more}",
    )


def _step(
    manifest: Manifest, view: ManifestView, commit: CommitRecord, suffix: str, head_of: str | None
) -> CommitRecord:
    """Return the commit to which a suffix leads. `head_of` is the whole name if the commit is a branch head."""
    if suffix.startswith("@"):
        text = suffix[2:-1].strip()
        if head_of is None:
            raise InvalidInput(f"`{suffix}` must follow the name of a branch")
        return _at(manifest, view, commit, text)
    count = int(suffix[1:] or 1)
    if suffix.startswith("^") and count == 2:
        if commit.merged_parent is None:
            raise NotFound(f"commit '{commit.id}' has no second parent: it is not a merge")
        return get_commit(manifest, view, commit.merged_parent)
    if suffix.startswith("^") and count > 2:
        raise InvalidInput(f"a commit has at most two parents, got `{suffix}`")
    older = first_parents(manifest, view, commit) if count < commit.sequence else iter(())
    found = next(islice(older, count, None), None)
    if found is None:
        raise NotFound(
            f"commit '{commit.id}' has no ancestor `{suffix}`",
            details={"commit_id": commit.id},
            hint=f"its history has {commit.sequence} commits",
        )
    return found


def _at(manifest: Manifest, view: ManifestView, head: CommitRecord, text: str) -> CommitRecord:
    if _VERSION.fullmatch(text) is not None:
        number = int(text)
        for commit in first_parents(manifest, view, head) if 0 < number <= head.sequence else ():
            if commit.sequence == number:
                return commit
        raise NotFound(
            f"manifest version {text} not found",
            details={"version": text},
            hint=f"the versions of the branch are up to {head.sequence}",
        )
    moment = parse_moment(text)
    if moment is None:
        raise InvalidInput(
            f"`@{{{text}}}` is neither a time nor a manifest version",
            hint="write a time as in `main@{2026-05-04T12:00Z}`, or a version as in `main@{7}`",
        )
    return commit_at(manifest, view, head, last_micros_of(moment))
