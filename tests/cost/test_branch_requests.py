"""What operations on branches cost on an object store: the same with ten branches and with ten thousand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import NotFound
from omnigraph.graph.branch_lookup import has_branch, list_branches
from omnigraph.graph.repository import Repository
from tests.support.many_branches import add_branches
from tests.support.repositories import make_graph, staging, write
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server
from tests.support.s3_graphs import upload_graph
from tests.support.s3_seam import Log

__all__ = ["s3", "s3_server"]

FEW, MANY = 10, 10_000


def _prepare(folder: Path, count: int) -> Path:
    with closing(make_graph(str(folder / f"{count}"))) as graph:
        add_branches(graph, (f"agent-{number:05}" for number in range(count)))
    return folder / f"{count}"


@pytest.fixture(scope="module")
def few_and_many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A graph with ten branches, and one with ten thousand."""
    folder = tmp_path_factory.mktemp("branches")
    return _prepare(folder, FEW), _prepare(folder, MANY)


@pytest.fixture
def pair(few_and_many: tuple[Path, Path], s3: Bucket) -> Iterator[tuple[Repository, Repository]]:
    few, many = (
        Repository.open(upload_graph(path, s3, path.name), options=s3.options) for path in few_and_many
    )
    with closing(few), closing(many):
        yield few, many


def _shape(log: Log) -> dict[str, int]:
    """Requests by what they are for."""
    kinds = {"LIST": 0, "GET": 0, "HEAD": 0, "PUT": 0, "POST": 0, "DELETE": 0}
    for item in log.requests:
        kinds["LIST" if "list-type" in item.query else item.method] += 1
    return {name: count for name, count in kinds.items() if count}


def _buckets_read(log: Log) -> int:
    return len({item.key for item in log.requests if item.method == "GET" and "/data/branches-" in item.key})


def test_page_of_branches_reads_one_bucket(pair: tuple[Repository, Repository], s3: Bucket) -> None:
    for graph in pair:
        with s3.seam.recording() as log:
            page = list_branches(graph.manifest, limit=10)
        assert page == [f"agent-{number:05}" for number in range(10)]
        assert _shape(log) == {"LIST": 1, "GET": 1}, str(log)


def test_page_after_a_name_or_with_a_prefix_reads_only_the_buckets_that_hold_it(
    pair: tuple[Repository, Repository], s3: Bucket
) -> None:
    many = pair[1]
    with s3.seam.recording() as log:
        page = list_branches(many.manifest, after="agent-05000", limit=5)
    assert (page[0], page[-1], _buckets_read(log)) == ("agent-05001", "agent-05005", 1), str(log)
    with s3.seam.recording() as log:
        page = list_branches(many.manifest, prefix="agent-0700")
    assert (len(page), page[0], _buckets_read(log)) == (10, "agent-07000", 1), str(log)
    with s3.seam.recording() as log:
        assert list_branches(many.manifest, prefix="b") == []
    assert _buckets_read(log) <= 1, str(log)


def test_load_into_a_branch_reads_one_bucket(
    few_and_many: tuple[Path, Path], s3: Bucket, pair: tuple[Repository, Repository]
) -> None:
    assert has_branch(pair[1].manifest, "agent-04000")
    uri = f"{s3.uri}/{few_and_many[1].name}"
    with og.open(uri, storage_options=s3.options) as graph, s3.seam.recording() as log:
        graph.load({"Person": [{"name": "Ann"}]}, branch="agent-03000")
    assert _buckets_read(log) == 1, str(log)


def test_unknown_branch_reads_two_buckets_and_suggests_a_similar_name(
    pair: tuple[Repository, Repository], s3: Bucket
) -> None:
    with s3.seam.recording() as log, pytest.raises(NotFound) as caught:
        pair[1].head("agent-0500")
    assert caught.value.hint is not None
    assert "did you mean `agent-0" in caught.value.hint
    assert caught.value.details["branches"] == [f"agent-{number:05}" for number in range(50)]
    assert _buckets_read(log) == 2, str(log)


def test_create_and_first_write_take_as_many_requests_with_many_branches_as_with_few(
    pair: tuple[Repository, Repository], s3: Bucket
) -> None:
    shapes = []
    for graph in pair:
        graph.snapshot()
        with s3.seam.recording() as created:
            graph.create_branch("agent-new")
        with s3.seam.recording() as first:
            write(graph, staging({"ann": "Ann"}), branch="agent-new")
        with s3.seam.recording() as published:
            write(graph, staging({"bob": "Bob"}))
        with s3.seam.recording() as opened:
            Repository.open(graph.location.uri, options=s3.options).close()
        shapes.append([_shape(log) for log in (created, first, published, opened)])
    assert shapes[0] == shapes[1]
