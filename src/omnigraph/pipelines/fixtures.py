"""Tests of a pipeline file: each runs on a new graph with fixtures in place of the sources."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from omnigraph.api import entry
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.catalog.table_lookup import find_table
from omnigraph.errors import OmnigraphError
from omnigraph.lang.temporal import format_date, format_datetime, millis_of
from omnigraph.lang.types import Scalar
from omnigraph.pipelines.definition import FileSource, Quarantine, Rows, Source, TestCase
from omnigraph.pipelines.inputs import GetSession, SourceInput, find_input
from omnigraph.pipelines.pipeline_file import Pipeline
from omnigraph.pipelines.reports import TestResult
from omnigraph.pipelines.run import RunOptions, lazy_session, open_target, run_on
from omnigraph.pipelines.run_record import SourceLineage
from omnigraph.sources.mapping.document import read_text
from omnigraph.store.storage_options import resolve_options

_FORMATS = {".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson", ".parquet": "parquet"}


def run_tests(pipeline: Pipeline, options: RunOptions) -> Iterator[TestResult]:
    """Run the tests of a pipeline file, each on a graph of its own in a temporary folder."""
    schema = _schema(pipeline)
    with ExitStack() as stack:
        session = lazy_session(options.spark, stack)
        for name, test in pipeline.definition.tests.items():
            with tempfile.TemporaryDirectory(prefix="omnigraph-test-") as folder:
                yield _run_test(pipeline, name, test, Path(folder), schema, session, options)


def _schema(pipeline: Pipeline) -> str:
    if pipeline.definition.schema_ is not None:
        return read_text(pipeline.resolve(pipeline.definition.schema_), resolve_options(None))
    with open_target(pipeline, "r") as graph:
        return graph.schema.source()


def _run_test(
    pipeline: Pipeline,
    name: str,
    test: TestCase,
    folder: Path,
    schema: str,
    session: GetSession,
    options: RunOptions,
) -> TestResult:
    definition = pipeline.definition
    if definition.quarantine is not None:
        quarantine = Quarantine(path=str(folder / "quarantine"), max=definition.quarantine.max)
        definition = definition.model_copy(update={"quarantine": quarantine})
    definition = definition.model_copy(update={"schema_": None})
    pipeline = replace(pipeline, definition=definition)
    with entry.init(folder / "graph.omni", schema=schema) as graph:
        if test.graph is not None:
            graph.load(pipeline.resolve(test.graph))
        inputs = {source: _input(pipeline, name, test, source, session) for source in pipeline.used_sources}
        try:
            report = run_on(graph, pipeline, options, inputs=inputs, session=session)
        except OmnigraphError as error:
            if test.expect.outcome == "failed":
                return TestResult(name, True)
            return TestResult(name, False, (f"the run failed: {error.message}",))
        differences = list(_differences(pipeline, graph, test))
        if test.expect.outcome not in (None, report.outcome):
            differences.append(f"expected the outcome {test.expect.outcome}, got {report.outcome}")
        if test.expect.quarantined is not None and test.expect.quarantined != dict(report.quarantined):
            differences.append(
                f"expected {test.expect.quarantined} quarantined rows, got {dict(report.quarantined)}"
            )
        if test.expect.outcome is None and not report.passed:
            failed = [audit.name for audit in report.audits if not audit.passed]
            differences.append(f"audits failed: {', '.join(failed)}")
    return TestResult(name, not differences, tuple(differences))


# --- input ------------------------------------------------------------------------------------------------


def _input(pipeline: Pipeline, name: str, test: TestCase, source: str, session: GetSession) -> SourceInput:
    path = ("tests", name, "sources", source)
    if source not in test.sources:
        raise pipeline.document.error(path[:-1], f"the test has no rows for the source '{source}'")
    given = test.sources[source]
    declared = pipeline.definition.sources[source]
    if isinstance(given, str):
        fixture = _file_source(pipeline, declared, given)
        sources = {**pipeline.definition.sources, source: fixture}
        definition = pipeline.definition.model_copy(update={"sources": sources})
        return find_input(replace(pipeline, definition=definition), source, None, session)
    return SourceInput(
        bool(given), None, SourceLineage("rows"), lambda: _row_frame(session(), declared, given)
    )


def _file_source(pipeline: Pipeline, declared: Source, path: str) -> FileSource:
    if isinstance(declared, FileSource):
        return declared.model_copy(update={"path": path})
    form = _FORMATS.get(Path(path).suffix.lower())
    if form is None:
        raise pipeline.document.error(("tests",), f"unknown format of the fixture `{path}`")
    return FileSource.model_validate({"format": form, "path": path})


def _row_frame(spark: Any, declared: Source, rows: Rows) -> Any:
    """Return rows as a DataFrame. Those of a CSV file are text, and rows of files have the columns of a file."""
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    complete: list[dict[str, Any]] = [{name: row.get(name) for name in names} for row in rows]
    if isinstance(declared, FileSource):
        if declared.format == "csv":
            complete = [
                {name: None if value is None else str(value) for name, value in row.items()}
                for row in complete
            ]
        stamp = {"_file": "fixture", "_file_time": datetime.now(UTC)}
        complete = [{**stamp, **row} for row in complete]
    return spark.createDataFrame(pa.Table.from_pylist(complete))


# --- comparison -------------------------------------------------------------------------------------------


def _differences(pipeline: Pipeline, graph: LocalGraph, test: TestCase) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "graph.ndjson"
        graph.export(target)
        found = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    expected = test.expect
    if expected.graph is not None:
        text = read_text(pipeline.resolve(expected.graph), resolve_options(None))
        wanted = [json.loads(line) for line in text.splitlines() if line.strip()]
        yield from _compare("graph", map(_without_edge_id, wanted), map(_without_edge_id, found))
    for kind, of_kind in (("type", expected.nodes), ("edge", expected.edges)):
        for name, rows in of_kind.items():
            table = find_table(graph.runs.catalog("main"), f"{'edge' if kind == 'edge' else 'node'}:{name}")
            scalars = {column.name: column.type.scalar for column in table.columns}
            records = [_row(record) for record in found if record.get(kind) == name]
            columns = {column for row in rows for column in row}
            shown = [
                {column: _shown(row.get(column), scalars.get(column)) for column in columns}
                for row in records
            ]
            filled = [{column: _expected(row.get(column)) for column in columns} for row in rows]
            yield from _compare(name, filled, shown)


def _shown(value: Any, scalar: Scalar | None) -> Any:
    """Return an exported value as the file writes it: dates and times as ISO 8601."""
    if scalar is Scalar.DATE and isinstance(value, int):
        return format_date(value)
    if scalar is Scalar.DATETIME and isinstance(value, int):
        return format_datetime(value)
    return value


def _expected(value: Any) -> Any:
    """Return a value of the file. YAML reads unquoted dates and times as such."""
    if isinstance(value, datetime):
        return format_datetime(millis_of(value if value.tzinfo is not None else value.replace(tzinfo=UTC)))
    return value.isoformat() if isinstance(value, date) else value


def _without_edge_id(record: Mapping[str, Any]) -> Any:
    if "edge" not in record:
        return record
    data = {name: value for name, value in (record.get("data") or {}).items() if name != "id"}
    return {**record, "data": data}


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    ends = {"src": record.get("from"), "dst": record.get("to")} if "edge" in record else {}
    return {**ends, **(record.get("data") or {})}


def _compare(name: str, wanted: Any, found: Any) -> Iterator[str]:
    expected, actual = (
        Counter(json.dumps(row, sort_keys=True, default=str) for row in rows) for rows in (wanted, found)
    )
    for row in sorted((expected - actual).elements()):
        yield f"{name}: expected {row}"
    for row in sorted((actual - expected).elements()):
        yield f"{name}: unexpected {row}"
