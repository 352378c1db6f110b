"""The social graph of the benchmarks, generated from a seed and identical on every machine.

People, companies, acquaintances and employers. In-degree and out-degree follow independent power laws. There are no
loops and no parallel edges, so that languages that count edges and languages that count destinations give the same
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 20_240_229
PEOPLE = 200_000
FRIENDSHIPS = 1_000_000
CITIES = 60
EMPLOYED = 0.85

# Exponent of the power law of degrees: a few people know, or are known by, thousands.
_POPULARITY = 0.62
_ACTIVITY = 0.45
_FIRST_DAY = np.datetime64("2005-01-01")
_DAYS = 7_000

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Size:
    """The number of people and friendships of a graph."""

    people: int = PEOPLE
    friendships: int = FRIENDSHIPS

    @property
    def companies(self) -> int:
        """The number of companies."""
        return max(2, self.people // 400)

    @staticmethod
    def scaled(scale: float) -> Size:
        """Return the full size multiplied by a factor, with the same number of friends per person.

        >>> Size.scaled(0.01)
        Size(people=2000, friendships=10000)
        """
        people = max(50, round(PEOPLE * scale))
        return Size(people, people * FRIENDSHIPS // PEOPLE)


def make_tables(size: Size, seed: int = SEED) -> dict[str, pa.Table]:
    """Return the graph as Arrow tables by type. Edges have their endpoints in ``from`` and ``to``."""
    rng = np.random.default_rng(seed)
    people, companies = _names("p", size.people), _names("c", size.companies)
    source, target = _friendships(rng, size)
    employees = np.flatnonzero(rng.random(size.people) < EMPLOYED)
    employers = rng.integers(0, size.companies, len(employees))
    return {
        "Person": pa.table(
            {
                "name": people,
                "age": pa.array(rng.integers(16, 90, size.people), pa.int32()),
                "city": _names("city", CITIES).take(pa.array(rng.zipf(1.4, size.people) % CITIES)),
                "joined": _days(rng, size.people, missing=0.1),
            }
        ),
        "Company": pa.table(
            {
                "name": companies,
                "founded": pa.array(rng.integers(1900, 2024, size.companies), pa.int32()),
            }
        ),
        "Knows": pa.table(
            {
                "from": people.take(source),
                "to": people.take(target),
                "since": _days(rng, len(source), missing=0.2),
                "weight": pa.array(rng.random(len(source)), mask=rng.random(len(source)) < 0.1),
            }
        ),
        "WorksAt": pa.table({"from": people.take(employees), "to": companies.take(employers)}),
    }


def write_parquet(tables: dict[str, pa.Table], folder: Path) -> dict[str, Path]:
    """Write one Parquet file per type, and return the files by type."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.parquet" for name in tables}
    for name, file in files.items():
        pq.write_table(tables[name], file)
    return files


def _names(prefix: str, count: int) -> pa.Array:
    return pa.array([f"{prefix}{number}" for number in range(count)])


def _friendships(rng: np.random.Generator, size: Size) -> tuple[Ints, Ints]:
    """Return distinct ordered pairs of different people, in no particular order."""
    by_source, by_target = (
        _cumulative(rng, size.people, _ACTIVITY),
        _cumulative(rng, size.people, _POPULARITY),
    )
    pairs = np.empty(0, np.int64)
    while len(pairs) < size.friendships:
        wanted = size.friendships - len(pairs)
        draws = wanted + wanted // 4 + 16
        source = np.searchsorted(by_source, rng.random(draws))
        target = np.searchsorted(by_target, rng.random(draws))
        codes = source * size.people + target
        # `unique` sorts. Shuffle before truncating, or the people with the highest numbers would be cut off.
        pairs = rng.permutation(np.unique(np.concatenate([pairs, codes[source != target]])))
    chosen = pairs[: size.friendships]
    return chosen // size.people, chosen % size.people


def _cumulative(rng: np.random.Generator, count: int, power: float) -> npt.NDArray[np.float64]:
    """Return the cumulative distribution of a power law over people with shuffled ranks."""
    weights = (rng.permutation(count) + 1.0) ** -power
    total: npt.NDArray[np.float64] = np.cumsum(weights)
    total /= total[-1]
    return total


def _days(rng: np.random.Generator, count: int, missing: float) -> pa.Array:
    days = _FIRST_DAY + rng.integers(0, _DAYS, count)
    return pa.array(days, pa.date32(), mask=rng.random(count) < missing)
