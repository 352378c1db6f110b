"""A process that writes to a graph or runs garbage collection; see `tests.support.workers`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.maintain.cleanup import cleanup
from omnigraph.maintain.upkeep import Upkeep
from tests.maintain.graphs import KNOWS, PERSON, rows_of
from tests.support.workers import report, wait_for_start


def write(graph: Repository, name: str, branch: str, goes_on: Callable[[], bool]) -> dict[str, Any]:
    """Insert rows; each commit deletes the row before the last. Return the rows and the commits."""
    alive: list[str] = []
    number = 0
    while goes_on() or number < 2:
        id_ = f"{name}-{number}"
        doomed = alive[:-1]
        both = number % 5 == 0

        def prepare(
            transaction: Transaction, id_: str = id_, doomed: list[str] = doomed, both: bool = both
        ) -> Prepared[None]:
            transaction.stage(
                PERSON, delete_ids=doomed, insert=rows_of(transaction.base.catalog, PERSON, [id_])
            )
            if both:
                transaction.stage(KNOWS, insert=rows_of(transaction.base.catalog, KNOWS, [id_]))
            return Prepared("insert", None)

        graph.write(branch, WriteRequest("insert", bulk=number % 7 == 0), prepare)
        alive = [*(item for item in alive if item not in doomed), id_]
        number += 1
    return {"alive": alive, "commits": number}


def branch_off(graph: Repository, name: str, goes_on: Callable[[], bool]) -> dict[str, Any]:
    """Create branches, write to them, read them back and delete them."""
    rounds = 0
    while goes_on() or rounds < 2:
        branch = f"{name}-{rounds}"
        base = graph.create_branch(branch).commit
        short = time.monotonic() + 0.2
        write(graph, branch, branch, lambda: goes_on() and time.monotonic() < short)  # noqa: B023
        expected = base.tables[str(graph.snapshot(branch).table(PERSON).id)].rows
        assert graph.snapshot(at=base.id).scan(PERSON).num_rows == expected
        graph.delete_branch(branch)
        rounds += 1
    return {"rounds": rounds}


def main() -> None:
    task: dict[str, Any] = json.loads(sys.argv[1])
    graph = Repository.open(task["uri"], durability="os")
    if "upkeep" in task:
        graph.background = Upkeep(graph, every=task["upkeep"])
    wait_for_start()

    def goes_on() -> bool:
        return not Path(task["until"]).exists()

    match task["work"]:
        case "write":
            report(write(graph, task["name"], "main", goes_on))
        case "branch":
            report(branch_off(graph, task["name"], goes_on))
        case "once":
            found = cleanup(graph, keep=1, confirm=True, grace=timedelta(0))
            report({"removed": found.files_removed})
    graph.close()


if __name__ == "__main__":
    main()
