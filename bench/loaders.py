"""Time one load in a separate process: ``python -m bench.loaders WHAT DATA TARGET`` prints the result."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.load_data import SCHEMA
from omnigraph.rules.load_mode import IndexTime


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds from files to a graph that can be queried, by stage if known, and the peak memory of the process."""

    seconds: float
    stages: dict[str, float] = field(default_factory=dict)
    peak_mb: float = 0.0


def load_ours(data: Path, target: Path, *, tables: bool, index: IndexTime = "now") -> Took:
    """Load on Spark, with all checks and all local cores. The session is started before the clock."""
    import omnigraph as og
    from omnigraph.spark.session import resolve_session

    spark = resolve_session()
    # A first job starts the Python workers, as the call above starts the session.
    spark.range(0, 4, 1, 4).mapInArrow(lambda batches: batches, "id long").collect()
    graph = og.init(str(target), schema=SCHEMA)
    source = (
        {name: str(data / "tables" / f"{name}.parquet") for name in ("Person", "Follows")}
        if tables
        else str(data / "records")
    )
    begin = time.perf_counter()
    done = graph.load(source, engine="spark", spark=spark, index=index)
    seconds = time.perf_counter() - begin
    # Skip the exit handler of the session, which takes long.
    return Took(seconds, {stage: round(value, 2) for stage, value in done.seconds.items()}, _peak())


def load_raw(data: Path, target: Path, *, tables: bool) -> Took:
    """Parse with Arrow and write with Lance, without checks, keys, indexes, or an atomic commit of both tables."""
    import lance
    import pyarrow.json as pj
    import pyarrow.parquet as pq

    begin = time.perf_counter()
    for name in ("Person", "Follows"):
        if tables:
            rows = pq.read_table(data / "tables" / f"{name}.parquet")
        else:
            reading = pj.ReadOptions(block_size=16 << 20)
            rows = pj.read_json(data / "records" / f"{name}.ndjson", reading)
        lance.write_dataset(rows, target / name)
    return Took(time.perf_counter() - begin, peak_mb=_peak())


def load_ladybug(data: Path, target: Path) -> Took:
    """Load with ``COPY FROM`` Parquet, which also builds the key index and the adjacency of the edges."""
    import ladybug

    database: Any = ladybug.Database(target / "graph.lbug")
    connection: Any = ladybug.Connection(database)
    for statement in (
        "CREATE NODE TABLE Person(name STRING PRIMARY KEY, age INT32)",
        "CREATE REL TABLE Follows(FROM Person TO Person, since DATE)",
    ):
        connection.execute(statement).close()
    begin = time.perf_counter()
    for name in ("Person", "Follows"):
        connection.execute(f"COPY {name} FROM '{data / 'tables' / f'{name}.parquet'}'").close()
    connection.close()
    database.close()
    return Took(time.perf_counter() - begin, peak_mb=_peak())


LOADERS: dict[str, Callable[[Path, Path], Took]] = {
    "ours from records": lambda data, target: load_ours(data, target, tables=False),
    "ours from Parquet": lambda data, target: load_ours(data, target, tables=True),
    "ours from records, index later": lambda data, target: load_ours(
        data, target, tables=False, index="later"
    ),
    "ours from Parquet, index later": lambda data, target: load_ours(
        data, target, tables=True, index="later"
    ),
    "raw from records": lambda data, target: load_raw(data, target, tables=False),
    "raw from Parquet": lambda data, target: load_raw(data, target, tables=True),
    "ladybug from Parquet": load_ladybug,
}


def _peak() -> float:
    """Return the peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    what, data, target = sys.argv[1:]
    sys.stdout.write(json.dumps(asdict(LOADERS[what](Path(data), Path(target)))) + "\n")
