"""The DataFrames of a run: sources and views become rows of targets, with failed rows set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omnigraph.catalog.table_lookup import find_table
from omnigraph.errors import ConstraintViolation, InvalidInput, OmnigraphError
from omnigraph.pipelines.definition import NodeTarget
from omnigraph.pipelines.inputs import SourceInput
from omnigraph.pipelines.pipeline_file import Pipeline
from omnigraph.pipelines.target_mapping import map_columns
from omnigraph.store.storage_options import resolve_options

if TYPE_CHECKING:
    from omnigraph.catalog.catalog import Catalog, Table
    from omnigraph.sources.mapping.document import KeyPath
    from omnigraph.spark.pipelines.target_frames import RowCounts


@dataclass(frozen=True)
class TargetRows:
    """The rows of a target: a DataFrame, the mapping of its columns, and the numbers of rows if they are known."""

    table: Table
    target: NodeTarget
    path: KeyPath
    mapping: Mapping[str, Any]
    columns: Mapping[str, str]
    frame: Any = field(repr=False)
    counts: RowCounts | None = None


@dataclass
class RunFrames:
    """The DataFrames of a run. A tolerant run counts failed rows and goes on. `close` releases cached frames."""

    pipeline: Pipeline
    spark: Any
    inputs: Mapping[str, SourceInput]
    tolerant: bool = False
    _cached: list[Any] = field(default_factory=list)

    def build_views(self) -> None:
        """Define the sources and views as temporary views of the session."""
        pipeline = self.pipeline
        for name in sorted(pipeline.used_sources):
            with translated_errors(pipeline, ("sources", name)):
                frame = self.inputs[name].frame()
                if len(self._readers(name)) > 1:
                    # Read once, so that all targets see the same rows of a database that changes meanwhile.
                    frame = self._cache(frame)
                frame.createOrReplaceTempView(name)
        for name in pipeline.view_order:
            if pipeline.inputs[name] <= pipeline.used_sources:
                with translated_errors(pipeline, ("views", name)):
                    self.spark.sql(pipeline.definition.views[name]).createOrReplaceTempView(name)

    def _readers(self, source: str) -> list[str]:
        definition = self.pipeline.definition
        targets = {**definition.nodes, **definition.edges}
        return [name for name, target in targets.items() if source in self.pipeline.inputs[target.from_]]

    def _cache(self, frame: Any) -> Any:
        cached = frame.persist()
        self._cached.append(cached)
        return cached

    def close(self) -> None:
        """Release the cached DataFrames."""
        for frame in self._cached:
            frame.unpersist()

    def targets(self, catalog: Catalog, quarantine: Callable[[Table], str | None]) -> Iterator[TargetRows]:
        """Yield the rows of each target whose sources have rows to read, nodes first.

        `quarantine` returns the folder for the failed rows of a type, None if they are only counted.
        """
        definition = self.pipeline.definition
        for kind, targets in (("nodes", definition.nodes), ("edges", definition.edges)):
            for name, target in targets.items():
                if not any(self.inputs[source].has_rows for source in self.pipeline.inputs[target.from_]):
                    continue
                path = (kind, name)
                with translated_errors(self.pipeline, path):
                    table = find_table(catalog, f"{kind[:-1]}:{name}")
                    yield self._target(catalog, table, target, path, quarantine)

    def _target(
        self,
        catalog: Catalog,
        table: Table,
        target: NodeTarget,
        path: KeyPath,
        quarantine: Callable[[Table], str | None],
    ) -> TargetRows:
        from omnigraph.spark.pipelines.target_frames import (
            FailedRowTarget,
            deduplicate,
            mark_failed,
            passing_rows,
            set_failed_rows_aside,
        )

        frame = self.spark.table(target.from_)
        columns = {item.name: item.dataType.simpleString() for item in frame.schema.fields}
        mapping = map_columns(catalog, table, target, columns)
        counts: RowCounts | None = None
        if target.expect:
            marked = self._cache(mark_failed(frame, target.expect))
            folder = quarantine(table) if target.on_fail == "quarantine" else None
            name = f"{table.kind}-{table.name}-expectations"
            aside = FailedRowTarget(table.name, target.from_, folder, name, resolve_options(None))
            counts = set_failed_rows_aside(marked, aside)
            if counts.failed and target.on_fail == "fail" and not self.tolerant:
                raise _expectation_error(table, counts)
            frame = passing_rows(marked)
        if target.dedup is not None:
            frame = deduplicate(frame, target.dedup.keys, target.dedup.latest_by)
        return TargetRows(table, target, path, mapping, columns, frame, counts)


def _expectation_error(table: Table, counts: RowCounts) -> ConstraintViolation:
    rows = "1 row" if counts.failed == 1 else f"{counts.failed:,} rows"
    message = f"{rows} of {counts.total:,} for '{table.name}' failed an expectation, such as {counts.example}"
    violation = {"rule": "expect", "message": message, "type": table.name}
    return ConstraintViolation(
        message,
        [violation],
        details={"violations": counts.failed},
        hint="set `on_fail: quarantine` to set failed rows aside",
    )


@contextmanager
def translated_errors(pipeline: Pipeline, path: KeyPath) -> Iterator[None]:
    """Add the place in the file to errors, turn errors of Spark into `InvalidInput`, and hide secret values."""
    from omnigraph.spark.pipelines.source_frames import first_reason

    try:
        yield
    except OmnigraphError as error:
        redacted = pipeline.secrets.redact(error.message)
        if isinstance(error, InvalidInput) and error.location is None:
            raise pipeline.document.error(path, redacted, error.hint) from None
        if redacted == error.message:
            raise
        raise type(error)(redacted, hint=error.hint) from None
    # Spark raises its own errors, and Py4J those of the JVM.
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise pipeline.document.error(path, pipeline.secrets.redact(first_reason(error))) from None
