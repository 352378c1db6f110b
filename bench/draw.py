"""Query parameters, drawn from the graph and identical in every run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Draw:
    """A stream of parameters.

    A person is the source of a random friendship, so that people are drawn in proportion to their out-degree.
    People without friends are never drawn.
    """

    def __init__(self, tables: dict[str, pa.Table], seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._knows = tables["Knows"]
        self._people = tables["Person"]["name"]
        self._cities = pc.unique(tables["Person"]["city"])
        self._met: set[tuple[str, str]] = set()
        self._fresh = 0

    def person(self) -> str:
        """Return the name of a person with at least one friend."""
        return self._one_of(self._knows["from"])

    def strangers(self) -> tuple[str, str]:
        """Return two people of whom the first does not know the second. A pair is never returned twice."""
        one = self.person()
        known = set(self._knows["to"].filter(pc.equal(self._knows["from"], one)).to_pylist())
        while True:
            other = self._one_of(self._people)
            if other != one and other not in known and (one, other) not in self._met:
                self._met.add((one, other))
                return one, other

    def new_name(self) -> str:
        """Return a name that is not in the graph."""
        self._fresh += 1
        return f"new{self._fresh}"

    def city(self) -> str:
        """Return a city that has inhabitants."""
        return self._one_of(self._cities)

    def age(self) -> int:
        """Return an age that splits the people into two parts of similar size."""
        return int(self._rng.integers(25, 75))

    def _one_of(self, names: pa.Array | pa.ChunkedArray) -> str:
        return str(names[int(self._rng.integers(len(names)))].as_py())
