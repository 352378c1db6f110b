"""A process with one long-lived handle that runs random mutations and loads.

    python -m tests.faults.api_churn '{"uri": "…", "worker": 3, "first": 0, …}'

Each step prints ``BEGIN <step>`` and then ``ACK <step> <receipt>``, ``NONE <step>``, or ``LOST <step> <code>``.
A step is determined by the seed, the worker, the run and the step number. The commit message describes it, so that
the history can be replayed from the commits.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import omnigraph as og
from omnigraph.errors import Conflict, ConstraintViolation
from tests.model import people_model as model
from tests.model.people_model import Load, State, Statement
from tests.support.api_writes import WRITER, loading_in_bulk
from tests.support.workload import say

NAMES: Final = [f"p{number}" for number in range(7)]
EDGE_IDS: Final = [f"e{number}" for number in range(4)]


@dataclass(frozen=True, slots=True)
class Churn:
    """One run of a worker: the steps from `first` up to, but without, `last`, on some branches."""

    uri: str
    branches: tuple[str, ...]
    seed: int
    worker: int
    life: int
    first: int
    last: int

    def to_argument(self) -> str:
        """Return the JSON form, which is the argument of the process."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Step:
    """A write, either a mutation or a load."""

    branch: str
    statements: tuple[Statement, ...] = ()
    load: Load | None = None
    bulk: bool = False

    def to_message(self) -> str:
        """Return the commit message."""
        loaded = None if self.load is None else asdict(self.load)
        return json.dumps({"statements": [asdict(item) for item in self.statements], "load": loaded})


def on(state: State, message: str) -> State:
    """Return the state after the write that a message describes."""
    told = json.loads(message)
    if told["load"] is None:
        return model.mutate(state, [Statement(**item) for item in told["statements"]])
    loaded = told["load"]
    people = None if loaded["people"] is None else [(name, age) for name, age in loaded["people"]]
    knows = None if loaded["knows"] is None else [(id_, (a, b, n)) for id_, (a, b, n) in loaded["knows"]]
    return model.load(state, Load(loaded["mode"], people, knows))


def step_of(churn: Churn, number: int) -> Step:
    """Return a step by its number. Every row that it writes is unique."""
    chance = random.Random(f"{churn.seed}/{churn.worker}/{churn.life}/{number}")
    branch = chance.choice(churn.branches)
    serial = (churn.life * 100 + churn.worker + 1) * 10_000 + number * 10
    if chance.random() < 0.6:
        return Step(branch, tuple(_statements(chance, serial)))
    modes: list[model.Mode] = ["merge", "merge", "append", "overwrite"]
    mode = chance.choice(modes)
    few = chance.sample(NAMES, 2 if mode == "append" else 4)
    people = [(name, serial + place) for place, name in enumerate(few)]
    knows = [(chance.choice(EDGE_IDS), (chance.choice(few), chance.choice(few), serial + 8))]
    if mode == "append" and chance.random() < 0.7:
        people = [(f"own-{serial}", serial)]
        knows = [(f"own-{serial}", (f"own-{serial}", f"own-{serial}", serial + 8))]
    load = Load(mode, people, knows if mode == "overwrite" or chance.random() < 0.7 else None)
    return Step(branch, load=load, bulk=chance.random() < 0.3)


def _statements(chance: random.Random, serial: int) -> list[Statement]:
    verb = chance.choice(["put", "put", "link", "lead", "update", "delete", "mixed"])
    a, b, c = chance.sample(NAMES, 3)
    put, link = Statement("put", a, serial), Statement("Knows", a, serial + 1, b)
    match verb:
        case "put":
            return [put]
        case "link":
            # With its own ends, so that the mutation cannot fail.
            return [put, Statement("put", b, serial + 2), link]
        case "lead":
            return [Statement("Leads", a, serial + 1, b)]
        case "update":
            return [Statement("update", a, serial)]
        case "delete":
            return [Statement("delete", a)]
    return [Statement("delete", a), put, Statement("put", b, serial + 2), link, Statement("delete", c)]


def act(graph: og.Graph, step: Step) -> Mapping[str, Any] | None:
    """Run a step; return the receipt, or None if there was nothing to do."""
    message = step.to_message()
    done: og.Receipt | og.LoadReceipt
    if step.load is None:
        done = graph.mutate(model.mutation(step.statements), branch=step.branch, message=message)
    elif step.bulk:
        with loading_in_bulk():
            done = graph.load(step.load.source(), step.load.mode, branch=step.branch, message=message)
    else:
        done = graph.load(step.load.source(), step.load.mode, branch=step.branch, message=message)
    if done.commit is None:
        return None
    return {"commit": done.commit.id, "affected": {name: dict(of) for name, of in done.affected.items()}}


def main() -> None:
    churn = Churn(**json.loads(sys.argv[1]))
    graph = og.open(churn.uri, actor=WRITER, durability="os")
    for number in range(churn.first, churn.last):
        say(f"BEGIN {number}")
        try:
            told = act(graph, step_of(churn, number))
        except (Conflict, ConstraintViolation) as error:
            say(f"LOST {number} {error.code}")
        else:
            say(f"NONE {number}" if told is None else f"ACK {number} {json.dumps(told)}")


if __name__ == "__main__":
    main()
