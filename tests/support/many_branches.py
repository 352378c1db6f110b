"""Graphs with thousands of branches, made with one swap instead of one for each branch."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.graph.publish import now_micros
from omnigraph.graph.repository import Repository
from omnigraph.store.manifest.bucket_entries import first_buckets
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_files import BUCKETS, new_id
from omnigraph.store.manifest.records import BranchEntry


def add_branches(graph: Repository, names: Iterable[str]) -> None:
    """Create branches at the head of `main`."""
    manifest = graph.manifest
    view = manifest.refresh()
    commit, now = graph.head().commit.id, now_micros()
    added = {name: BranchEntry(new_id(), now, "ana", commit) for name in names}
    buckets = first_buckets(BUCKETS, {**manifest.branches(view), **added}.items())
    manifest.replace_files(view, view.of_kind(BUCKETS), ManifestChange(buckets=buckets))
