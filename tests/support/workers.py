"""Python processes that start a piece of work at the same moment.

Each worker is a module, run as by `python -m`. It prepares itself, calls `wait_for_start()`, does its work and
prints one JSON line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.forked import Worker, start_worker

ROOT = Path(__file__).parents[2]


def wait_for_start() -> None:
    """In a worker: report that everything is imported and opened, and wait for the others."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


def report(result: object) -> None:
    """In a worker: hand the result to the test."""
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


@contextmanager
def started(module: str, arguments: Sequence[dict[str, Any]]) -> Iterator[list[Worker]]:
    """Processes of a worker module, all ready; released by `release`, and gone afterwards in any case."""
    processes = [start_worker(module, json.dumps(argument)) for argument in arguments]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n", f"{module} did not start"
        yield processes
    finally:
        for process in processes:
            process.close()


def release(processes: Sequence[Worker]) -> None:
    """Let ready workers begin."""
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()


def results(processes: Sequence[Worker]) -> list[Any]:
    """What each worker reported; a worker that failed fails the test."""
    found = []
    for process in processes:
        output, errors = process.communicate()
        assert process.returncode == 0, f"a worker ended with {process.returncode}:\n{errors}"
        found.append(json.loads(output.splitlines()[-1]))
    return found


def run_together(module: str, arguments: Sequence[dict[str, Any]]) -> list[Any]:
    """Run one worker per argument, all at once, and collect their results."""
    with started(module, arguments) as processes:
        release(processes)
        return results(processes)
