"""The data of the load benchmarks: people and follows, as graph records and as tables, identical in every run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SEED = 11
SCHEMA = "node Person { name: String @key  age: I32? } edge Follows: Person -> Person { since: Date? }"
_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class Amount:
    """The number of people and follows."""

    people: int = 2_000_000
    follows: int = 10_000_000

    @property
    def rows(self) -> int:
        """The total number of records."""
        return self.people + self.follows

    @classmethod
    def scaled(cls, scale: float) -> Amount:
        """Return a fraction of the full size. Every person follows five others.

        >>> Amount.scaled(0.001)
        Amount(people=2000, follows=10000)
        """
        people = max(100, int(cls().people * scale))
        return cls(people, people * 5)


def write_files(amount: Amount, folder: Path) -> None:
    """Write both forms, in ``records`` and in ``tables``, each with one file of nodes and one of edges."""
    for name in ("records", "tables"):
        (folder / name).mkdir(parents=True)
    for name, parts in (("Person", _people(amount)), ("Follows", _follows(amount))):
        writer: pq.ParquetWriter | None = None
        with (folder / "records" / f"{name}.ndjson").open("wb") as lines:
            for part in parts:
                writer = writer or pq.ParquetWriter(folder / "tables" / f"{name}.parquet", part.schema)
                writer.write_table(part, row_group_size=_ROWS // 8)
                lines.write(_records(name, part))
        if writer is not None:
            writer.close()


def _people(amount: Amount) -> Iterator[pa.Table]:
    for first in range(0, amount.people, _ROWS):
        numbers = np.arange(first, min(amount.people, first + _ROWS))
        yield pa.table({"name": _names(numbers), "age": pa.array(numbers % 90, pa.int32())})


def _follows(amount: Amount) -> Iterator[pa.Table]:
    chance = np.random.default_rng(SEED)
    for first in range(0, amount.follows, _ROWS):
        count = min(_ROWS, amount.follows - first)
        ends = chance.integers(0, amount.people, (2, count))
        days = pa.array(chance.integers(15_000, 20_000, count), pa.int32()).cast(pa.date32())
        yield pa.table({"from": _names(ends[0]), "to": _names(ends[1]), "since": days})


def _names(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pc.binary_join_element_wise("p", pa.array(numbers).cast(pa.string()), "")


def _records(name: str, part: pa.Table) -> bytes:
    columns = {key: part[key].cast(pa.string()) for key in part.column_names}
    if name == "Person":
        lines = pc.binary_join_element_wise(
            '{"type":"Person","data":{"name":"', columns["name"], '","age":', columns["age"], "}}\n", ""
        )
    else:
        lines = pc.binary_join_element_wise(
            '{"edge":"Follows","from":"', columns["from"], '","to":"', columns["to"],
            '","data":{"since":"', columns["since"], '"}}\n', "",
        )  # fmt: skip
    return b"".join(item.as_buffer().to_pybytes() for item in lines.combine_chunks().cast(pa.binary()))
