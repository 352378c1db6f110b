"""The benchmark's questions answered by walking plain dictionaries: slow, short and independent of any system."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from bench.shapes import Params, Read, Write

Rows = list[tuple[Any, ...]]


class Walk:
    """A generated graph as dictionaries."""

    def __init__(self, tables: dict[str, pa.Table]) -> None:
        self.people = {row["name"]: row for row in tables["Person"].to_pylist()}
        self.employed = set(tables["WorksAt"]["from"].to_pylist())
        self.knows: defaultdict[str, list[str]] = defaultdict(list)
        for row in tables["Knows"].to_pylist():
            self.knows[row["from"]].append(row["to"])

    def two_steps(self, start: str) -> Iterator[str]:
        """Where every two steps end, once for each way."""
        return (end for friend in self.knows[start] for end in self.knows[friend])

    def reach(self, start: str, hops: int) -> set[str]:
        """Everyone within so many steps, without the start."""
        seen, frontier = {start}, {start}
        for _ in range(hops):
            frontier = {end for name in frontier for end in self.knows[name]} - seen
            seen |= frontier
        return seen - {start}

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Who knows whom."""
        return ((source, target) for source, targets in self.knows.items() for target in targets)


def _person(walk: Walk, n: str) -> Rows:
    return [tuple(walk.people[n][column] for column in ("name", "age", "city", "joined"))]


def _top(counts: Counter[str]) -> Rows:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]


def _strangers(walk: Walk, n: str) -> Counter[str]:
    return Counter(end for end in walk.two_steps(n) if end not in walk.knows[n])


ANSWERS: dict[str, Callable[..., Rows]] = {
    "point lookup by key": _person,
    "1 hop: neighbours": lambda walk, n: [(name, walk.people[name]["age"]) for name in walk.knows[n]],
    "1..2 hops: distinct people": lambda walk, n: [(name,) for name in walk.reach(n, 2)],
    "2 hops: distinct ends with ways": lambda walk, n: list(Counter(walk.two_steps(n)).items()),
    "1..3 hops: size of reach": lambda walk, n: [(len(walk.reach(n, 3)),)],
    "2 hops: filtered count": lambda walk, n, x: [
        (sum(walk.people[end]["age"] > x for end in walk.two_steps(n)),)
    ],
    "2 hops: all pairs, counted": lambda walk: [(sum(len(walk.knows.get(b, ())) for _, b in walk.pairs()),)],
    "edges by city of the target": lambda walk: list(
        Counter(walk.people[target]["city"] for _, target in walk.pairs()).items()
    ),
    "top 10 by in-degree": lambda walk: _top(Counter(target for _, target in walk.pairs())),
    "negation: knowing, no employer": lambda walk, c: [
        (sum(walk.people[a]["city"] == c and a not in walk.employed for a, _ in walk.pairs()),)
    ],
    "negation: friends' friends, new": lambda walk, n: _top(_strangers(walk, n)),
}


class Walking:
    """The plain walk through the graph as a system of its own."""

    name = "walk"

    def __init__(self, walk: Walk) -> None:
        self.walk = walk

    def takes(self, shape: Read | Write) -> bool:
        return shape.name in ANSWERS

    def read(self, shape: Read, params: Params) -> pa.Table:
        rows = ANSWERS[shape.name](self.walk, **params)
        columns = list(zip(*rows, strict=True))
        return pa.table([pa.array(column) for column in columns], [str(i) for i in range(len(columns))])

    def write(self, shape: Write, params: Params) -> None:
        raise NotImplementedError(f"{shape.name} {params}")

    def close(self) -> None:
        pass
