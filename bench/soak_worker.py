"""A process of the soak: one-row commits with a read after each, and a journal of what was acknowledged."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, TextIO

import omnigraph as og
from omnigraph.errors import Conflict

SCHEMA = "node Item { name: String @key  value: I64? }\nedge Next: Item -> Item { weight: I64? }"
INSERT = "query put($n: String, $v: I64) { insert Item { name: $n, value: $v } }"
UPDATE = "query change($n: String, $v: I64) { update Item set { value: $v } where name = $n }"
DELETE = "query remove($n: String) { delete Item where name = $n }"
READ = "query read($n: String) { match { $i: Item { name: $n } } return { $i.value } }"
# Each process keeps about this many rows on each branch, so that the number of live rows does not grow. It starts
# with half of them, so that inserts, updates and deletes have the same shares at every checkpoint.
LIVE_ROWS = 200


@dataclass(frozen=True)
class Work:
    """What a process does: its seed and name, the branches, and its number of commits up to each checkpoint."""

    uri: str
    name: str
    branches: tuple[str, ...]
    checkpoints: tuple[int, ...]
    journal: Path
    durability: Literal["full", "os"]


@dataclass(frozen=True)
class Report:
    """The measurements of a process before a checkpoint: seconds of writes and reads, and memory in MB."""

    writes: list[float]
    reads: list[float]
    cpu: float
    rss: float
    conflicts: int


@dataclass
class Window:
    """The measurements since the last report. Times are in seconds."""

    writes: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    cpu: float = field(default_factory=time.process_time)
    conflicts: int = 0

    def report(self) -> Report:
        """Return the measurements."""
        return Report(
            self.writes, self.reads, time.process_time() - self.cpu, resident_megabytes(), self.conflicts
        )


def run(work: Work, parent: Connection, window: int) -> None:
    """Commit and read. Reports the last `window` commits before each checkpoint, and waits for the parent there."""
    graph = og.open(work.uri, durability=work.durability, actor=work.name)
    dice = random.Random(work.name)
    done, measured = 0, Window()
    with work.journal.open("a", encoding="utf-8", buffering=1) as journal:
        steps = choose_steps(
            work, dice, {branch: load_rows(graph, work, branch, journal) for branch in work.branches}
        )
        for checkpoint in work.checkpoints:
            while done < checkpoint:
                if checkpoint - done == min(window, checkpoint):
                    measured = Window()
                commit_and_read(graph, next(steps), journal, measured)
                done += 1
            parent.send(measured.report())
            parent.recv()
    started = time.monotonic()
    graph.close()
    parent.send(time.monotonic() - started)


# A branch, a name, and the new value; None deletes the row. The last item tells whether the row exists.
Step = tuple[str, str, int | None, bool]


def load_rows(graph: og.Graph, work: Work, branch: str, journal: TextIO) -> list[str]:
    """Load the first rows of a process on a branch with one commit; return their names."""
    names = [f"{work.name}-first-{number}" for number in range(LIVE_ROWS // 2)]
    graph.load({"Item": [{"name": name, "value": 0} for name in names]}, branch=branch)
    journal.write("".join(f"{branch} {name} 0\n" for name in names))
    return names


def choose_steps(work: Work, dice: random.Random, live: dict[str, list[str]]) -> Iterator[Step]:
    """Yield inserts, updates and deletes of rows that no other process writes. `live` has the names of all rows."""
    number = 0
    while True:
        number += 1
        branch = dice.choice(work.branches)
        names = live[branch]
        choice = dice.random()
        if len(names) < LIVE_ROWS // 2 or (choice < 0.35 and len(names) < LIVE_ROWS):
            name = f"{work.name}-{number}"
            names.append(name)
            yield branch, name, number, False
        elif choice < 0.7:
            yield branch, dice.choice(names), number, True
        else:
            yield branch, names.pop(dice.randrange(len(names))), None, True


def commit_and_read(graph: og.Graph, step: Step, journal: TextIO, measured: Window) -> None:
    """Commit one step, write it to the journal, and read the row."""
    branch, name, value, exists = step
    started = time.perf_counter()
    text = DELETE if value is None else UPDATE if exists else INSERT
    params = {"n": name} if value is None else {"n": name, "v": value}
    while True:
        try:
            graph.mutate(text, params, branch=branch)
            break
        except Conflict:
            # Another process changed the type. Updates and deletes are not repeated by the library.
            measured.conflicts += 1
    written = time.perf_counter()
    journal.write(f"{branch} {name} {'-' if value is None else value}\n")
    found = graph.query(READ, {"n": name}, branch=branch).rows()
    read = time.perf_counter()
    expected = [] if value is None else [value]
    values = [item for row in found for item in row.values()]
    if values != expected:
        raise AssertionError(f"{name} on {branch}: expected {expected}, read {values}")
    measured.writes.append(written - started)
    measured.reads.append(read - written)


def resident_megabytes() -> float:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6
