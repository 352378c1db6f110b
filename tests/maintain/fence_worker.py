"""A writer that stops itself with SIGSTOP at a chosen point of its write; see `tests.support.workers`.

It stops once: after it has staged its files, or directly before the swap, when every check has passed. When it is
continued, it completes its writes. It reports the number of preparations and the errors.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import Any

from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import Prepare
from omnigraph.store.manifest.manifest import Manifest
from tests.maintain.graphs import PERSON, rows_of
from tests.support.groups import GroupWrite, write_group
from tests.support.workers import report, wait_for_start


class Stop:
    """The point at which this process stops."""

    def __init__(self) -> None:
        self._stopped = False

    def reached(self) -> None:
        """Tell the test and stop until the test continues this process, the first time."""
        if not self._stopped:
            self._stopped = True
            sys.stdout.write("stopping\n")
            sys.stdout.flush()
            # To this thread: another one might receive the signal later, and this one would go on until then.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def stop_before_the_swap(stop: Stop) -> None:
    usual = Manifest._commit

    def commit(self: Manifest, *arguments: Any) -> Any:
        stop.reached()
        return usual(self, *arguments)

    setattr(Manifest, usual.__name__, commit)


def main() -> None:
    task: dict[str, Any] = json.loads(sys.argv[1])
    graph = Repository.open(task["uri"], durability="os", options=task["options"])
    stop, preparations = Stop(), 0

    def insert(id_: str) -> Prepare[None]:
        def prepare(transaction: Transaction) -> Prepared[None]:
            nonlocal preparations
            preparations += 1
            catalog = transaction.base.catalog
            transaction.stage(PERSON, delete_ids=task["delete"], insert=rows_of(catalog, PERSON, [id_]))
            if task["at"] == "staged":
                stop.reached()
            return Prepared(task["class"], None)

        return prepare

    if task["at"] == "swap":
        stop_before_the_swap(stop)
    wait_for_start()
    outcomes = write_group(graph, [GroupWrite(insert(id_)) for id_ in task["ids"]], task["branch"])
    errors = [repr(item) for item in outcomes if isinstance(item, Exception)]
    report({"preparations": preparations, "errors": errors})


if __name__ == "__main__":
    main()
