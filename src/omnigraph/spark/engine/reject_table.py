"""Rejected records of a load as rows of a Spark table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.load.reject_target import AppendTable

# Rows per write. The driver holds them in memory.
_ROWS = 20_000
_COLUMNS = ("load", "source", "line", "type", "id", "rule", "reason", "record")


def append_to_table(spark: Any) -> AppendTable:
    """Return `append_rejects` on the session that `spark` names. The session is started at the first call."""
    return partial(append_rejects, spark)


def append_rejects(spark: Any, name: str, load_id: str, lines: Iterable[Mapping[str, Any]]) -> None:
    """Append rejected records to a table of Spark's catalog; the table is created if it is missing.

    The column `load` has the id of the commit. Rows with the id of no commit belong to a load that failed.
    """
    from omnigraph.spark.session import session_for

    session = session_for(spark)
    for rows in _parts(load_id, lines):
        session.createDataFrame(rows).write.mode("append").saveAsTable(name)


def _parts(load_id: str, lines: Iterable[Mapping[str, Any]]) -> Iterator[pa.Table]:
    import pyarrow as pa

    types = {"line": pa.int64()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in _COLUMNS])
    iterator = iter(lines)
    while part := list(islice(iterator, _ROWS)):
        rows = [
            {**line, "load": load_id, "record": json.dumps(line["record"], ensure_ascii=False)}
            for line in part
        ]
        yield pa.Table.from_pylist(rows, schema)
