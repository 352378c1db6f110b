"""Crash cuts on an object store: a writer killed at any request leaves the old or the new state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import Cuts, wanted_cuts
from tests.support.s3 import Bucket
from tests.support.s3_cuts import run_cut, run_recorded
from tests.support.s3_fixtures import s3, s3_server
from tests.support.s3_graphs import upload_graph
from tests.support.workload import (
    EVERY_KIND,
    KINDS,
    MERGE_KINDS,
    Setting,
    State,
    Task,
    after_all,
    check_invariants,
    look,
)

__all__ = ["s3", "s3_server"]

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(3_600)]
# test_crash_cuts covers the other kinds on a local disk. `make faults` runs them here too.
SAMPLE = ("append", "bulk", "group", "merge-rows")
EVERY = tuple(name for name in KINDS | MERGE_KINDS if name not in ("heal", "fold-and-trim-the-log"))


def _check(
    kind: str, uri: str, bucket: Bucket, acknowledged: str | None, before: State, after: State
) -> None:
    found = check_invariants(
        uri,
        bucket.options,
        acknowledged=[acknowledged] if acknowledged else [],
        lease_seconds=0,
        touched=EVERY_KIND[kind].touched,
    )
    assert found.state in (before, after), f"{found.state} is neither {before} nor {after}"
    if acknowledged is not None:
        assert found.state == after, "what was acknowledged is not there"


@pytest.mark.parametrize("kind", SAMPLE if wanted_cuts() == "sample" else EVERY)
def test_a_writer_that_dies_at_a_request_leaves_the_state_before_or_after(
    kind: str, s3: Bucket, settings: Callable[[Setting], Path], cuts: Cuts
) -> None:
    template = settings(EVERY_KIND[kind].setting)
    uri = upload_graph(template, s3, "whole")
    before = look(uri, s3.options)
    log = run_recorded(Task(kind, uri, options=s3.options), s3)
    after = look(uri, s3.options)
    assert before is not None
    assert after is not None
    for at in cuts.chosen_requests(log):
        for applied in (False, True):
            cut = f"{log.requests[at - 1]} (applied: {applied})"
            with s3.server.bucket() as bucket, cuts.watching(at, cut):
                uri = upload_graph(template, bucket, "graph")
                acknowledged = run_cut(Task(kind, uri, options=bucket.options), bucket, at, applied=applied)
                expected = after_all(kind, uri, before, after, bucket.options)
                _check(kind, uri, bucket, acknowledged, before, expected)
    cuts.report()
