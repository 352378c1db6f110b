"""Storage faults: each request of each kind of write fails in every way, and the outcome is always defined.

A write that returned is visible. A write that raised is not visible, unless the error is `OutcomeUnknown`. In every
case the graph is consistent afterwards, and the next write succeeds.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from omnigraph.errors import OmnigraphError, OutcomeUnknown, StorageError
from omnigraph.graph.publish import PublishReceipt
from omnigraph.graph.repository import Repository
from tests.faults.conftest import Cuts, wanted_cuts
from tests.support.crash import spread
from tests.support.groups import GroupWrite, receipts, write_group
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server
from tests.support.s3_graphs import digest_bucket, download_graph, upload_graph
from tests.support.s3_seam import Fault, How, Recorded
from tests.support.waiting import HANG, wait_until
from tests.support.workload import (
    EVERY_KIND,
    KINDS,
    MERGE_KINDS,
    PERSON,
    Setting,
    State,
    after_all,
    change,
    check_invariants,
    look,
    pairs,
)

__all__ = ["s3", "s3_server"]

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3_600)]

WAYS: Final[tuple[How | int, ...]] = (503, 403, "reset", "drop", "applied_500", "hang", "late")
# By how many places concurrent requests can change their order.
REORDERED: Final = 8
# The writes of a group can end differently: they have a test of their own.
EVERY: Final = [
    name for name in KINDS | MERGE_KINDS if name not in ("heal", "fold-and-trim-the-log", "group")
]
# One kind for each way to write: rows, deletions, all rows anew, a spilled load, a branch, the log, a merge.
SAMPLE: Final = ["append", "delete", "overwrite", "bulk", "create-branch", "fold-the-log", "merge-and-delete"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a write with one failed request."""

    struck: bool
    error: OmnigraphError | None
    commit: str

    @property
    def visible(self) -> str:
        """What the outcome says of the write: its commit, that there is none, or that it is unknown."""
        if self.error is None:
            return f"commit {self.commit}"
        return "unknown" if isinstance(self.error, OutcomeUnknown) else "none"


def one_attempt(how: How | int) -> dict[str, str]:
    """Return the options of a client without retries, so that no lower layer hides a fault.

    The timeout is short only for requests that the server keeps until the client gives up. On a busy machine every
    request can take as long.
    """
    timeout = "400ms" if how in ("hang", "late") else f"{HANG:.0f}s"
    return {"max_retries": "0", "retry_timeout": "1s", "timeout": timeout}


def _open(uri: str, options: dict[str, str]) -> Repository:
    """Open a graph, again when a request took longer than its timeout."""

    def attempt() -> Repository | None:
        try:
            return Repository.open(uri, options=options)
        except StorageError:
            return None

    return wait_until(attempt, "the graph to open")


@contextlib.contextmanager
def failed_request(bucket: Bucket, how: How | int, nth: int) -> Iterator[Fault]:
    """Let one request fail. In the end the request has no further effect."""
    with bucket.seam.fail(how, nth=nth) as fault:
        yield fault
    wait_until(lambda: fault.ended == fault.hits, "the end of the request that failed")


def _write_with_fault(kind: str, bucket: Bucket, uri: str, how: How | int, nth: int) -> Outcome:
    graph = _open(uri, {**bucket.options, **one_attempt(how)})
    error: OmnigraphError | None = None
    commit = ""
    with contextlib.closing(graph), failed_request(bucket, how, nth) as fault:
        try:
            commit = EVERY_KIND[kind].act(graph)
        except OmnigraphError as raised:
            error = raised
    return Outcome(fault.hits > 0, error, commit)


def _recovered(uri: str, bucket: Bucket, folder: Path) -> str:
    """Recover a graph in a bucket; return a copy of it on a local disk, where checks are quicker."""
    with contextlib.closing(Repository.open(uri, options=bucket.options)) as graph:
        graph.intents.lease_seconds = 0
        graph.recover()
    return download_graph(bucket, "graph", folder / "recovered")


def _check(kind: str, outcome: Outcome, uri: str, before: State, after: State) -> None:
    found = check_invariants(
        uri, acknowledged=[outcome.commit] if outcome.commit else [], touched=EVERY_KIND[kind].touched
    )
    if outcome.error is None:
        assert found.state == after, "an acknowledged write is not there"
    elif isinstance(outcome.error, OutcomeUnknown):
        assert found.state in (before, after), "a write of unknown outcome is there in part"
    else:
        assert found.state == before, f"a write that failed is visible: {outcome.error}"


def chosen_faults(
    requests: Sequence[Recorded], first: int = 0, *, of_each_kind: int | None = None
) -> list[tuple[How | int, int]]:
    """Return the faults to inject, each a way to fail and the number of the request.

    All of them begin with each request once, in alternating ways. The other ways follow: of each request, or of
    the writes and of so many requests of each kind of file. A sample has three: at the start, in the middle and at
    the end. Samples that begin with other ways have all ways together.
    """
    if wanted_cuts() == "sample":
        return [(WAYS[(first + step) % len(WAYS)], nth) for step, nth in enumerate(spread(len(requests), 3))]
    if wanted_cuts() != "all":
        return [(how, int(wanted_cuts())) for how in WAYS]
    numbers = range(1, len(requests) + 1)
    repeated = numbers if of_each_kind is None else _of_each_kind(requests, of_each_kind)
    found = [(WAYS[nth % len(WAYS)], nth) for nth in numbers]
    found += [(WAYS[(nth + turn) % len(WAYS)], nth) for turn in range(1, len(WAYS)) for nth in repeated]
    return [(how, nth) for how, nth in found if how != "late" or _may_write(requests, nth)]


