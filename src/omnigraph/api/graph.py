"""`Graph`: everything one can do with a graph, from Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from omnigraph.api.access import Guard
from omnigraph.api.branches import Branches
from omnigraph.api.change_reads import ChangeReads
from omnigraph.api.checked_queries import SELECTION, CheckedQueries
from omnigraph.api.commits import (
    At,
    Commit,
    Index,
    Optimized,
    Receipt,
    Recovery,
    Repair,
    by_type_name,
    check_limit,
    id_of,
)
from omnigraph.api.exports import ExportFormat, ExportRequest, run_export
from omnigraph.api.files import read_query
from omnigraph.api.loads import LoadReceipt, run_load
from omnigraph.api.merges import Merged, MergeRequest, Resolve, run_revert
from omnigraph.api.queries import is_for_spark, spark_frame, spark_rows
from omnigraph.api.result import Result
from omnigraph.api.schemas import SchemaView
from omnigraph.engine.engine_choice import Engine
from omnigraph.errors import InvalidInput
from omnigraph.graph.argument_checks import check_text, require_text
from omnigraph.lang import ir
from omnigraph.lang.gq.query_parameters import bind_params
from omnigraph.load.load_request import LoadRequest, Rejects
from omnigraph.rules.load_mode import LoadMode

if TYPE_CHECKING:
    from omnigraph.engine.parameters import Bindings
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.graph.transaction import Transaction
    from omnigraph.graph.write_plan import Prepared
    from omnigraph.mutate.mutate import MutationResult
    from omnigraph.policy.gate import Access, Gate
    from omnigraph.read.reader import Reader


class Graph(ChangeReads):
    """A handle on a graph. Safe to share between threads; it pickles to its address, never to state.

    >>> import omnigraph as og
    >>> g = og.init("memory://docs-graph", schema="node Person { name: String @key  age: I32? }", actor="ana")
    >>> add = 'query add($n: String) { insert Person { name: $n, age: 30 } }'
    >>> g.mutate(add, {"n": "Bo"}).affected
    {'Person': {'inserted': 1, 'updated': 0, 'deleted': 0}}
    >>> [commit.operation for commit in g.commits()]
    ['mutate', 'init']
    """

    def __init__(
        self,
        repository: Repository,
        reader: Reader,
        actor: str | None,
        opened: Mapping[str, Any],
        gate: Gate | None = None,
        granted: frozenset[Access] = frozenset(),
    ) -> None:
        guard = Guard(repository, actor, gate, granted)
        super().__init__(repository, guard, reader.cache)
        self._opened = dict(opened)
        self.branches = Branches(repository, guard)
        self.schema = SchemaView(repository, guard)
        self._checked = CheckedQueries()
        self._reader = reader
        self._is_view = False

    def __reduce__(self) -> tuple[Any, ...]:
        from omnigraph.api.entry import reopen

        return reopen, (dict(self._opened),)

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Graph({self.uri!r})"

    @property
    def uri(self) -> str:
        """The graph's address in its one normal form."""
        return self._repository.location.uri

    @property
    def actor(self) -> str | None:
        """Whom the handle acts for: writes record it, and the policy decides about it."""
        return self._guard.actor

    def acting_as(self, actor: str | None) -> Graph:
        """The same handle for another actor, with everything that this one keeps. It costs nothing to make.

        Closing it does nothing: the handle is closed where it was opened.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-acting-as", schema="node City { name: String @key }")
        >>> g.acting_as("bo").load({"City": [{"name": "Bern"}]}).commit.actor
        'bo'
        """
        return self._authorized_as(actor, frozenset())

    def _authorized_as(self, actor: str | None, granted: frozenset[Access]) -> Graph:
        opened = {**self._opened, "actor": actor}
        view = Graph(self._repository, self._reader, actor, opened, self._guard.gate, granted)
        view._checked = self._checked
        view._is_view = True
        return view

    def close(self) -> None:
        """Let go of threads. Calls after this are refused; closing twice is closing once.

        A graph needs no closing: every commit is complete when its call returns.
        """
        if not self._is_view:
            self._repository.close()

    # --- reading -----------------------------------------------------------------------------------------

    def query(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
        engine: Engine = "auto",
        spark: Any = None,
    ) -> Result:
        """Run a read on one consistent state: a branch's newest, or that of a commit, snapshot or moment `at`.

        ``engine="spark"`` has Spark run it, with the same rows; ``auto`` does for hundreds of millions of rows.
        `spark` is as for `load`.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-query", schema="node City { name: String @key  inhabitants: I64? }")
        >>> _ = g.mutate('query add() { insert City { name: "Bern", inhabitants: 134000 } }')
        >>> big = "query big($n: I64) { match { $c: City  $c.inhabitants > $n } return { $c.name } }"
        >>> g.query(big, {"n": 100_000}).rows()
        [{'c.name': 'Bern'}]
        """
        text = read_query(source)
        snapshot = self._snapshot(branch, at)
        query = self._read(text, name, snapshot)
        bindings = self._bindings(query, params)
        if is_for_spark(engine, self._repository, snapshot, query):
            table = spark_rows(self._repository, self._reader, snapshot, query, bindings, spark)
        else:
            table = self._reader.run(snapshot, query, bindings)
        return Result(
            table,
            snapshot.commit_id,
            query.name,
            branch=snapshot.branch if at is None else None,
            snapshot=None if at is None else snapshot.commit_id,
            types=tuple(output.type for output in query.outputs),
        )

    def dataframe(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
        spark: Any = None,
    ) -> Any:
        """The rows of a read as a DataFrame of Spark, of one state however late they are computed.

        Rows are in order where the query orders them. Parameters and ``now()`` are those of this call. `spark` is
        as for `load`; the DataFrame belongs to that session.
        """
        text = read_query(source)
        snapshot = self._snapshot(branch, at)
        query = self._read(text, name, snapshot)
        bindings = self._bindings(query, params)
        return spark_frame(self._repository, self._reader, snapshot, query, bindings, spark)

    def explain(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
    ) -> str:
        """How a read would be run: scans and what is pushed into them, how edges are followed and why."""
        text = read_query(source)
        snapshot = self._snapshot(branch, at)
        query = self._read(text, name, snapshot)
        return self._reader.explain(snapshot, query, self._bindings(query, params))

    def get(
        self,
        type_name: str,
        id: str | int,  # noqa: A002 - the name is part of the API
        *,
        branch: str = "main",
        at: At = None,
    ) -> dict[str, Any] | None:
        """One node or edge by its id, or None: its id, for an edge ``from`` and ``to``, and every property.

        Where the key is an integer it may be given as such.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-get", schema="node City { name: String @key  founded: Date? }")
        >>> _ = g.mutate('query add() { insert City { name: "Bern", founded: date("1191-01-01") } }')
        >>> g.get("City", "Bern")
        {'id': 'Bern', 'founded': '1191-01-01', 'name': 'Bern'}
        """
        from omnigraph.catalog.keys import id_text
        from omnigraph.read.entity import find_entity

        wanted = id_text(id)
        return find_entity(self._reader.session(self._snapshot(branch, at)), type_name, wanted)

    def export(
        self,
        target: str | Path | IO[str],
        *,
        branch: str = "main",
        at: At = None,
        types: Sequence[str] | None = None,
        progress: Callable[[str, int], None] | None = None,
        format: ExportFormat = "ndjson",  # noqa: A002 - the name is part of the API
        engine: Engine = "auto",
        spark: Any = None,
        overwrite: bool = False,
    ) -> int:
        """Write a state to a file, a text stream or a folder, here or on ``s3://``; the number of records.

        A file or a stream gets graph NDJSON in an order that only depends on what is in it; a file appears whole
        or not at all. A folder, which is one that exists or a name that ends in ``/``, gets many files in no
        particular order, and ``_SUCCESS`` when all are there; one that holds something is refused, unless
        `overwrite` lets it replace an export. `types` limits it to node and edge types of these names.

        ``parquet`` is always a folder, ``nodes/Person/part-00000.parquet``. With ``engine="spark"`` tasks of Spark
        write the files of a folder; ``auto`` takes Spark for very many rows. `spark` is as for `load`. What is
        written loads back unchanged.
        """
        found = self._guard.admit_at("export", branch, at)
        request = ExportRequest(target, branch, found, types, progress, format, engine, spark, overwrite)
        return run_export(self._repository, request)

    def _snapshot(self, branch: str, at: At) -> Snapshot:
        return self._repository.snapshot(branch, self._guard.admit_at("read", branch, at))

    def _read(self, source: str, name: str | None, snapshot: Snapshot) -> ir.ReadQuery:
        query = self._checked.get(source, name, snapshot.catalog)
        if isinstance(query, ir.ReadQuery):
            return query
        raise InvalidInput(
            f"query '{query.name}' contains mutations (insert/update/delete)",
            details={SELECTION: "mutation", "query": query.name},
            hint="run it with `mutate`",
        )

    @staticmethod
    def _bindings(query: ir.CheckedQuery, params: Mapping[str, Any] | None) -> Bindings:
        from omnigraph.engine.parameters import Bindings

        return Bindings(bind_params(query.params, params), time.time_ns() // 1_000_000)

    # --- writing -----------------------------------------------------------------------------------------

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

        Its statements apply in order and see each other's effects; constraints are checked over the whole. When
        anything fails nothing is visible. `if_commit` refuses unless the branch's head is that commit.
        """
        from omnigraph.engine.parameters import Bindings
        from omnigraph.graph.write_request import WriteRequest
        from omnigraph.mutate.mutate import prepare_mutation

        text = read_query(source)
        actor = self._guard.admit("change", branch, actor=actor)
        now = time.time_ns() // 1_000_000

        def prepare(transaction: Transaction) -> Prepared[MutationResult]:
            query = self._checked.get(text, name, transaction.base.catalog)
            if not isinstance(query, ir.MutationQuery):
                raise InvalidInput(
                    f"query '{query.name}' is a read",
                    details={SELECTION: "read", "query": query.name},
                    hint="run it with `query`",
                )
            bindings = Bindings(bind_params(query.params, params), now)
            return prepare_mutation(transaction, query, bindings, self._reader.ids)

        request = WriteRequest(
            "mutate",
            actor=actor,
            message=message,
            expected_head=if_commit,
            idempotency_key=idempotency_key,
            request=f"{text}\0{name}\0{params!r}",
        )
        done, result = self._repository.write(branch, request, prepare)
        # A replayed request is not compiled, so its query is known only by the name in the call.
        query_name = name if result is None else result.query_name
        if done is None:
            return Receipt(None, query_name=query_name)
        if result is None or done.replayed:
            return Receipt(Commit.of(done.commit), replayed=True, query_name=query_name)
        return Receipt(
            Commit.of(done.commit),
            by_type_name(result.affected),
            result.nodes,
            result.edges,
            query_name=query_name,
        )

    def load(
        self,
        source: Any = None,
        mode: LoadMode = "append",
        *,
        branch: str = "main",
        create_from: str | None = None,
        engine: Engine = "auto",
        rejects: Rejects | None = None,
        permissive: bool = False,
        message: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        actor: str | None = None,
        progress: Callable[[str, int], None] | None = None,
        spark: Any = None,
        dry_run: bool = False,
        mapping: str | Path | Mapping[str, Any] | None = None,
    ) -> LoadReceipt:
        """Load many records as one commit.

        `source` is the path, glob or folder of graph NDJSON, a binary stream of it, an iterable of such records as
        dicts, or a mapping from type to rows: ``{"Person": "people.parquet", "Knows": table}`` with files of CSV,
        Parquet, JSON, ORC, Avro or Arrow; tables of Arrow, pandas or polars; DataFrames of Spark, ``table:NAME`` of
        its catalog; or dicts. `mapping`, a file of YAML or JSON or what it would hold, says which columns fill
        which properties, where they are not of one name; it may name the sources too.

        ``append`` inserts and refuses ids that exist; ``merge`` replaces whole rows by id, the last record of an id
        counts; ``overwrite`` replaces all rows of the types in the input. Everything is checked before anything
        is visible. With `rejects`, records that are wrong by themselves are written there and left out. With
        `create_from`, a branch that is missing is made from that one first.

        `engine` says where the work is done: ``local`` in this process, ``spark`` by Spark's tasks, for files and
        DataFrames; ``auto`` takes Spark for large files. `spark` is a session or the URL of a master;
        without it the active session is used, or one is started on this machine. Graph and refusals are the same.

        With `dry_run` everything is read and checked and nothing is committed: the receipt tells what would be.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-load", schema="node City { name: String @key  inhabitants: I64? }")
        >>> done = g.load([{"type": "City", "data": {"name": "Bern"}}, {"type": "City", "data": {"name": "Rome"}}])
        >>> done.nodes, done.commit.operation
        ({'City': 2}, 'load')
        >>> g.load({"City": [{"name": "Bern", "inhabitants": 134_000}]}, mode="merge").affected
        {'City': {'inserted': 0, 'updated': 1, 'deleted': 0}}
        """
        actor = self._guard.admit("change", branch, actor=actor)
        request = LoadRequest(
            source,
            mode,
            require_text("branch", branch),
            check_text("create_from", create_from),
            engine,
            rejects,
            permissive,
            message,
            if_commit,
            idempotency_key,
            actor,
            progress,
            spark,
            dry_run,
            mapping,
        )
        return run_load(self._repository, request, self._guard)

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
        progress: Callable[[str, int], None] | None = None,
    ) -> Merged:
        """Undo one commit with a new one; everything that came after it stays.

        Where later commits changed the same things it is refused like a merge, and settled like one: ``"ours"``
        keeps the branch as it is, ``"theirs"`` goes back. Undoing a merge takes back all that it brought.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-revert", schema="node City { name: String @key }")
        >>> added = g.load({"City": [{"name": "Bern"}]}).commit
        >>> g.revert(added.id).commit.operation, g.get("City", "Bern")
        ('revert', None)
        """
        actor = self._guard.admit("change", branch, actor=actor)
        request = MergeRequest(branch, resolve, dry_run, message, if_commit, actor, progress)
        return run_revert(self._repository, id_of(commit_id), request, self._guard)

    # --- history -----------------------------------------------------------------------------------------

    def commits(self, branch: str = "main", limit: int | None = 50, actor: str | None = None) -> list[Commit]:
        """A branch's history, newest first, the inherited part included."""
        self._guard.admit("read", branch)
        check_limit(limit)
        found = (Commit.of(item) for item in self._repository.commits(branch))
        chosen = (item for item in found if actor is None or item.actor == actor)
        return list(islice(chosen, limit))

    def commit(self, id: str) -> Commit:  # noqa: A002 - the name is part of the API
        """A commit by its id."""
        self._guard.admit("read")
        return Commit.of(self._repository.commit(id))

    def recoveries(self) -> list[Recovery]:
        """What became of bulk writes that were interrupted, on any branch, newest first.

        >>> import omnigraph as og
        >>> og.init("memory://docs-recoveries", schema="node City { name: String @key }").recoveries()
        []
        """
        self._guard.admit("read")
        return [Recovery.of(item) for item in reversed(self._repository.recoveries())]

    def snapshot(self, branch: str = "main", at: At = None) -> Snapshot:
        """The state of a branch, or of a commit or moment; reading from it never changes."""
        return self._snapshot(branch, at)

    # --- maintenance -------------------------------------------------------------------------------------

    def cleanup(
        self, keep: int | None = None, older_than: str | timedelta | None = None, confirm: bool = False
    ) -> dict[str, Any]:
        """Remove data that only old commits need; without `confirm` only tell what would go.

        So many commits of each branch keep theirs (`keep`), and those that were current within a length of time,
        such as ``"7d"`` (`older_than`); with both, one has to be beyond both. Heads keep theirs always.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-cleanup", schema="node City { name: String @key }")
        >>> _ = g.load({"City": [{"name": "Bern"}]})
        >>> g.cleanup(keep=10, older_than="7d")["confirmed"]
        False
        """
        from omnigraph.maintain.cleanup import cleanup

        check_retention(keep, older_than)
        if confirm:
            # It ends history of every branch and cannot be undone: more than a change of one of them.
            self._guard.admit("admin")
        else:
            self._guard.admit("change", "main")
        report = cleanup(self._repository, keep=keep, older_than=older_than, confirm=confirm)
        return {"confirmed": report.confirmed, "datasets": [item.to_json() for item in report.datasets]}

    def optimize(
        self,
        *,
        branch: str = "main",
        engine: Engine = "auto",
        message: str | None = None,
        actor: str | None = None,
        progress: Callable[[str, int], None] | None = None,
        spark: Any = None,
    ) -> Optimized:
        """Make a branch's types quick to read again, as one commit, or none when there is nothing to do.

        Many small pieces of storage become few large ones, space of deleted rows is left out, and the indexes of
        ids, ends and declared properties cover every row again. What queries find never changes; others may read
        and write meanwhile. `engine` and `spark` are those of `load`; ``auto`` takes Spark for gigabytes.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-optimize", schema="node City { name: String @key }")
        >>> for name in ("Bern", "Rome"):
        ...     _ = g.load({"City": [{"name": name}]})
        >>> [(item.type_key, item.fragments_removed, item.indexes) for item in g.optimize().datasets]
        [('node:City', 2, ('id', 'name'))]
        >>> g.optimize().commit is None
        True
        """
        from omnigraph.maintain.optimize import optimize
        from omnigraph.spark.engine.tasks import spark_tasks

        actor = self._guard.admit("change", branch, actor=actor)
        done = optimize(
            self._repository,
            branch=branch,
            engine=engine,
            run_on_spark=spark_tasks(spark),
            progress=progress,
            actor=actor,
            message=message,
        )
        return Optimized(None if done.commit is None else Commit.of(done.commit), branch, done.datasets)

    def repair(self, confirm: bool = False) -> Repair:
        """Settle what interrupted bulk writes left behind; without `confirm` only tell how many there are.

        Opening for writing and every write do the same, so there is nearly always nothing to do. Complete work
        is published, the rest discarded, and work of a writer that is alive is left to it.

        >>> import omnigraph as og
        >>> og.init("memory://docs-repair", schema="node City { name: String @key }").repair(confirm=True)
        Repair(confirmed=True, pending=0, settled=())
        """
        self._guard.admit("change", "main")
        pending = len(self._repository.intents.pending().ids)
        settled = self._repository.heal() if confirm else []
        return Repair(confirm, pending, tuple(item.to_body() for item in settled))

    def indexes(self, *, branch: str = "main", at: At = None) -> list[Index]:
        """The indexes that reads and writes are helped by, and how many rows each covers.

        >>> import omnigraph as og
        >>> og.init("memory://docs-indexes", schema="node City { name: String @key }").indexes()
        []
        """
        from omnigraph.store.tables.table_indexes import list_indexes

        snapshot = self._snapshot(branch, at)
        found = []
        for key, table in snapshot.catalog.tables.items():
            pin = snapshot.pin(key)
            names = {column.physical: column.name for column in table.columns}
            for item in list_indexes(snapshot.tables, pin):
                shown = ", ".join(names.get(name, name) for name in item.columns)
                found.append(Index(table.name, shown, item.kind, pin.rows, item.rows))
        return found


def check_retention(keep: int | None, older_than: str | timedelta | None) -> None:
    """`InvalidInput` when nothing is said about what cleanup shall keep."""
    if keep is None and older_than is None:
        raise InvalidInput(
            "cleanup needs `keep`, `older_than` or both", hint="such as keep=10, older_than='7d'"
        )
