"""The methods of `Graph` that commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.files.local_files import read_query
from omnigraph.api.interface.batches import Batch
from omnigraph.api.results.commits import Commit, commit_id_of
from omnigraph.api.results.loads import LoadReceipt, check_load
from omnigraph.api.results.merges import Merged, MergeRequest, Resolve
from omnigraph.engine.engine_choice import Engine
from omnigraph.graph.argument_checks import check_text, require_text
from omnigraph.graph.progress import Progress
from omnigraph.load.load_request import LoadRequest, Rejects, is_index_later
from omnigraph.rules.load_mode import IndexTime, LoadMode

if TYPE_CHECKING:
    from omnigraph.api.results.receipts import Receipt


@dataclass(frozen=True, slots=True)
class MutationOptions:
    """The arguments of `Graph.mutate` besides the text."""

    params: Mapping[str, Any] | None = None
    name: str | None = None
    branch: str = "main"
    message: str | None = None
    if_commit: str | None = None
    idempotency_key: str | None = None
    actor: str | None = None


class GraphWrites(ABC):
    """Mutations, loads and reverts."""

    def mutate(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        message: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        actor: str | None = None,
    ) -> Receipt:
        """Run a mutation query as one commit.

        The statements run in order and see the effects of earlier statements. Constraints are checked for the
        result of all statements. If anything fails, nothing is committed. `if_commit` raises `PreconditionFailed`
        unless the head of the branch is this commit. A repeated call with the same `idempotency_key` returns the
        first commit.
        """
        options = MutationOptions(params, name, branch, message, if_commit, idempotency_key, actor)
        return self._mutate(read_query(source), options)

    def load(
        self,
        source: Any = None,
        mode: LoadMode = "append",
        *,
        branch: str = "main",
        create_from: str | None = None,
        engine: Engine = "auto",
        rejects: Rejects | None = None,
        max_rejects: int | str | None = None,
        permissive: bool = False,
        message: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
        spark: Any = None,
        dry_run: bool = False,
        mapping: str | Path | Mapping[str, Any] | None = None,
        csv_null: str = "",
        op_column: str | None = None,
        order_by: str | None = None,
        require_existing: bool = False,
        index: IndexTime = "now",
    ) -> LoadReceipt:
        """Load records as one commit.

        `source` is one of:

        - the path, glob or folder of graph NDJSON, a binary stream of it, or an iterable of such records as dicts
        - a mapping from type to rows, ``{"Person": "people.parquet", "Knows": table}``: a CSV, Parquet, JSON, ORC,
          Avro or Arrow file; an Arrow, pandas or polars table; a Spark DataFrame or ``table:NAME`` of its
          catalog; or dicts

        `mapping` assigns columns to properties that have another name, and can name the sources. It is a YAML or
        JSON file, or its content.

        ``append`` inserts rows and refuses ids that exist. ``merge`` replaces whole rows by id; two records of one
        key are refused, and of several records with one explicit id the last counts. ``patch`` updates or inserts
        rows by id; columns and fields that the input does not give stay as they are. ``delete`` removes rows by key
        or id, and the edges of removed nodes; rows that do not exist are counted, or refused with
        `require_existing`. ``overwrite`` replaces all rows of the types in the input.

        `op_column` names a column, or a field of graph records, with the operation of each row: ``I`` and ``U``, or
        ``c``, ``u`` and ``r`` of Debezium, do what the mode ``merge`` or ``patch`` says, ``D`` or ``d`` deletes.
        `order_by` names a column with the order of the rows: of several rows of one key the newest applies last. If
        it is a property, a row that is older than the stored one has no effect.

        The whole input is validated before anything is committed. With `create_from`, a missing branch is created
        from that branch first. `csv_null` is the text of an unquoted CSV cell that means null.

        With `rejects`, records that are invalid or break a constraint are written there and left out, and so are
        the edges of nodes that were left out. It is a file or a folder, local or ``s3://``, ``table:NAME`` of
        Spark's catalog, or a function. If more than `max_rejects` records are rejected, a number or a percentage of
        the input such as ``"0.5%"``, nothing is committed.

        With `permissive`, graph records are JSON values in any layout, unknown fields are dropped, and values of
        the wrong type are stored as null; `LoadReceipt.warnings` reports all of them.

        `engine` is ``local`` for this process, ``spark`` for Spark tasks, which read files and DataFrames, or
        ``auto``, which uses Spark for large files. `spark` is a session or the URL of a master. By default the
        active session is used, or a new one on this machine. Both engines commit the same rows and raise the same
        errors.

        A large load indexes its ids and endpoints in the same commit. With ``index="later"`` the next `optimize` or
        background upkeep, does that. The load is faster, and until then reads scan the rows that no index covers.
        `LoadReceipt.unindexed` counts them.

        With `dry_run` the input is read and validated, nothing is committed, and the receipt has the counts.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-load", schema="node City { name: String @key  inhabitants: I64? }")
        >>> receipt = g.load(
        ...     [{"type": "City", "data": {"name": "Bern"}}, {"type": "City", "data": {"name": "Rome"}}]
        ... )
        >>> receipt.nodes, receipt.commit.operation
        ({'City': 2}, 'load')
        >>> g.load({"City": [{"name": "Bern", "inhabitants": 134_000}]}, mode="merge").affected
        {'City': {'inserted': 0, 'updated': 1, 'deleted': 0}}
        >>> g.load({"City": [{"name": "Rome", "op": "D"}]}, mode="merge", op_column="op").affected
        {'City': {'inserted': 0, 'updated': 0, 'deleted': 1}}
        """
        request = LoadRequest(
            source=source,
            mode=mode,
            branch=require_text("branch", branch),
            create_from=check_text("create_from", create_from),
            engine=engine,
            rejects=rejects,
            max_rejects=max_rejects,
            permissive=permissive,
            message=message,
            if_commit=if_commit,
            idempotency_key=idempotency_key,
            actor=actor,
            progress=progress,
            spark=spark,
            dry_run=dry_run,
            mapping=mapping,
            csv_null=require_text("csv_null", csv_null),
            op_column=check_text("op_column", op_column),
            order_by=check_text("order_by", order_by),
            require_existing=require_existing,
            index_later=is_index_later(index),
        )
        check_load(request)
        return self._load(request)

    def batch(
        self,
        *,
        branch: str = "main",
        create_from: str | None = None,
        engine: Engine = "auto",
        rejects: Rejects | None = None,
        message: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
        spark: Any = None,
        dry_run: bool = False,
        require_existing: bool = False,
        index: IndexTime = "now",
    ) -> Batch:
        """Return a context in which rows of many types are changed and committed once, at its end.

        Files, tables, Spark DataFrames and rows can be mixed; with a DataFrame the batch runs on Spark. The checks
        run over the whole batch. After an exception nothing is committed. The arguments are those of `load`. A
        batch with the `idempotency_key` of an earlier one is not committed again: in ``foreachBatch`` of a Spark
        stream the key contains the batch id.

        >>> import omnigraph as og
        >>> schema = "node City { name: String @key  mayor: String? }"
        >>> g = og.init("memory://docs-batch", schema=schema)
        >>> with g.batch(message="cities") as b:
        ...     _ = b.merge("City", [{"name": "Bern"}, {"name": "Rome"}])
        ...     _ = b.patch("City", [{"name": "Bern", "mayor": "Ana"}])
        ...     _ = b.delete("City", [{"name": "Rome"}])
        >>> b.receipt.affected, g.get("City", "Bern")["mayor"]
        ({'City': {'inserted': 1, 'updated': 0, 'deleted': 0}}, 'Ana')
        """
        request = LoadRequest(
            source=None,
            mode="merge",
            branch=require_text("branch", branch),
            create_from=check_text("create_from", create_from),
            engine=engine,
            rejects=rejects,
            message=message,
            if_commit=if_commit,
            idempotency_key=idempotency_key,
            actor=actor,
            progress=progress,
            spark=spark,
            dry_run=dry_run,
            require_existing=require_existing,
            index_later=is_index_later(index),
        )
        check_load(request)
        return Batch(request, self._load)

    def revert(
        self,
        commit_id: str | Commit,
        *,
        branch: str = "main",
        resolve: Resolve = None,
        dry_run: bool = False,
        message: str | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> Merged:
        """Undo one commit with a new commit. Later commits remain in effect.

        If later commits changed the same data, `MergeConflicts` is raised. `resolve` has the form that
        `Branches.merge` accepts: ``"ours"`` keeps the value of the branch, ``"theirs"`` restores the earlier value.
        Reverting a merge undoes all changes that it brought into the branch.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-revert", schema="node City { name: String @key }")
        >>> added = g.load({"City": [{"name": "Bern"}]}).commit
        >>> g.revert(added.id).commit.operation, g.get("City", "Bern")
        ('revert', None)
        """
        into = require_text("branch", branch)
        options = MergeRequest(into, resolve, dry_run, message, if_commit, actor, progress)
        return self._revert(commit_id_of(commit_id), options)

    @abstractmethod
    def _mutate(self, text: str, options: MutationOptions) -> Receipt: ...

    @abstractmethod
    def _load(self, request: LoadRequest) -> LoadReceipt: ...

    @abstractmethod
    def _revert(self, commit_id: str, options: MergeRequest) -> Merged: ...
