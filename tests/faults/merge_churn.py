"""A process that writes, creates branches, merges into main, reverts and changes the schema.

    python -m tests.faults.merge_churn '{"uri": "…", "worker": 3, "first": 0, …}'

Each step prints ``BEGIN <step>``, one ``ACK <step> <json>`` for every acknowledged commit, ``LOST <step>
<code>`` if it was rejected, and ``END <step>``. The message of a commit describes it, so that the history can
be replayed from the commits. Every row is a pair, as in `workload`, and has a unique id, so that no two workers
write the same row.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias

import omnigraph as og
from omnigraph.errors import Conflict, NotFound, PreconditionFailed
from tests.support.api_writes import WRITER
from tests.support.workload import PAIR, say

Action: TypeAlias = Literal["insert", "work", "shared", "revert", "schema"]
WEIGHTS: Final[dict[Action, int]] = {"insert": 3, "work": 5, "shared": 4, "revert": 2, "schema": 2}
# Branches that every worker writes to and merges. They are created again after their deletion.
SHARED: Final = ("shared/0", "shared/1")


@dataclass(frozen=True, slots=True)
class Churn:
    """One run of a worker: the steps from `first` up to, but without, `last`."""

    uri: str
    seed: int
    worker: int
    life: int
    first: int
    last: int

    def to_argument(self) -> str:
        """Return the JSON form, which is the argument of the process."""
        return json.dumps(asdict(self))


def action_of(churn: Churn, number: int) -> Action:
    """Return the action of a step by its number."""
    chance = random.Random(f"{churn.seed}/{churn.worker}/{number}")
    return chance.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0]


@dataclass
class Worker:
    """A worker at one of its steps."""

    graph: og.Graph
    churn: Churn
    number: int
    made: list[str]

    def tell(self, **told: str) -> None:
        """Print an acknowledgement."""
        say(f"ACK {self.number} {json.dumps(told)}")

    @property
    def own(self) -> str:
        """Return a name that no other step of any worker uses."""
        return f"{self.churn.worker}-{self.churn.life}-{self.number}"

    def act(self) -> None:
        """Run the step."""
        match action_of(self.churn, self.number):
            case "insert":
                self.made.append(self.insert("main", f"{PAIR}-{self.own}"))
            case "work":
                self._work()
            case "shared":
                self._share()
            case "revert":
                if self.made:
                    self._revert(self.made.pop())
            case "schema":
                self._evolve()

    def insert(self, branch: str, id_: str) -> str:
        """Add a pair to a branch; return the commit."""
        rows = {
            "Person": [{"name": id_, "age": self.number}],
            "Knows": [{"id": id_, "from": id_, "to": id_, "since": self.number}],
        }
        done = self.graph.load(
            rows, "append", branch=branch, message=json.dumps({"insert": [id_, self.number]})
        )
        assert done.commit is not None
        self.tell(did="insert", branch=branch, id=id_, commit=done.commit.id)
        return done.commit.id

    def merge(self, source: str, *, delete: bool) -> None:
        """Merge a branch into main."""
        merged = self.graph.branches.merge(
            source, delete_source=delete, message=json.dumps({"merge": source})
        )
        if merged.commit is not None:
            self.tell(did="merge", branch="main", source=source, commit=merged.commit.id)

    def _work(self) -> None:
        """Create a branch, add rows, and merge it."""
        branch = f"work/{self.own}"
        self.graph.branches.create(branch)
        for row in range(2):
            self.insert(branch, f"{PAIR}-{self.own}-{row}")
        if self.number % 3 == 0:
            self._evolve(branch)
        self.merge(branch, delete=self.number % 2 == 0)

    def _share(self) -> None:
        """Add rows to a branch that other workers write to, merge and delete."""
        branch = SHARED[self.number % len(SHARED)]
        if branch not in self.graph.branches.list():
            self.graph.branches.create(branch)
        self.insert(branch, f"{PAIR}-{self.own}")
        self.merge(branch, delete=True)

    def _revert(self, commit: str) -> None:
        done = self.graph.revert(commit, message=json.dumps({"revert": commit}))
        if done.commit is not None:
            self.tell(did="revert", branch="main", of=commit, commit=done.commit.id)

    def _evolve(self, branch: str = "main") -> None:
        """Add a new type, unless the branch moves meanwhile."""
        head = self.graph.commits(branch, limit=1)[0].id
        name = f"T{self.own.replace('-', 'x')}"
        text = self.graph.schema.source(at=head) + f"node {name} {{ name: String @key }}\n"
        message = json.dumps({"schema": name})
        done = self.graph.schema.apply(text, branch=branch, if_commit=head, message=message)
        assert done.commit is not None
        self.tell(did="schema", branch=branch, type=name, commit=done.commit.id)


def main() -> None:
    churn = Churn(**json.loads(sys.argv[1]))
    graph = og.open(churn.uri, actor=WRITER, durability="os")
    made: list[str] = []
    for number in range(churn.first, churn.last):
        say(f"BEGIN {number}")
        try:
            Worker(graph, churn, number, made).act()
        except (PreconditionFailed, Conflict) as error:
            say(f"LOST {number} {error.code}")
        except NotFound as error:
            # Only a branch that another worker deleted may be missing.
            if "branch" not in error.details:
                raise
            say(f"LOST {number} {error.code}")
        say(f"END {number}")


if __name__ == "__main__":
    main()
