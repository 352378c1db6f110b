"""Manifests made of plain records, below the level of tables and transactions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omnigraph.store.manifest.bucket_entries import first_buckets
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_files import BUCKETS, new_id
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import BranchEntry, CommitRecord, HeadRecord, Registry
from tests.support.places import lance_root

SCHEMA = "ab" * 32


def genesis(branch: str = "main", incarnation: str = "") -> CommitRecord:
    """A commit without parents."""
    return CommitRecord(
        id=new_id(),
        branch=branch,
        incarnation=incarnation or new_id(),
        sequence=1,
        parent=None,
        merged_parent=None,
        actor=None,
        operation="init",
        message=None,
        created_at=1_000_000,
        schema=SCHEMA,
    )


def child(parent: CommitRecord, *, message: str | None = None) -> CommitRecord:
    """A commit on top of another."""
    return replace(
        parent,
        id=new_id(),
        parent=parent.id,
        sequence=parent.sequence + 1,
        created_at=parent.created_at + 1,
        operation="load",
        message=message,
    )


def first_change(branches: Iterable[str] = ("main",)) -> ManifestChange:
    """What makes a root a graph whose branches all stand at one genesis commit."""
    names = list(branches)
    first = genesis()
    incarnations = {name: first.incarnation if name == "main" else new_id() for name in names}
    entries = {name: BranchEntry(incarnations[name], first.created_at) for name in names}
    heads = [HeadRecord(name, incarnations[name], first) for name in names]
    registry, buckets = (
        Registry(3, new_id(), first.created_at, main=incarnations["main"]),
        first_buckets(BUCKETS, entries.items()),
    )
    return ManifestChange(registry, heads, [first], {SCHEMA: "{}"}, buckets=buckets)


def make_manifest(uri: str, branches: Iterable[str] = ("main",)) -> Manifest:
    """A finished manifest."""
    return Manifest.create(lance_root(uri), first_change(branches))


def reopen(manifest: Manifest) -> Manifest:
    """A second handle on the same manifest, with caches of its own."""
    root = manifest.root
    return Manifest.open(replace(root, session=type(root.session)(), _durable_folders=set()))


def head_of(manifest: Manifest, view: ManifestView, branch: str = "main") -> HeadRecord:
    """Where a branch stands in a view."""
    found = manifest.head(view, branch)
    assert found is not None
    return found


def move(
    manifest: Manifest, view: ManifestView, branch: str = "main", message: str | None = None
) -> CommitRecord:
    """Publish an empty commit on a branch as it stands in a view."""
    head = head_of(manifest, view, branch)
    record = replace(child(head.commit, message=message), branch=branch, incarnation=head.incarnation)
    change = ManifestChange(heads=[replace(head, commit=record)], commits=[record])
    manifest.replace_heads_if_equal(view, [head], change)
    return record
