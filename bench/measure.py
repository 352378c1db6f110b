"""Time several systems with the same parameters, interleaved, so that noise affects all of them alike."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from bench.draw import Draw
from bench.shapes import Params, Read, Write
from bench.systems import System

WARM_UPS = 1
CALLS = 5


@dataclass(frozen=True, slots=True)
class Effort:
    """The number of repetitions: a maximum of turns for each system, and a time limit for starting new ones."""

    turns: int = 12
    seconds: float = 8.0


@dataclass(frozen=True)
class Timing:
    """The milliseconds of each system, in the order of calls, and the differences between their results."""

    shape: str
    samples: dict[str, list[float]] = field(default_factory=dict)
    mismatches: list[str] = field(default_factory=list)

    def median(self, system: str) -> float | None:
        """Return the median time of a system, or None if it was not measured.

        >>> Timing("x", {"ours": [3.0, 1.0, 2.0]}).median("ours")
        2.0
        """
        found = self.samples.get(system)
        return statistics.median(found) if found else None

    def quartile(self, system: str) -> float | None:
        """Return the lower quartile of the times of a system, which is less sensitive to noise."""
        found = self.samples.get(system)
        return float(np.quantile(found, 0.25)) if found else None


def measure(shape: Read | Write, systems: Sequence[System], draw: Draw, effort: Effort) -> Timing:
    """Run a shape on every system in turns, and compare every result with that of the first system.

    A turn is a few consecutive calls. Its first call is not timed, because it refills the processor caches that the
    previous system evicted.
    """
    timing = Timing(shape.name, {system.name: [] for system in systems})
    spent = 0.0
    for turn in range(WARM_UPS + effort.turns if systems else 0):
        params = [shape.parameters(draw) for _ in range(CALLS)]
        first = turn % len(systems)
        answers: dict[str, list[pa.Table | None]] = {}
        for system in [*systems[first:], *systems[:first]]:
            answers[system.name], took = _take_turn(shape, system, params)
            spent += sum(took)
            if turn >= WARM_UPS:
                timing.samples[system.name].extend(1e3 * seconds for seconds in took[1:])
        timing.mismatches.extend(_differences(shape, params, answers, [item.name for item in systems]))
        if turn >= WARM_UPS and spent > effort.seconds:
            break
    return timing


def _take_turn(
    shape: Read | Write, system: System, params: Sequence[Params]
) -> tuple[list[pa.Table | None], list[float]]:
    answers: list[pa.Table | None] = []
    took: list[float] = []
    for each in params:
        begin = time.perf_counter()
        answers.append(_call(shape, system, each))
        took.append(time.perf_counter() - begin)
    return answers, took


def _call(shape: Read | Write, system: System, params: Params) -> pa.Table | None:
    if isinstance(shape, Read):
        return system.read(shape, params)
    system.write(shape, params)
    return None if shape.then is None else system.read(shape.then, params)


def _differences(
    shape: Read | Write,
    params: Sequence[Params],
    answers: dict[str, list[pa.Table | None]],
    names: Sequence[str],
) -> list[str]:
    ordered = isinstance(shape, Read) and shape.ordered
    found: list[str] = []
    for other in names[1:]:
        for each, expected, got in zip(params, answers[names[0]], answers[other], strict=True):
            if expected is None or got is None or same_rows(expected, got, ordered=ordered):
                continue
            sizes = f"{expected.num_rows} and {got.num_rows} rows, {_first(expected)} and {_first(got)}"
            found.append(f"{dict(each)}: {names[0]} and {other} differ: {sizes}")
    return found


def same_rows(one: pa.Table, other: pa.Table, *, ordered: bool) -> bool:
    """Whether two results hold the same values, ignoring column names, and as multisets unless `ordered`.

    >>> a, b = pa.table({"p.n": [1, 2, 2]}), pa.table({"n": pa.array([2, 1, 2], pa.int32())})
    >>> same_rows(a, b, ordered=False), same_rows(a, b, ordered=True)
    (True, False)
    """
    left, right = _rows(one), _rows(other)
    return left == right if ordered else Counter(left) == Counter(right)


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    if table.num_columns == 0:
        return [()] * table.num_rows
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _first(table: pa.Table) -> Any:
    return _rows(table.slice(0, 1))
