"""Properties of Lance on S3 that the design relies on: compare-and-swap and its requests."""

from __future__ import annotations

from collections.abc import Callable

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation
from lance.commit import CommitConflictError
from lance.fragment import write_fragments

from omnigraph.store.storage_options import lance_options
from tests.contract.lance_worker import swap_head
from tests.support.s3 import Bucket
from tests.support.s3_seam import How
from tests.support.workers import run_together

pytest_plugins = ["tests.support.s3_fixtures"]

ROW = pa.table({"writer": ["first"]})


@pytest.fixture
def dataset(s3: Bucket) -> lance.LanceDataset:
    return lance.write_dataset(
        ROW, f"{s3.uri}/table", mode="create", storage_options=lance_options(s3.options)
    )


def opened(s3: Bucket, version: int | None = None) -> lance.LanceDataset:
    return lance.dataset(f"{s3.uri}/table", version=version, storage_options=lance_options(s3.options))


def requests_of(s3: Bucket, call: Callable[[], object]) -> list[str]:
    """Return the requests of a call without their random names."""
    with s3.seam.recording(latency=0.005) as log:
        call()
    assert log.serial == len(log.requests)
    kinds = {"data/": "data", "_transactions/": "transaction", "_versions/": "manifest"}
    return [
        f"{request.method} "
        + next(
            (name for part, name in kinds.items() if part in request.key), "list" if not request.key else "?"
        )
        for request in log.requests
    ]


def test_of_two_commits_on_one_fragment_one_wins(s3: Bucket, dataset: lance.LanceDataset) -> None:
    assert swap_head(dataset, "one")
    assert not swap_head(dataset, "two")
    assert opened(s3).to_table().to_pydict() == {"writer": ["one"]}


def test_commits_of_several_processes_form_one_chain(s3: Bucket, dataset: lance.LanceDataset) -> None:
    processes, times = 3, 5
    tasks = [
        {
            "uri": f"{s3.uri}/table",
            "options": lance_options(s3.options),
            "name": f"p{number}",
            "times": times,
        }
        for number in range(processes)
    ]
    won = [tuple(swap) for swaps in run_together("tests.contract.lance_worker", tasks) for swap in swaps]
    assert len(won) == processes * times
    # Each version was replaced by exactly one winner, and the version after it holds that winner's row.
    assert sorted(base for base, _ in won) == list(range(dataset.version, dataset.version + len(won)))
    for base, text in won:
        assert opened(s3, base + 1).to_table().to_pydict() == {"writer": [text]}


@pytest.mark.parametrize("how", ["drop", "applied_500"])
def test_lance_recognises_its_own_commit_when_the_reply_was_lost(
    s3: Bucket, dataset: lance.LanceDataset, how: How
) -> None:
    with s3.seam.fail(how, method="PUT", key="_versions/") as fault:
        assert swap_head(dataset, "second")
    assert fault.hits == 1
    assert opened(s3).to_table().to_pydict() == {"writer": ["second"]}


def test_a_commit_that_never_arrived_is_an_error_and_not_a_conflict(
    s3: Bucket, dataset: lance.LanceDataset
) -> None:
    with s3.seam.fail("reset", method="PUT", key="_versions/"), pytest.raises(OSError, match="S3") as caught:
        swap_head(dataset, "second")
    assert not isinstance(caught.value, CommitConflictError)
    assert opened(s3).to_table().to_pydict() == {"writer": ["first"]}


def test_writing_a_fragment_through_a_handle_is_one_request(s3: Bucket, dataset: lance.LanceDataset) -> None:
    assert requests_of(s3, lambda: write_fragments(ROW, dataset)) == ["PUT data"]


def test_a_detached_commit_is_two_requests(s3: Bucket, dataset: lance.LanceDataset) -> None:
    append = LanceOperation.Append(write_fragments(ROW, dataset))
    assert requests_of(
        s3,
        lambda: lance.LanceDataset.commit(dataset, append, read_version=dataset.version, detached=True),
    ) == ["PUT transaction", "PUT manifest"]


def test_opening_a_detached_version_lists_nothing(s3: Bucket, dataset: lance.LanceDataset) -> None:
    append = LanceOperation.Append(write_fragments(ROW, dataset))
    staged = lance.LanceDataset.commit(dataset, append, read_version=dataset.version, detached=True)
    assert requests_of(s3, lambda: opened(s3, staged.version)) == ["HEAD manifest", "GET manifest"]


def test_a_commit_on_the_head_is_three_requests(s3: Bucket, dataset: lance.LanceDataset) -> None:
    append = LanceOperation.Append(write_fragments(ROW, dataset))
    assert requests_of(
        s3, lambda: lance.LanceDataset.commit(dataset, append, read_version=dataset.version)
    ) == ["GET list", "PUT transaction", "PUT manifest"]


def test_the_newest_version_is_one_request(s3: Bucket, dataset: lance.LanceDataset) -> None:
    assert requests_of(s3, lambda: dataset.latest_version) == ["GET list"]
