"""The rows of a target: expectations split off failed rows, deduplication keeps one row of each key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FAILED: Final = "__omnigraph_failed"
OPERATION: Final = "__omnigraph_operation"
_RANK: Final = "__omnigraph_rank"


@dataclass(frozen=True)
class FailedRowTarget:
    """Where the failed rows of a target go. `folder` is None if they are only counted."""

    type: str
    view: str
    folder: str | None
    name: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class RowCounts:
    """The rows of a target, those that failed an expectation, and one of the failed rows with its rules."""

    total: int = 0
    failed: int = 0
    example: str | None = None


def mark_failed(frame: DataFrame, expectations: Mapping[str, str]) -> DataFrame:
    """Return a frame with the names of the expectations that each row fails. Null fails an expectation."""
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    failures = [
        F.when(~F.coalesce(F.expr(f"({condition})"), F.lit(False)), F.lit(name))
        for name, condition in expectations.items()
    ]
    return frame.withColumn(FAILED, F.array_compact(F.array(*failures)))


def passing_rows(marked: DataFrame) -> DataFrame:
    """Return the rows without failed expectations."""
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    return marked.where(F.size(FAILED) == 0).drop(FAILED)


def deduplicate(frame: DataFrame, keys: Sequence[str], latest_by: str | None) -> DataFrame:
    """Return one row for each key: the one with the greatest value of `latest_by`.

    Equal values are decided by a hash of the row, so that the result does not depend on the order of the input.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    order = [F.xxhash64(*[F.col(f"`{name}`") for name in frame.columns])]
    if latest_by is not None:
        order.insert(0, F.expr(latest_by).desc_nulls_last())
    window = Window.partitionBy(*[F.expr(key) for key in keys]).orderBy(*order)
    return frame.withColumn(_RANK, F.row_number().over(window)).where(F.col(_RANK) == 1).drop(_RANK)


def with_operation(frame: DataFrame, delete_when: str | None, *, delete_all: bool) -> DataFrame:
    """Return a frame with the operation of each row: D for a delete, U for any other row."""
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    condition = F.lit(delete_all)
    if delete_when is not None:
        condition = F.coalesce(F.expr(f"({delete_when})"), F.lit(False)) | condition
    return frame.withColumn(OPERATION, F.when(condition, F.lit("D")).otherwise(F.lit("U")))


def with_nulls(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Return a frame with additional columns of null, by name with their Spark type."""
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    for name, kind in columns.items():
        frame = frame.withColumn(name, F.lit(None).cast(kind))
    return frame


def set_failed_rows_aside(marked: DataFrame, target: FailedRowTarget) -> RowCounts:
    """Count the rows of a marked frame and write the failed ones as JSON lines, in tasks."""
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    from omnigraph.spark.engine.tasks import run_partitions

    names = [name for name in marked.columns if name != FAILED]
    # Only failed rows become text.
    record = F.when(F.size(FAILED) > 0, F.to_json(F.struct(*[F.col(f"`{name}`") for name in names])))
    texts = marked.select(F.array_join(FAILED, ", ").alias("rules"), record.alias("record"))
    parts = run_partitions(texts, partial(_write_failed, target))
    return RowCounts(
        sum(part.total for part in parts),
        sum(part.failed for part in parts),
        next((part.example for part in parts if part.example is not None), None),
    )


def _write_failed(target: FailedRowTarget, number: int, batches: Iterator[pa.RecordBatch]) -> RowCounts:
    from contextlib import ExitStack

    from omnigraph.store.objects.object_store import ObjectStore

    total = failed = 0
    example: str | None = None
    with ExitStack() as opened:
        file: Any = None
        for batch in batches:
            total += batch.num_rows
            kept = batch.filter(batch.column("record").is_valid())
            for rules, record in zip(
                kept.column("rules").to_pylist(), kept.column("record").to_pylist(), strict=True
            ):
                failed += 1
                example = example or f"{rules}: {record}"
                if target.folder is None:
                    continue
                if file is None:
                    store = ObjectStore.open(target.folder, target.storage)
                    file = opened.enter_context(store.open_write(f"{target.name}-{number:05}.ndjson"))
                line = {
                    "source": target.view,
                    "type": target.type,
                    "rule": rules,
                    "error": f"failed expectation: {rules}",
                    "record": json.loads(record),
                }
                file.write((json.dumps(line, ensure_ascii=False) + "\n").encode())
    return RowCounts(total, failed, example)
