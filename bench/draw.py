"""Parameters for the questions, drawn from the graph they are asked of, the same in every run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Draw:
    """A stream of parameters.

    A person is one end of a random friendship, so that those who know many come up as often as they are met when
    one walks the graph; nobody who knows no one is asked about.
    """

    def __init__(self, tables: dict[str, pa.Table], seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._knows = tables["Knows"]
        self._people = tables["Person"]["name"]
        self._cities = pc.unique(tables["Person"]["city"])
        self._met: set[tuple[str, str]] = set()
        self._fresh = 0

    def person(self) -> str:
        """The name of someone who knows someone."""
        return self._one_of(self._knows["from"])

    def strangers(self) -> tuple[str, str]:
        """Two people of whom the first does not know the second; never the same two again."""
        one = self.person()
        known = set(self._knows["to"].filter(pc.equal(self._knows["from"], one)).to_pylist())
        while True:
            other = self._one_of(self._people)
            if other != one and other not in known and (one, other) not in self._met:
                self._met.add((one, other))
                return one, other

    def new_name(self) -> str:
        """A name that nobody has yet."""
        self._fresh += 1
        return f"new{self._fresh}"

    def city(self) -> str:
        """A city in which someone lives."""
        return self._one_of(self._cities)

    def age(self) -> int:
        """An age that splits people into two parts of some size."""
        return int(self._rng.integers(25, 75))

    def _one_of(self, names: pa.Array | pa.ChunkedArray) -> str:
        return str(names[int(self._rng.integers(len(names)))].as_py())
