"""A run: new input becomes one commit on a review branch, which is audited and merged.

The commit holds the state of the sources after the run. A run that is killed leaves at most a branch, which no
other run reads; the next run starts from the state on the target branch and reads the same input again. Two runs
that start from one state cannot both be merged: the second gets `Conflict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ulid import ULID

from omnigraph.api import entry
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.api.results.loads import LoadReceipt
from omnigraph.errors import ConstraintViolation, OmnigraphError
from omnigraph.graph.pipeline_runs import PipelineRun
from omnigraph.load.load_request import LoadRequest
from omnigraph.pipelines.audits import run_audits
from omnigraph.pipelines.definition import ORPHAN, fails_run
from omnigraph.pipelines.inputs import GetSession, SourceInput, find_input
from omnigraph.pipelines.pipeline_file import Pipeline
from omnigraph.pipelines.references import check_references
from omnigraph.pipelines.reports import RunReport
from omnigraph.pipelines.run_errors import translated_errors
from omnigraph.pipelines.run_record import RunRecord
from omnigraph.pipelines.target_rows import RunFrames, TargetRows, combine_targets

if TYPE_CHECKING:
    from omnigraph.catalog.catalog import Table
    from omnigraph.graph.progress import Progress


@dataclass(frozen=True)
class RunOptions:
    """The options of a run. `full_refresh` reads all input again, as if no run had read it."""

    spark: Any = None
    actor: str | None = None
    full_refresh: bool = False
    progress: Progress | None = None


@dataclass(frozen=True)
class RunInput:
    """The input of a run and the last published run."""

    inputs: Mapping[str, SourceInput]
    previous: str | None
    last: RunRecord | None
    advances: bool

    @property
    def has_work(self) -> bool:
        """Whether a source has rows to read."""
        return any(item.has_rows for item in self.inputs.values())


def run_pipeline(pipeline: Pipeline, options: RunOptions) -> RunReport:
    """Run a pipeline on its graph."""
    with open_target(pipeline, "rw", options.actor) as graph:
        check_references(pipeline, graph)
        return run_on(graph, pipeline, options)


def open_target(pipeline: Pipeline, mode: Any, actor: str | None = None) -> LocalGraph:
    """Open the graph of a pipeline."""
    uri = pipeline.resolve(pipeline.definition.graph)
    if uri.startswith(("http://", "https://", "memory:")):
        raise pipeline.document.error(
            ("graph",), "a pipeline needs the storage address of a graph", hint="use a path or s3://"
        )
    opened: LocalGraph = pipeline.document.located(
        ("graph",), partial(entry.open, uri, mode=mode, actor=actor)
    )
    return opened


def run_on(
    graph: LocalGraph,
    pipeline: Pipeline,
    options: RunOptions,
    *,
    inputs: Mapping[str, SourceInput] | None = None,
    session: GetSession | None = None,
) -> RunReport:
    """Run a pipeline on an open graph. `inputs` replaces the input of the sources, for tests of a file."""
    started = datetime.now(UTC)
    run_id = str(ULID())
    with ExitStack() as stack:
        session = session or lazy_session(options.spark, stack)
        if inputs is not None:
            found = RunInput(inputs, None, None, True)
        else:
            found = find_run_input(graph, pipeline, session, full_refresh=options.full_refresh)
        if not found.has_work:
            return RunReport(pipeline.name, run_id, "unchanged")
        record = RunRecord(
            pipeline=pipeline.name,
            run_id=run_id,
            started_at=started.isoformat(timespec="milliseconds"),
            definition=pipeline.digest,
            previous=found.previous,
            state={name: item.state for name, item in found.inputs.items() if item.state is not None},
            sources={name: item.lineage for name, item in found.inputs.items() if item.has_rows},
        )
        run = PipelineRun(pipeline.name, found.previous, record.to_text(), found.advances)
        frames = RunFrames(pipeline, session(), found.inputs)
        stack.callback(frames.close)
        return _Run(graph, pipeline, options, record, run, frames).execute()


def lazy_session(spark: Any, stack: ExitStack) -> GetSession:
    """Return a function that starts a session at its first call. Its temporary views last until `stack` ends."""
    sessions: list[Any] = []

    def get() -> Any:
        if not sessions:
            from omnigraph.spark.pipelines.source_frames import isolated_session
            from omnigraph.spark.session import session_for

            sessions.append(stack.enter_context(isolated_session(session_for(spark))))
        return sessions[0]

    return get


def find_run_input(
    graph: LocalGraph, pipeline: Pipeline, session: GetSession, *, full_refresh: bool = False
) -> RunInput:
    """Return what the sources have that the last published run has not read."""
    previous = graph.runs.last_runs(pipeline.definition.publish.from_).get(pipeline.name)
    last = None if previous is None else RunRecord.from_text(graph.runs.commit_of(previous).run)
    state = {} if last is None or full_refresh else last.state
    inputs: dict[str, SourceInput] = {}
    for name in sorted(pipeline.used_sources):
        with translated_errors(pipeline, ("sources", name)):
            inputs[name] = find_input(pipeline, name, state.get(name), session)
    after = {name: item.state for name, item in inputs.items() if item.state is not None}
    return RunInput(inputs, previous, last, last is None or after != last.state)


def load_request(
    options: RunOptions, frames: RunFrames, targets: Sequence[TargetRows], branch: str
) -> LoadRequest:
    """Return the load of all targets."""
    rows = combine_targets(targets)
    return LoadRequest(
        rows.frames,
        rows.mode,
        branch,
        op_column=rows.op_column,
        engine="spark",
        spark=frames.spark,
        actor=options.actor,
        progress=options.progress,
        mapping={item.table.key: dict(item.mapping) for item in targets},
    )


def dry_run_load(
    graph: LocalGraph,
    pipeline: Pipeline,
    options: RunOptions,
    frames: RunFrames,
    targets: Sequence[TargetRows],
) -> LoadReceipt:
    """Check and count the rows of a run against the branch that it would be merged into."""
    request = load_request(options, frames, targets, pipeline.definition.publish.from_)
    rejects = None if pipeline.definition.quarantine is None else _ignore
    with translated_errors(pipeline, ()):
        return graph.load_run(replace(request, dry_run=True, rejects=rejects))


def _ignore(_: Mapping[str, Any]) -> None:
    """Drop a rejected row, which the receipt counts."""


class _Run:
    """One run, from the review branch to the merge."""

    def __init__(
        self,
        graph: LocalGraph,
        pipeline: Pipeline,
        options: RunOptions,
        record: RunRecord,
        run: PipelineRun,
        frames: RunFrames,
    ) -> None:
        self._graph = graph
        self._pipeline = pipeline
        self._options = options
        self._record = record
        self._run = run
        self._frames = frames
        self._branch = pipeline.definition.publish.branch.replace("{run_id}", record.run_id)

    def execute(self) -> RunReport:
        publish = self._pipeline.definition.publish
        self._create_branch()
        try:
            report = self._load()
        except BaseException:
            # No row was committed, so there is nothing to review.
            self._delete_branch()
            raise
        if report.commit is None:
            self._delete_branch()
            return replace(report, outcome="unchanged", branch=None)
        audits = tuple(run_audits(self._pipeline, self._graph, self._branch))
        report = replace(report, audits=audits)
        if not report.passed:
            failed = sum(not audit.passed for audit in audits)
            return replace(report, reason=f"{failed} of {len(audits)} audits failed")
        if publish.merge == "never":
            return replace(report, reason="the file says `merge: never`")
        merged = self._graph.branches.merge(
            self._branch,
            publish.from_,
            message=self._message("merge"),
            delete_source=True,
            actor=self._options.actor,
        )
        commit = None if merged.commit is None else merged.commit.id
        return replace(report, outcome="published", merged=commit)

    def _create_branch(self) -> None:
        publish = self._pipeline.definition.publish
        self._graph.branches.create(self._branch, publish.from_, actor=self._options.actor)
        if self._pipeline.definition.schema_ is not None:
            path = self._pipeline.resolve(self._pipeline.definition.schema_)
            try:
                self._graph.schema.apply(Path(path), branch=self._branch, message=self._message("schema"))
            except OmnigraphError:
                self._delete_branch()
                raise

    def _delete_branch(self) -> None:
        self._graph.branches.delete(self._branch)

    def _message(self, part: str) -> str:
        return f"pipeline {self._pipeline.name} run {self._record.run_id}: {part}"

    # --- rows --------------------------------------------------------------------------------------------

    def _load(self) -> RunReport:
        pipeline = self._pipeline
        self._frames.build_views()
        targets = list(self._frames.targets(self._graph.runs.catalog(self._branch), self._folder))
        failed = Counter({item.table.name: item.counts.failed for item in targets if item.counts is not None})
        with translated_errors(pipeline, ()):
            receipt = self._graph.load_run(
                replace(
                    load_request(self._options, self._frames, targets, self._branch),
                    rejects=self._rejects_folder(),
                    message=self._message("rows"),
                    run=self._run,
                    index_later=pipeline.definition.index == "later",
                )
            )
        for name, rules in receipt.rejected_by_rule.items():
            failed[name] += sum(rules.values())
        self._check_rejected(targets, receipt)
        self._check_limit(sum(failed.values()), targets, receipt)
        return RunReport(
            pipeline.name,
            self._record.run_id,
            "left",
            branch=self._branch,
            commit=None if receipt.commit is None else receipt.commit.id,
            sources=self._record.sources,
            affected=receipt.affected,
            quarantined={name: count for name, count in sorted(failed.items()) if count},
            quarantine=self._quarantine_folder() if any(failed.values()) else None,
        )

    def _quarantine_folder(self) -> str | None:
        quarantine = self._pipeline.definition.quarantine
        if quarantine is None:
            return None
        return f"{self._pipeline.resolve(quarantine.path).rstrip('/')}/{self._record.run_id}"

    def _folder(self, _: Table) -> str | None:
        return self._quarantine_folder()

    def _rejects_folder(self) -> str | None:
        """Return the folder for rows that break a rule of the schema, None if they fail the run."""
        folder = self._quarantine_folder()
        if folder is None:
            return None
        if "://" not in folder:
            Path(folder).parent.mkdir(parents=True, exist_ok=True)
        return f"{folder}/"

    def _check_rejected(self, targets: Sequence[TargetRows], receipt: LoadReceipt) -> None:
        """Raise `ConstraintViolation` if a rule rejected rows of a target that does not quarantine them.

        The rows are on the review branch only, which is deleted.
        """
        for item in targets:
            rejected = receipt.rejected_by_rule.get(item.table.name, {})
            rules = {rule: count for rule, count in rejected.items() if fails_run(item.target, rule)}
            if rules:
                listed = ", ".join(f"{count:,} by {rule}" for rule, count in sorted(rules.items()))
                message = f"rows of '{item.table.name}' were rejected: {listed}"
                key = "on_orphan" if list(rules) == [ORPHAN] else "on_fail"
                raise ConstraintViolation(
                    message,
                    [{"rule": rule, "message": message, "type": item.table.name} for rule in sorted(rules)],
                    hint=f"see {receipt.rejects}, or set `{key}: quarantine`",
                )

    def _check_limit(self, failed: int, targets: Sequence[TargetRows], receipt: LoadReceipt) -> None:
        """Raise `ConstraintViolation` if more rows failed than the quarantine accepts."""
        quarantine = self._pipeline.definition.quarantine
        if quarantine is None or quarantine.max is None or not failed:
            return
        if isinstance(quarantine.max, str):
            rows = _count_rows(targets, receipt)
            exceeds = failed * 100 > rows * Decimal(quarantine.max.removesuffix("%"))
            amount = f"{failed:,} of {rows:,} rows"
        else:
            exceeds = failed > quarantine.max
            amount = "1 row" if failed == 1 else f"{failed:,} rows"
        if exceeds:
            message = f"{amount} failed, more than {quarantine.max}"
            raise ConstraintViolation(
                message,
                [{"rule": "quarantine", "message": message}],
                hint=f"see {self._quarantine_folder()}; nothing was loaded",
            )


def _count_rows(targets: Sequence[TargetRows], receipt: LoadReceipt) -> int:
    """Return the number of rows that all targets received, those that failed included."""
    rows = 0 if receipt.skipped else receipt.superseded
    for item in targets:
        name = item.table.name
        if item.counts is not None:
            rows += item.counts.total
        elif item.target.mode == "delete" or item.target.delete_when is not None:
            # A receipt does not tell deletes of rows from the edges that deleted nodes take with them.
            rows += item.frame.count()
        else:
            loaded = receipt.edges if item.table.kind == "edge" else receipt.nodes
            others = (
                *receipt.skipped.get(name, {}).values(),
                *receipt.rejected_by_rule.get(name, {}).values(),
            )
            rows += loaded.get(name, 0) + sum(others)
    return rows
