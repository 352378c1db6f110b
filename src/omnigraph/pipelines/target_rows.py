"""The DataFrames of a run: sources and views become rows of targets, with failed rows set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omnigraph.catalog.columns import spark_type
from omnigraph.catalog.table_lookup import find_table
from omnigraph.errors import ConstraintViolation
from omnigraph.pipelines.definition import NodeTarget
from omnigraph.pipelines.inputs import SourceInput
from omnigraph.pipelines.pipeline_file import Pipeline
from omnigraph.pipelines.python_file import call_view
from omnigraph.pipelines.run_errors import translated_errors
from omnigraph.pipelines.target_mapping import key_columns, map_columns
from omnigraph.store.storage_options import resolve_options

if TYPE_CHECKING:
    from omnigraph.catalog.catalog import Catalog, Table
    from omnigraph.rules.load_mode import LoadMode
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
                    view = pipeline.definition.views[name]
                    frame = self.spark.sql(view) if isinstance(view, str) else call_view(view, self.spark)
                    frame.createOrReplaceTempView(name)

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
        if target.order_by is not None:
            frame = deduplicate(frame, key_columns(catalog, table, target), target.order_by)
        return TargetRows(table, target, path, mapping, columns, frame, counts)


@dataclass(frozen=True)
class LoadedRows:
    """The rows of all targets in the form of one load."""

    mode: LoadMode
    op_column: str | None
    frames: Mapping[str, Any]


def combine_targets(targets: Sequence[TargetRows]) -> LoadedRows:
    """Return the rows of targets with different modes as one load.

    Patch, merge and delete become one load that patches: the rows of a merge get null for the properties they lack,
    and an operation column marks deletes.
    """
    from omnigraph.spark.pipelines.target_frames import OPERATION, with_nulls, with_operation

    modes = {item.target.mode for item in targets}
    deletes = any(item.target.delete_when is not None for item in targets) or "delete" in modes
    if "patch" not in modes and not deletes:
        return LoadedRows(
            modes.pop() if modes else "merge", None, {item.table.key: item.frame for item in targets}
        )
    frames: dict[str, Any] = {}
    for item in targets:
        frame = item.frame
        if "patch" in modes and item.target.mode == "merge":
            frame = with_nulls(frame, _missing_properties(item))
        if deletes:
            frame = with_operation(frame, item.target.delete_when, delete_all=item.target.mode == "delete")
        frames[item.table.key] = frame
    return LoadedRows("patch" if "patch" in modes else "merge", OPERATION if deletes else None, frames)


def _missing_properties(item: TargetRows) -> dict[str, str]:
    present = {name.lower() for name in item.columns} | {name.lower() for name in item.target.columns}
    return {
        column.name: spark_type(column.type)
        for column in item.table.columns
        if column.name.lower() not in present and column.name not in ("id", "src", "dst")
    }


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
