"""What operations with tags cost on an object store: the same with ten tags and with ten thousand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from omnigraph.graph.repository import Repository
from omnigraph.graph.tags import create_tag, delete_tag, list_tags
from omnigraph.store.manifest.bucket_entries import first_buckets
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_files import TAGS, new_id
from omnigraph.store.manifest.records import TagEntry
from tests.support.repositories import make_graph, staging, write
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server
from tests.support.s3_graphs import upload_graph
from tests.support.s3_seam import Log

__all__ = ["s3", "s3_server"]


def _prepare(folder: Path, count: int) -> Path:
    with closing(make_graph(str(folder / f"{count}"))) as graph:
        manifest, commit = graph.manifest, graph.head().commit.id
        tags = {f"v{number:05}": TagEntry(new_id(), commit, 1) for number in range(count)}
        view = manifest.refresh()
        change = ManifestChange(
            registry=manifest.registry(view).with_next_epoch(), buckets=first_buckets(TAGS, tags.items())
        )
        manifest.replace_files(view, view.of_kind("registry"), change)
    return folder / f"{count}"


@pytest.fixture
def pair(tmp_path: Path, s3: Bucket) -> Iterator[tuple[Repository, Repository]]:
    """A graph with ten tags, and one with ten thousand."""
    few, many = (
        Repository.open(upload_graph(_prepare(tmp_path, count), s3, str(count)), options=s3.options)
        for count in (10, 10_000)
    )
    with closing(few), closing(many):
        yield few, many


def _shape(log: Log) -> list[str]:
    return sorted("LIST" if "list-type" in item.query else item.method for item in log.requests)


def test_publish_and_tag_operations_take_as_many_requests_with_many_tags_as_with_few(
    pair: tuple[Repository, Repository], s3: Bucket
) -> None:
    shapes = []
    for graph in pair:
        snapshot = graph.snapshot()
        with s3.seam.recording() as published:
            write(graph, staging({"bob": "Bob"}))
        assert not any("/data/tags-" in item.key for item in published.requests), str(published)
        with s3.seam.recording() as created:
            create_tag(graph, "v00003-new", snapshot)
        with s3.seam.recording() as resolved:
            assert graph.snapshot(at="v00003-new").commit_id == snapshot.commit_id
        with s3.seam.recording() as listed:
            assert len(list_tags(graph.manifest, limit=2)) == 2
        with s3.seam.recording() as deleted:
            delete_tag(graph, "v00003-new")
        with s3.seam.recording() as opened:
            Repository.open(graph.location.uri, options=s3.options).close()
        shapes.append([_shape(log) for log in (published, created, resolved, listed, deleted, opened)])
    assert shapes[0] == shapes[1]
