"""Several writes of one handle that are certain to be committed as one group."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from omnigraph.graph.publish import PublishReceipt
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import Prepare, WriteRequest
from tests.support.waiting import HANG, wait_until


@dataclass(frozen=True)
class GroupWrite:
    """One write of a group."""

    prepare: Prepare[Any]
    request: WriteRequest = field(default_factory=lambda: WriteRequest("write"))


def write_group(
    graph: Repository, writes: Sequence[GroupWrite], branch: str = "main", *, behind_another: bool = False
) -> list[PublishReceipt | Exception | None]:
    """Commit writes as one group, in this order; return the receipt or the error of each.

    The first write leads. It is held inside its preparation until all the others wait. With `behind_another` a
    write that changes nothing leads instead, and all these writes wait.
    """
    entered, released = threading.Event(), threading.Event()
    nothing = GroupWrite(lambda _: Prepared(None, None))
    first, *others = [nothing, *writes] if behind_another else writes

    def held(transaction: Transaction) -> Prepared[Any]:
        entered.set()
        assert released.wait(HANG)
        return first.prepare(transaction)

    def run(item: GroupWrite) -> PublishReceipt | Exception | None:
        try:
            return graph.write(branch, item.request, item.prepare).receipt
        except Exception as error:  # noqa: BLE001 - the caller looks at it
            return error
        finally:
            # A storage fault can end the first write before its preparation.
            entered.set()

    with ThreadPoolExecutor(1 + len(others)) as threads:
        running = [threads.submit(run, GroupWrite(held, first.request))]
        assert entered.wait(HANG)
        try:
            for item in others:
                running.append(threads.submit(run, item))
                wait_until(partial(_have_arrived, graph, branch, running), "the queue")
        finally:
            released.set()
        outcomes = [item.result(HANG) for item in running]
        return outcomes[1:] if behind_another else outcomes


def _have_arrived(graph: Repository, branch: str, running: Sequence[Future[Any]]) -> bool:
    """Whether all writes behind the first wait, except those that were refused, or none has to wait any more."""
    first, *others = running
    ended = sum(item.done() for item in others)
    return first.done() or graph.write_queue.waiting(branch) + ended == len(others)


def receipts(outcomes: Sequence[PublishReceipt | Exception | None]) -> list[PublishReceipt]:
    """Return the receipts of a group of which every write made a commit."""
    found = [item for item in outcomes if isinstance(item, PublishReceipt)]
    assert len(found) == len(outcomes), outcomes
    return found
