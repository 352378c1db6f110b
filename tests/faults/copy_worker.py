"""A process that writes, optimizes or collects garbage beside backups; see `tests.support.workers`.

A writer appends the id of each acknowledged commit to a file, after the call has returned.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from omnigraph.errors import Conflict
from omnigraph.graph.repository import Repository
from omnigraph.maintain.cleanup import cleanup
from omnigraph.maintain.optimize import optimize
from tests.support.workers import report, wait_for_start
from tests.support.workload import change, pairs, write


def write_rows(graph: Repository, task: dict[str, Any], goes_on: Callable[[], bool]) -> dict[str, int]:
    """Insert pairs of rows, and delete them again after some commits; report the number of commits."""
    number, branch = 0, task["branch"]
    # Not among the rows that the graph starts with.
    first = (task["number"] + 1) * 1_000_000
    with Path(task["log"]).open("a", encoding="utf-8") as log:
        while goes_on():
            id_ = first + number
            doomed = pairs(id_ - 5) if number % 3 == 0 else {}
            try:
                commit = write(graph, change(doomed, pairs(id_)), branch=branch, bulk=number % 7 == 0)
            except Conflict:
                time.sleep(0.05)
                continue
            log.write(commit + "\n")
            log.flush()
            number += 1
            time.sleep(task["pause"])
    return {"commits": number}


def compact_tables(graph: Repository, task: dict[str, Any], goes_on: Callable[[], bool]) -> dict[str, int]:
    """Compact and index repeatedly; report the number of commits."""
    commits = 0
    while goes_on():
        commits += optimize(graph, branch="main").commit is not None
        time.sleep(task["pause"])
    return {"commits": commits}


def collect(graph: Repository, task: dict[str, Any], goes_on: Callable[[], bool]) -> dict[str, int]:
    """Run garbage collection repeatedly; report the number of removed files."""
    removed = 0
    while goes_on():
        found = cleanup(graph, keep=3, confirm=True, grace=timedelta(seconds=task["grace"]))
        assert [item.error for item in found.datasets if item.error] == []
        removed += found.files_removed
        time.sleep(task["pause"])
    return {"removed": removed}


def main() -> None:
    task: dict[str, Any] = json.loads(sys.argv[1])
    graph = Repository.open(task["uri"], options=task["options"], durability="os")
    wait_for_start()

    def goes_on() -> bool:
        return not Path(task["until"]).exists()

    work = {"write": write_rows, "optimize": compact_tables, "collect": collect}[task["work"]]
    report(work(graph, task, goes_on))


if __name__ == "__main__":
    main()
