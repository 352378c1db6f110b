"""The arguments and the return value of `Repository.write`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from omnigraph.graph.argument_checks import check_text
from omnigraph.graph.pipeline_runs import PipelineRun
from omnigraph.graph.publish import PublishReceipt
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared

T = TypeVar("T")

# Stages a write into a transaction. A write whose branch moved calls it again with a new transaction.
Prepare: TypeAlias = Callable[[Transaction], Prepared[T]]


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The operation name, the commit metadata and the preconditions of a write.

    `request` is compared when an idempotency key is used again. A `bulk` write has an intent; `intent_id` is the id
    of one that `Repository.lease_intent` created for it. A write that is `alone` is not committed in a group. One
    that `starts_group` reads the lineage, so it is prepared on a published commit; others may join its group. Other
    writers never wait for a write that is in the `background`. `run` is the pipeline run that makes the commit; its
    state is committed even if no row changes.
    """

    operation: str
    actor: str | None = None
    message: str | None = None
    expected_head: str | None = None
    idempotency_key: str | None = None
    request: str = ""
    bulk: bool = False
    alone: bool = False
    starts_group: bool = False
    background: bool = False
    intent_id: str | None = None
    run: PipelineRun | None = None

    def __post_init__(self) -> None:
        check_text("actor", self.actor)
        check_text("message", self.message)
        check_text("if_commit", self.expected_head)
        check_text("idempotency_key", self.idempotency_key)


class WriteResult(NamedTuple, Generic[T]):
    """The receipt of a write, and the result of the preparation that was committed.

    `receipt` is None when there was nothing to commit. `result` is None when an earlier request with the same
    idempotency key made the commit: then nothing was prepared.
    """

    receipt: PublishReceipt | None
    result: T | None
