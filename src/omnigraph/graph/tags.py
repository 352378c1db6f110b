"""Tags: immutable names for commits, whose data garbage collection keeps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from omnigraph.errors import Conflict
from omnigraph.graph.argument_checks import check_text, require_text
from omnigraph.graph.branch_names import check_new_tag_name
from omnigraph.graph.commit_names import check_readable, unknown_tag
from omnigraph.graph.history import GetCommit
from omnigraph.graph.publish import now_micros
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.swap_retries import retry_swap
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord, TagEntry
from omnigraph.store.manifest.tag_swaps import create_tag_if_absent, delete_tag_if_equals

_HINT = "list the tags before trying again"


def create_tag(
    repository: Repository,
    name: str,
    snapshot: Snapshot,
    *,
    message: str | None = None,
    actor: str | None = None,
) -> TagEntry:
    """Give a commit a name. `Conflict` if a tag or a branch has the name; `NotFound` if the data was reclaimed.

    One compare-and-swap. After an error the tag does not exist, except after `OutcomeUnknown`.
    """
    repository.check_writable("create a tag")
    name = check_new_tag_name(name)
    manifest = repository.manifest
    entry = TagEntry(
        new_id(),
        snapshot.commit_id,
        now_micros(),
        check_text("actor", actor),
        check_text("message", message),
    )

    def create(view: ManifestView) -> TagEntry:
        existing = manifest.tags.get(view, name)
        if existing == entry:
            # An earlier attempt of this call succeeded, but its reply was lost.
            return entry
        if existing is not None:
            raise Conflict(
                f"tag '{name}' already exists",
                details={"tag": name, "commit_id": existing.commit},
                hint="a tag is never moved: choose another name, or delete the tag first",
            )
        if manifest.branch(view, name) is not None:
            raise Conflict(f"'{name}' is a branch", details={"branch": name}, hint="choose another name")
        check_readable(manifest, view, snapshot.state)
        create_tag_if_absent(manifest, view, name, entry)
        return entry

    created = retry_swap(manifest, create, changed="the tags", hint=_HINT)
    repository.maintain_manifest()
    return created


def delete_tag(repository: Repository, name: str) -> TagEntry:
    """Delete a tag and return what it was. Garbage collection may then remove the data of its commit."""
    repository.check_writable("delete a tag")
    name = require_text("tag", name).strip()
    manifest = repository.manifest
    attempted: TagEntry | None = None

    def delete(view: ManifestView) -> TagEntry:
        nonlocal attempted
        entry = manifest.tags.get(view, name)
        if attempted is not None and entry != attempted:
            # An earlier attempt of this call succeeded, but its reply was lost.
            return attempted
        if entry is None:
            raise unknown_tag(manifest, view, name)
        attempted = entry
        delete_tag_if_equals(manifest, view, name, entry)
        return entry

    deleted = retry_swap(manifest, delete, changed="the tags", hint=_HINT)
    repository.maintain_manifest()
    return deleted


def list_tags(
    manifest: Manifest, prefix: str = "", after: str | None = None, limit: int | None = None
) -> list[tuple[str, TagEntry]]:
    """Return the tags whose names begin with a prefix and come after a name, sorted, at most `limit` of them.

    Only the buckets that hold these names are read.
    """
    view = manifest.refresh()
    found: list[tuple[str, TagEntry]] = []
    for name in islice(manifest.tags.names(view, prefix, after), limit):
        entry = manifest.tags.get(view, name)
        if entry is not None:
            found.append((name, entry))
    return found


def tagged_commits(manifest: Manifest, view: ManifestView, get: GetCommit) -> Iterator[CommitRecord]:
    """Yield every commit that has a tag once. `get` returns a commit by its id."""
    return map(get, {entry.commit: None for _, entry in manifest.tags.after(view, None)})
