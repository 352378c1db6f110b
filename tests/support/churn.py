"""A process that writes and writes, to be killed at any moment, and a model of what it may have left.

    python -m tests.support.churn '{"uri": "…", "worker": 3, "first": 0, "life": 0, …}'

Each step prints ``BEGIN <step>`` before it starts and then ``ACK <step> <commit>``, ``NONE <step>`` or
``LOST <step> <code>``. What a step does follows from the seed, the worker and the step alone, so a worker that was
killed is started again at the step it had begun, and the test knows what each may have done.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Literal, TypeAlias

from omnigraph.errors import Conflict
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import Prepare
from tests.support.rows import compact
from tests.support.workload import BOTH, PAIR, PERSON, change, rows_of, say, write

Action: TypeAlias = Literal["insert", "insert-once", "insert-if-absent", "delete", "count", "rewrite"]
COUNTER: Final = f"{PAIR}-counter"
SHARED: Final = 6
_WEIGHTS: Final[dict[Action, int]] = {
    "insert": 5,
    "insert-once": 4,
    "insert-if-absent": 2,
    "delete": 3,
    "count": 4,
    "rewrite": 1,
}


@dataclass(frozen=True, slots=True)
class Churn:
    """One life of a worker: the steps from `first` up to, but without, `last`."""

    uri: str
    branch: str
    seed: int
    worker: int
    life: int
    first: int
    last: int
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def bulk(self) -> bool:
        """Every second worker leaves intents."""
        return self.worker % 2 == 1

    def to_argument(self) -> str:
        """The JSON form that the process takes."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Step:
    """What one step does to which row."""

    action: Action
    id: str


def step_of(seed: int, worker: int, number: int, life: int) -> Step:
    """The step of that number. A life that repeats a step uses another id, unless a key makes repeating safe."""
    chance = random.Random(f"{seed}/{worker}/{number}")
    action = chance.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))[0]
    if action == "insert-if-absent":
        return Step(action, f"{PAIR}-shared-{chance.randrange(SHARED)}")
    if action == "delete":
        # Of the worker's own earlier rows; it may be gone already, or never have been.
        return Step(action, f"{PAIR}-{worker}-once-{chance.randrange(max(1, number))}")
    if action == "count":
        return Step(action, COUNTER)
    own = f"once-{number}" if action == "insert-once" else f"{number}-{life}"
    return Step(action, f"{PAIR}-{worker}-{own}")


def act(graph: Repository, churn: Churn, number: int) -> str:
    """Do a step; gives the commit, or an empty text when there was nothing to do."""
    step = step_of(churn.seed, churn.worker, number, churn.life)
    if step.action == "insert":
        return _write(graph, churn, step, change(insert={step.id: number}))
    if step.action == "insert-once":
        return _write(graph, churn, step, change(insert={step.id: number}), key=step.id)
    if step.action == "delete":
        return _write(graph, churn, step, change([step.id], strict=True))

    def prepare(transaction: Transaction) -> Prepared[None]:
        if step.action == "rewrite":
            for key in BOTH:
                transaction.write(key, compact(transaction.base.tables, transaction.pin(key)))
            return Prepared("maintenance", None)
        transaction.read(PERSON)
        found = transaction.base.scan(PERSON, where=f"id = '{step.id}'")
        if step.action == "insert-if-absent":
            if found.num_rows:
                return Prepared(None, None)
            return change(insert={step.id: 0})(transaction)
        value = counted(found.to_pylist()) + 1
        for key in BOTH:
            transaction.stage(key, delete_ids=[step.id], insert=rows_of(transaction, key, {step.id: value}))
        return Prepared("strict", None)

    return _write(graph, churn, step, prepare)


def counted(rows: list[dict[str, object]]) -> int:
    """What the counter stands at."""
    values = [value for row in rows for value in row.values() if isinstance(value, int)]
    return values[0] if values else 0


def _write(
    graph: Repository, churn: Churn, step: Step, prepare: Prepare[None], key: str | None = None
) -> str:
    return write(graph, prepare, branch=churn.branch, bulk=churn.bulk, operation=step.action, key=key)


def main() -> None:
    churn = Churn(**json.loads(sys.argv[1]))
    graph = Repository.open(churn.uri, options=churn.options)
    for number in range(churn.first, churn.last):
        say(f"BEGIN {number}")
        try:
            commit = act(graph, churn, number)
        except Conflict as error:
            say(f"LOST {number} {error.code}")
        else:
            say(f"ACK {number} {commit}" if commit else f"NONE {number}")


if __name__ == "__main__":
    main()
