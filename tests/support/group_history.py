"""Threads that insert, update and delete rows of one branch, and the check of the history that they leave.

The message of every commit states its step. Replaying the messages therefore gives the state of every commit.

    python -m tests.support.group_history '{"uri": "…", "worker": "a", "threads": 4, "seed": 1}'

writes until it is killed, and prints ``ACK <commit> <message>`` for every commit.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice, pairwise
from typing import Any, Final

import omnigraph as og
from omnigraph.errors import Conflict
from omnigraph.graph.repository import Repository

SCHEMA: Final = "node Person { name: String @key  age: I32? }\n"
QUERIES: Final = {
    "put": "query put($n: String, $a: I32) { insert Person { name: $n, age: $a } }",
    "set": "query set_age($n: String, $a: I32) { update Person set { age: $a } where name = $n }",
    "drop": "query remove($n: String) { delete Person where name = $n }",
}
ALL: Final = "query everyone() { match { $p: Person } return { $p.name as name, $p.age as age } }"

Rows = dict[str, int]


@dataclass(frozen=True)
class Step:
    """One write of a thread: its place among the steps of the thread, the action, the key and the value."""

    writer: str
    number: int
    action: str
    key: str
    value: int

    @property
    def message(self) -> str:
        """The message of its commit."""
        return f"{self.writer} {self.number} {self.action} {self.key} {self.value}"

    @classmethod
    def parse(cls, message: str) -> Step:
        """Return the step of a message."""
        writer, number, action, key, value = message.split(" ")
        return cls(writer, int(number), action, key, int(value))

    def apply(self, rows: Rows) -> None:
        """Change rows as the step does."""
        if self.action == "drop":
            rows.pop(self.key, None)
        elif self.action == "put" or self.key in rows:
            rows[self.key] = self.value

    def run(self, graph: og.Graph) -> str | None:
        """Write the step; return its commit, None if it changed nothing or lost against another writer."""
        params: dict[str, Any] = {"n": self.key}
        if self.action != "drop":
            params["a"] = self.value
        try:
            commit = graph.mutate(QUERIES[self.action], params, message=self.message).commit
        except Conflict:
            return None
        return None if commit is None else commit.id


def steps_of(writer: str, seed: int) -> Iterator[Step]:
    """Yield the steps of a thread. They change its own rows, and rows that all threads share."""
    chance = random.Random(f"{writer} {seed}")
    for number in count():
        own = f"{writer}-{number - chance.randrange(4)}" if chance.random() < 0.5 else f"{writer}-{number}"
        key = own if chance.random() < 0.8 else f"shared-{chance.randrange(3)}"
        action = chance.choices(["put", "set", "drop"], [3, 1, 1])[0]
        yield Step(writer, number, action, key, chance.randrange(1_000))


def write_steps(
    graph: og.Graph, writers: list[str], seed: int, number: int | None, report: Callable[[str, Step], None]
) -> None:
    """Run the steps of some writers, each in a thread of its own. `report` gets the commit of every step."""
    lock = threading.Lock()
    errors: list[BaseException] = []

    def work(writer: str) -> None:
        try:
            for step in islice(steps_of(writer, seed), number):
                commit = step.run(graph)
                if commit is not None:
                    with lock:
                        report(commit, step)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def check_history(
    uri: str, acknowledged: Mapping[str, str], unreported: int, options: Mapping[str, str] | None = None
) -> int:
    """Check the history of a graph against the commits that its writers were told of; return its length.

    Every acknowledged commit is in one chain, once, with its message. At most `unreported` commits have no report.
    Every commit can be read, and has the rows that the messages up to it give.
    """
    given = dict(options or {})
    repository = Repository.open(uri, options=given)
    chain = list(repository.commits())[::-1]
    for before, after in pairwise(chain):
        assert (after.parent, after.sequence) == (before.id, before.sequence + 1)
    written = {item.id: item.message or "" for item in chain if item.operation == "mutate"}
    assert len(set(written.values())) == len(written), "a step was committed twice"
    assert {id_: written.get(id_) for id_ in acknowledged} == dict(acknowledged)
    assert len(written) - len(acknowledged) <= unreported
    numbers: dict[str, int] = {}
    rows: Rows = {}
    with og.open(uri, storage_options=given) as graph:
        for id_, message in written.items():
            step = Step.parse(message)
            assert numbers.get(step.writer, -1) < step.number, "steps of a thread are out of order"
            numbers[step.writer] = step.number
            step.apply(rows)
            found = {row["name"]: row["age"] for row in graph.query(ALL, at=id_).rows()}
            assert found == rows, f"commit {id_}: {message}"
    repository.close()
    return len(written)


def main() -> None:
    """Write until the process is killed."""
    asked = json.loads(sys.argv[1])

    def report(commit: str, step: Step) -> None:
        sys.stdout.write(f"ACK {commit} {step.message}\n")
        sys.stdout.flush()

    graph = og.open(asked["uri"], durability="os")
    writers = [f"{asked['worker']}.{number}" for number in range(asked["threads"])]
    write_steps(graph, writers, asked["seed"], None, report)


if __name__ == "__main__":
    main()