def _of_each_kind(requests: Sequence[Recorded], number: int) -> list[int]:
    """Return the numbers of all writes, and of some reads of each kind of file: first, last and between."""
    kinds: dict[str, list[int]] = {}
    for nth, request in enumerate(requests, start=1):
        # Numbers, ids and random parts of names do not count.
        kind = f"{request.method} {re.sub(r'[0-9A-Za-z]*[0-9][0-9A-Za-z-]*', '*', request.key)}"
        kinds.setdefault(kind if request.method in ("GET", "HEAD") else str(nth), []).append(nth)
    return sorted(numbers[at - 1] for numbers in kinds.values() for at in spread(len(numbers), number))


def _may_write(requests: Sequence[Recorded], nth: int) -> bool:
    """Return whether a request can be a write. A read that is late is a read that hangs.

    Concurrent requests come in another order each time, so the requests around it count as well.
    """
    around = requests[max(nth - 1 - REORDERED, 0) : nth + REORDERED]
    return any(request.method not in ("GET", "HEAD") for request in around)


@pytest.mark.parametrize("kind", SAMPLE if wanted_cuts() == "sample" else EVERY)
def test_a_write_of_which_one_request_fails_is_wholly_there_or_not_at_all(
    kind: str, s3: Bucket, settings: Callable[[Setting], Path], cuts: Cuts, tmp_path: Path
) -> None:
    template = settings(EVERY_KIND[kind].setting)
    uri = upload_graph(template, s3, "calm")
    before = look(uri, s3.options)
    graph = Repository.open(uri, options=s3.options)
    with s3.seam.recording() as log:
        EVERY_KIND[kind].act(graph)
    graph.close()
    after = look(uri, s3.options)
    assert before is not None
    assert after is not None
    struck = 0
    first = SAMPLE.index(kind) * 3 if kind in SAMPLE else 0
    checked: set[tuple[str, str]] = set()
    for how, nth in chosen_faults(log.requests, first):
        # Listings take longer in a bucket with the graphs of all faults before.
        with s3.server.bucket() as bucket, cuts.watching(nth, f"{log.requests[nth - 1]} ({how})"):
            uri = upload_graph(template, bucket, "graph")
            outcome = _write_with_fault(kind, bucket, uri, how, nth)
            struck += outcome.struck
            left = digest_bucket(bucket), outcome.visible
            if left in checked:
                continue
            expected = after_all(kind, uri, before, after, bucket.options)
            _check(kind, outcome, _recovered(uri, bucket, tmp_path), before, expected)
            checked.add(left)
    cuts.report("faults")
    assert struck, "no fault struck"


def test_group_with_one_failed_request_reports_the_outcome_of_each_write(
    s3: Bucket, settings: Callable[[Setting], Path], cuts: Cuts, tmp_path: Path
) -> None:
    template = settings("small")
    numbers = (111, 112, 113)
    writes = [GroupWrite(change(insert=pairs(number))) for number in numbers]
    calm = Repository.open(upload_graph(template, s3, "calm"), options=s3.options)
    with contextlib.closing(calm) as graph, s3.seam.recording() as log:
        assert len(receipts(write_group(graph, writes))) == len(numbers)
    struck = 0
    for how, nth in chosen_faults(log.requests):
        with s3.server.bucket() as bucket, cuts.watching(nth, f"{log.requests[nth - 1]} ({how})"):
            uri = upload_graph(template, bucket, "graph")
            options = {**bucket.options, **one_attempt(how)}
            with contextlib.closing(_open(uri, options)) as graph, failed_request(bucket, how, nth) as fault:
                outcomes = write_group(graph, writes)
            struck += fault.hits > 0
            _check_group(dict(zip(numbers, outcomes, strict=True)), _recovered(uri, bucket, tmp_path))
    cuts.report("faults")
    assert struck, "no fault struck"


def _check_group(outcomes: dict[int, object], uri: str) -> None:
    """Check that each write of a group is visible if it returned, and not if it raised."""
    commits = [item.commit.id for item in outcomes.values() if isinstance(item, PublishReceipt)]
    found = check_invariants(uri, acknowledged=commits)
    _, tables = found.state.branches["main"]
    for number, outcome in outcomes.items():
        assert isinstance(outcome, PublishReceipt | OmnigraphError), f"write {number}: {outcome}"
        is_visible = pairs(number).keys() <= tables[PERSON].keys()
        is_defined = isinstance(outcome, OutcomeUnknown) or is_visible == isinstance(outcome, PublishReceipt)
        assert is_defined, f"write {number}: {outcome}, visible: {is_visible}"
