"""Worker processes that are killed at one of their requests to an object store."""

from __future__ import annotations

from tests.support.crash import WorkerTask, start
from tests.support.s3 import Bucket
from tests.support.s3_seam import Log


def run_recorded(task: WorkerTask, bucket: Bucket) -> Log:
    """Run a task to its end and return its requests. Raises `AssertionError` if the task was refused."""
    with bucket.seam.recording() as log:
        output, errors = start(task).communicate()
    assert _acknowledged(output) is not None, output + errors
    return log


def run_cut(task: WorkerTask, bucket: Bucket, at: int, *, applied: bool) -> str | None:
    """Run a task and kill it at request number `at`; return what it acknowledged before.

    `applied` decides whether the store executes that request.
    """
    process = start(task)
    try:
        with bucket.seam.cut(process.kill, nth=at, applied=applied):
            output, _ = process.communicate()
    finally:
        process.close()
    return _acknowledged(output)


def _acknowledged(output: str) -> str | None:
    return next(
        (line.removeprefix("ACK").strip() for line in output.splitlines() if line.startswith("ACK")), None
    )
