"""Generate readers and ratings as Parquet files, the same ones every time: `make_archive.py FOLDER`."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

READERS = 50_000
BOOKS = 800
RATINGS_EACH = 10


def readers() -> pa.Table:
    """Return the readers: numbered, all in Quito."""
    handles = [f"q{number:05}" for number in range(READERS)]
    return pa.table(
        {
            "handle": handles,
            "name": [f"Reader {handle[1:]}" for handle in handles],
            "town": ["Quito"] * READERS,
            "joined": pa.array([date(2010, 1, 1)] * READERS, pa.date32()),
        }
    )


def ratings() -> pa.Table:
    """Return ten ratings for each reader. No reader rates a book twice: 13 and 800 are coprime."""
    who = np.repeat(np.arange(READERS), RATINGS_EACH)
    book = (who * 7 + np.tile(np.arange(RATINGS_EACH), READERS) * 13) % BOOKS
    return pa.table(
        {
            "from": [f"q{number:05}" for number in who],
            "to": [f"b{number:03}" for number in book],
            "stars": pa.array(1 + (who + book) % 5, pa.int32()),
            "on": pa.array(np.full(len(who), 15_000), pa.int32()).cast(pa.date32()),
        }
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("readers", readers()), ("ratings", ratings())):
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=100_000)
        sys.stdout.write(f"wrote {table.num_rows:,} rows to {folder / name}.parquet\n")
