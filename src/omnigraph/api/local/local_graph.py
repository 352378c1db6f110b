"""`LocalGraph`: a graph that this process opens in its storage."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from omnigraph.api.access import Address
from omnigraph.api.files.export_files import ExportOptions, ExportTarget
from omnigraph.api.graph import Graph
from omnigraph.api.interface.graph_maintenance import (
    BackupOptions,
    CleanupOptions,
    OptimizeOptions,
    RepairOptions,
)
from omnigraph.api.interface.graph_reads import QueryOptions
from omnigraph.api.interface.graph_writes import MutationOptions
from omnigraph.api.local.authorizer import Authorizer
from omnigraph.api.local.checked_queries import SELECTION, CheckedQueries
from omnigraph.api.local.local_branches import LocalBranches
from omnigraph.api.local.local_changes import LocalChangeReads
from omnigraph.api.local.local_embeddings import LocalEmbeddings
from omnigraph.api.local.local_exports import run_export
from omnigraph.api.local.local_history import LocalHistory
from omnigraph.api.local.local_loads import run_load
from omnigraph.api.local.local_merges import run_revert
from omnigraph.api.local.local_mutations import run_mutation
from omnigraph.api.local.local_runs import LocalRuns
from omnigraph.api.local.local_schema import LocalSchemaView
from omnigraph.api.local.local_tags import LocalTags
from omnigraph.api.local.open_options import OpenOptions
from omnigraph.api.local.spark_reads import is_for_spark, spark_frame, spark_rows
from omnigraph.api.results.commits import At, Commit
from omnigraph.api.results.loads import LoadReceipt
from omnigraph.api.results.maintenance_reports import Index, Optimized, Repair
from omnigraph.api.results.merges import Merged, MergeRequest
from omnigraph.api.results.receipts import Receipt
from omnigraph.api.results.result import Result
from omnigraph.budget.query_budget import NO_LIMITS, limit_query
from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.lang.gq.query_parameters import bind_params
from omnigraph.load.load_request import LoadRequest
from omnigraph.maintain.backup.copy_report import CopyReport
from omnigraph.maintain.verification.verify_options import VerifyOptions
from omnigraph.read.entity_columns import pack_entities, result_types
from omnigraph.store.spans import span

if TYPE_CHECKING:
    from omnigraph.api.results.blobs import Blob, BlobSelector
    from omnigraph.engine.parameters import Bindings
    from omnigraph.graph.health import HealthCheck
    from omnigraph.graph.progress import Progress
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.graph.write_statistics import WriteStatistics
    from omnigraph.maintain.settings import GraphSettings, RetentionInput
    from omnigraph.maintain.verification.report import VerifyReport
    from omnigraph.policy.gate import Access, Gate
    from omnigraph.read.neighbors import NeighborRequest
    from omnigraph.read.reader import Reader
    from omnigraph.rules.external_blobs import ExternalBlobPolicy


class LocalGraph(LocalChangeReads, LocalHistory, Graph):
    """A `Graph` over a repository. `options` are the arguments with which a pickled handle is opened again."""

    def __init__(
        self,
        repository: Repository,
        reader: Reader,
        options: OpenOptions,
        gate: Gate | None = None,
        granted: frozenset[Access] = frozenset(),
    ) -> None:
        authorizer = Authorizer(repository, options.actor, gate, granted)
        super().__init__(repository, authorizer, reader.cache)
        self.branches = LocalBranches(repository, authorizer, reader.ids)
        self.tags = LocalTags(repository, authorizer)
        self.schema = LocalSchemaView(repository, authorizer)
        self.embeddings = LocalEmbeddings(repository, authorizer, reader)
        self._options = options
        self._reader = reader
        self._queries = CheckedQueries()
        self._is_view = False

    def __reduce__(self) -> tuple[Any, ...]:
        from omnigraph.api.entry import reopen

        return reopen, (self.uri, self._options)

    @property
    def uri(self) -> str:
        return self._repository.location.uri

    @property
    def actor(self) -> str | None:
        return self._authorizer.actor

    @property
    def runs(self) -> LocalRuns:
        """The runs of pipelines, which only a process beside the storage of the graph performs."""
        return LocalRuns(self._repository, self._authorizer)

    @property
    def external_blobs(self) -> ExternalBlobPolicy:
        """The policy for Blob values that are external URIs."""
        from omnigraph.rules.external_blobs import ExternalBlobPolicy

        return ExternalBlobPolicy.of(self._options.external_blobs)

    def acting_as(self, actor: str | None) -> LocalGraph:
        return self.authorized_view(actor, frozenset(), self._authorizer.gate)

    def authorized_view(self, actor: str | None, granted: frozenset[Access], gate: Gate | None) -> LocalGraph:
        """Return the handle of `acting_as` for an actor whose accesses in `granted` are authorized already.

        The handle does not evaluate the policy for them again. A server authorizes a request before it reads the
        body. `gate` replaces the gate of this handle, because a server can reload its policies.
        """
        options = replace(self._options, actor=actor)
        view = LocalGraph(self._repository, self._reader, options, gate, granted)
        view._queries = self._queries
        view._is_view = True
        return view

    def close(self) -> None:
        if not self._is_view:
            self._repository.close()
            self._reader.close_embedder()

    # --- reads -------------------------------------------------------------------------------------------

    def _query(self, text: str, options: QueryOptions) -> Result:
        with span("query", branch=str(options.branch)):
            if options.limits == NO_LIMITS:
                return self._run_query(text, options)
            with limit_query(options.limits):
                return self._run_query(text, options)

    def _run_query(self, text: str, options: QueryOptions) -> Result:
        snapshot, query, bindings = self._prepare_read(text, options)
        if is_for_spark(options.engine, self._repository, snapshot, query):
            table = spark_rows(self._repository, self._reader, snapshot, query, bindings, options.spark)
        else:
            table = self._reader.run(snapshot, query, bindings)
        return Result(
            pack_entities(table, query),
            snapshot.commit_id,
            query.name,
            branch=snapshot.branch if options.at is None else None,
            snapshot=None if options.at is None else snapshot.commit_id,
            types=result_types(query),
        )

    def _dataframe(self, text: str, options: QueryOptions) -> Any:
        snapshot, query, bindings = self._prepare_read(text, options)
        return spark_frame(self._repository, self._reader, snapshot, query, bindings, options.spark)

    def _explain(self, text: str, options: QueryOptions) -> str:
        return self._reader.explain(*self._prepare_read(text, options))

    def _get(self, type_name: str, id_: str, branch: str, at: At) -> dict[str, Any] | None:
        from omnigraph.read.entity import find_entity

        return find_entity(self._reader.session(self._snapshot(branch, at)), type_name, id_)

    def _neighbors(self, request: NeighborRequest, branch: str, at: At) -> dict[str, Any]:
        from omnigraph.read.neighbors import find_neighbors

        return find_neighbors(self._reader.session(self._snapshot(branch, at)), request)

    def _blob(self, selector: BlobSelector) -> Blob:
        from omnigraph.api.local.local_blobs import open_blob

        return open_blob(self._reader, self._snapshot(selector.branch, selector.at), selector)

    def _snapshot(self, branch: str, at: At) -> Snapshot:
        return self._repository.snapshot(branch, self._authorizer.authorize_at("read", branch, at))

    def _export(self, target: ExportTarget, options: ExportOptions) -> int:
        state = self._authorizer.authorize_at("export", options.branch, options.at)
        snapshot = self._repository.snapshot(options.branch, state)
        return run_export(self._repository, snapshot, target, options)

    def _prepare_read(self, text: str, options: QueryOptions) -> tuple[Snapshot, ir.ReadQuery, Bindings]:
        """Return the state, the checked query and its parameters. Raise `InvalidInput` for a mutation."""
        snapshot = self._snapshot(options.branch, options.at)
        query = self._queries.get(text, options.name, snapshot.catalog)
        if not isinstance(query, ir.ReadQuery):
            raise InvalidInput(
                f"query '{query.name}' contains mutations (insert/update/delete)",
                details={SELECTION: "mutation", "query": query.name},
                hint="run it with `mutate`",
            )
        return snapshot, query, _bind(query, options.params)

    # --- writes ------------------------------------------------------------------------------------------

    def _mutate(self, text: str, options: MutationOptions) -> Receipt:
        actor = self._authorizer.authorize("change", options.branch, actor=options.actor)
        options = replace(options, actor=actor)
        return run_mutation(self._repository, self._reader, self._queries, text, options, self.external_blobs)

    def _load(self, request: LoadRequest) -> LoadReceipt:
        actor = self._authorizer.authorize("change", request.branch, actor=request.actor)
        request = replace(
            request, actor=actor, external_blobs=self.external_blobs, vectors=self._reader.vectors
        )
        return run_load(self._repository, request, self._authorizer, self._reader.ids)

    def load_run(self, request: LoadRequest) -> LoadReceipt:
        """Load the rows of a pipeline run, with its state, as one commit. The request has the run."""
        return self._load(request)

    def _revert(self, commit_id: str, options: MergeRequest) -> Merged:
        actor = self._authorizer.authorize("change", options.into, actor=options.actor)
        return run_revert(
            self._repository, commit_id, replace(options, actor=actor), self._authorizer, self._reader.ids
        )

    # --- operation ---------------------------------------------------------------------------------------

    def health_check(self) -> HealthCheck:
        """Return a check of the manifest and of the files of branch heads, for repeated use."""
        from omnigraph.graph.health import HealthCheck

        return HealthCheck(self._repository)

    @property
    def write_statistics(self) -> WriteStatistics:
        """The commits, groups and retries of this handle."""
        return self._repository.write_queue.statistics

    @property
    def transferred_bytes(self) -> tuple[int, int]:
        """The bytes of table files that this handle has read and written."""
        return self._repository.manifest.root.request_counter.transferred_bytes()

    # --- maintenance -------------------------------------------------------------------------------------

    def _settings(self) -> GraphSettings:
        from omnigraph.maintain.settings import read_settings

        self._authorizer.authorize("read")
        return read_settings(self._repository)

    def _set_settings(self, retention: RetentionInput) -> GraphSettings:
        from omnigraph.maintain.settings import change_settings

        # A shorter retention lets upkeep truncate the history of every branch.
        self._authorizer.authorize("admin")
        return change_settings(self._repository, retention=retention)

    def _cleanup(self, options: CleanupOptions) -> dict[str, Any]:
        from omnigraph.maintain.cleanup import GRACE, cleanup
        from omnigraph.maintain.retention import parse_duration

        if options.confirm:
            # Garbage collection truncates the history of every branch and cannot be undone.
            self._authorizer.authorize("admin")
        else:
            self._authorizer.authorize("change", "main")
        report = cleanup(
            self._repository,
            keep=options.keep,
            older_than=options.older_than,
            confirm=options.confirm,
            grace=GRACE if options.grace is None else parse_duration(options.grace),
        )
        return {
            "confirmed": report.confirmed,
            "datasets": [item.to_json() for item in report.datasets],
            "objects_removed": report.objects_removed,
            "objects_error": report.objects_error,
        }

    def _optimize(self, options: OptimizeOptions) -> Optimized:
        from omnigraph.maintain.optimize import optimize
        from omnigraph.spark.engine.tasks import spark_tasks

        actor = self._authorizer.authorize("change", options.branch, actor=options.actor)
        report = optimize(
            self._repository,
            branch=options.branch,
            engine=options.engine,
            run_on_spark=spark_tasks(options.spark),
            progress=options.progress,
            actor=actor,
            message=options.message,
        )
        commit = None if report.commit is None else Commit.of(report.commit)
        return Optimized(commit, options.branch, report.datasets)

    def _verify(self, options: VerifyOptions, progress: Progress | None, spark: Any) -> VerifyReport:
        from omnigraph.maintain.verification.verify import verify
        from omnigraph.spark.engine.tasks import spark_tasks

        # The report names files, and states of branches that the actor may not read.
        self._authorizer.authorize("admin")
        if options.record:
            self._repository.check_writable("record digests")
        return verify(
            self._repository.tables.root,
            self._repository.objects,
            options,
            run_on_spark=spark_tasks(spark),
            progress=progress,
        )

    def _repair(self, options: RepairOptions) -> Repair:
        from omnigraph.maintain.repair import repair, repair_branch

        confirm, branch = options.confirm, options.reset_branch
        if options.force or branch is not None:
            # Force discards a write whose intent cannot be read, so the actor of that write is unknown. A reset
            # discards commits of any actor.
            self._authorizer.authorize("admin")
        else:
            self._authorizer.authorize("change", "main")
        actor = self._authorizer.actor
        if branch is not None:
            report = repair_branch(self._repository, branch, options.to, confirm=confirm, actor=actor)
        else:
            report = repair(
                self._repository,
                confirm=confirm,
                force=options.force,
                actor=actor,
                may_change=partial(self._authorizer.allows, "change"),
            )
        return Repair(
            confirm,
            report.pending,
            tuple(record.to_body() for record in report.settled),
            report.graph_version,
            tuple(item.to_json() for item in report.datasets),
            None if report.reset is None else report.reset.to_json(),
        )

    def _backup(self, target: Address, options: BackupOptions) -> CopyReport:
        from omnigraph.maintain.backup.backup import backup
        from omnigraph.maintain.backup.copy_options import CopyOptions

        # A backup holds every branch.
        self._authorizer.authorize("admin")
        storage = (
            self._options.storage_options if options.storage_options is None else options.storage_options
        )
        copy_options = CopyOptions(
            storage, options.durability, options.verify, options.progress, options.skip_damaged
        )
        return backup(self._repository, target, copy_options, since=options.since)

    def _indexes(self, branch: str, at: At) -> list[Index]:
        from omnigraph.store.tables.table_indexes import list_indexes

        snapshot = self._snapshot(branch, at)
        indexes = []
        for key, table in snapshot.catalog.tables.items():
            pin = snapshot.pin(key)
            names = {column.physical: column.name for column in table.columns}
            with snapshot.reading():
                found = list_indexes(snapshot.tables, pin)
            for item in found:
                properties = ", ".join(names.get(name, name) for name in item.columns)
                indexes.append(Index(table.name, properties, item.kind, pin.rows, item.rows))
        return indexes


def _bind(query: ir.ReadQuery, params: Mapping[str, Any] | None) -> Bindings:
    from omnigraph.engine.parameters import Bindings

    return Bindings(bind_params(query.params, params), time.time_ns() // 1_000_000)
