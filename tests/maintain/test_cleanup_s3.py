"""Garbage collection on an object store: removal in batches, and failing requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph.errors import StorageError
from omnigraph.maintain.cleanup import cleanup
from tests.maintain.graphs import (
    CITY,
    KNOWS,
    NO_GRACE,
    PERSON,
    RECLAIMED,
    new_graph,
    overwrite,
    reopened,
    rows_at,
)
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]


def tables_in(bucket: Bucket) -> list[str]:
    return [key for key in bucket.keys if key.startswith(("g/nodes/", "g/edges/"))]


def test_old_versions_go_from_a_bucket_and_the_rest_reads_on(s3: Bucket) -> None:
    graph = new_graph(f"{s3.uri}/g", s3.options)
    commits = [overwrite(graph, f"p{number}", key=key) for number in range(3) for key in (PERSON, CITY)]
    before = tables_in(s3)
    predicted = cleanup(graph, keep=1, grace=NO_GRACE)
    assert tables_in(s3) == before
    report = cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    assert report == replace(predicted, confirmed=True)
    assert report.files_removed == len(before) - len(tables_in(s3)) == 12
    fresh = reopened(graph, s3.options)
    assert [rows_at(fresh, commit) == RECLAIMED for commit in commits] == [True] * 5 + [False]


def test_removal_takes_one_request_for_versions_and_one_for_the_rest(s3: Bucket) -> None:
    graph = new_graph(f"{s3.uri}/g", s3.options)
    for number in range(4):
        overwrite(graph, f"p{number}")
    with s3.seam.recording() as log:
        cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    # One more removes the object that was written to read the clock.
    assert (log.count("POST"), log.count("DELETE")) == (3, 0)


def test_cleanup_makes_three_swaps_and_one_for_all_heads_or_none_at_all(s3: Bucket) -> None:
    graph = new_graph(f"{s3.uri}/g", s3.options)
    for number in range(4):
        graph.create_branch(f"b{number}")
        overwrite(graph, "a", branch=f"b{number}")
        overwrite(graph, "b", branch=f"b{number}")
    swaps = []
    for _ in range(2):
        with s3.seam.recording() as log:
            cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
        swaps.append(log.count("PUT", "__manifest/_versions/"))
    assert swaps == [4, 0]


def test_a_type_whose_removal_fails_does_not_stop_the_others(s3: Bucket) -> None:
    graph = new_graph(f"{s3.uri}/g", s3.options)
    for key in (CITY, PERSON, KNOWS):
        overwrite(graph, "a", key=key)
        overwrite(graph, "b", key=key)
    with s3.seam.fail(403, method="POST", nth=3):
        report = cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    failed = [item for item in report.datasets if item.error is not None]
    assert len(failed) == 1
    # The version files were removed first, so the remaining files belong to no version.
    assert (failed[0].files_removed, failed[0].old_versions_removed) == (1, 1)
    assert report.old_versions_removed == 3
    again = cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    assert (again.files_removed, again.old_versions_removed) == (2, 0)
    assert rows_at(reopened(graph, s3.options), graph.head().commit) != RECLAIMED


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.faults)], ids=["some", "all"])
def test_whichever_request_fails_nothing_retained_is_lost(s3: Bucket, step: int) -> None:
    graph = new_graph(f"{s3.uri}/g", s3.options)
    outcomes: list[str] = []
    for cut in range(1, 80, step):
        overwrite(graph, f"p{cut}")
        before = tables_in(s3)
        with s3.seam.fail(403, nth=cut) as fault:
            try:
                report = cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
                failed = report.objects_error is not None or any(item.error for item in report.datasets)
                outcomes.append("reported" if failed else "done")
            except StorageError:
                # Marking failed, so nothing may be removed.
                outcomes.append("refused")
                assert tables_in(s3) == before
        assert rows_at(reopened(graph, s3.options), graph.head().commit) != RECLAIMED
        if not fault.hits:
            break
    assert outcomes[-1] == "done"
    assert {"refused", "reported"} <= set(outcomes)
    assert cleanup(graph, keep=1, grace=NO_GRACE).files_removed == 0
