"""Loads: the records of an input are checked as a whole and staged as one commit.

A load that fits in memory looks up rows in the committed tables. A larger one runs the same rules as queries over
keys on disk. Both store the same rows and report the same violations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.committed_rows import RowAddressCache
from omnigraph.errors import Conflict
from omnigraph.graph.progress import Progress
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import OperationClass, Prepared
from omnigraph.load.fold import FoldCounts
from omnigraph.load.load_strategy import LoadStrategy
from omnigraph.load.memory_load import MemoryLoad
from omnigraph.load.operation_quarantine import RejectedIds, Resolution
from omnigraph.load.operation_rules import OperationRules
from omnigraph.load.quarantine import LeftOut, Quarantine
from omnigraph.load.resolve import resolve_operations
from omnigraph.load.spool import Spool
from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.set_rules import edge_key_hint
from omnigraph.rules.violations import Violation, Violations, raise_violations

# A violation of one of these rules has the id of the record that breaks the rule.
_RECORD_RULES = ("unique", "key", "endpoint")
NO_CHANGES: Mapping[str, int] = {"inserted": 0, "updated": 0, "deleted": 0}


@dataclass(frozen=True)
class LoadResult:
    """The effect of a load: records per type, rows per table, records left out, and the seconds of each stage.

    `nodes` and `edges` count the records that became rows. `superseded` counts the records of a merge that a later
    record with the same id replaced, `rejected` the records that broke a rule and were left out. `unchanged` is
    set if all rows of a merge were stored already with the same values. `skipped` counts the input rows without an
    effect by table, for a load with operations. `prepared_at` is the monotonic time at which staging ended.
    """

    nodes: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, int] = field(default_factory=dict)
    affected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rejected: int = 0
    superseded: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    unchanged: bool = False
    skipped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    prepared_at: float | None = field(default=None, compare=False)


@dataclass(frozen=True)
class LoadInput:
    """The counts of an input that has been read: records per table, rejected records, and the seconds it took.

    `generated_ids` are the tables whose ids were all generated.
    """

    records: Mapping[str, int]
    rejected: int
    seconds: float
    generated_ids: frozenset[str] = frozenset()


def prepare_load(
    transaction: Transaction,
    spool: Spool,
    mode: WriteMode,
    *,
    rules: OperationRules | None = None,
    progress: Progress | None = None,
    dry_run: bool = False,
    quarantine: Quarantine | None = None,
    index_later: bool = False,
    cache: RowAddressCache | None = None,
) -> Prepared[LoadResult]:
    """Check the rows of a spool against a branch and stage them.

    Append inserts, merge replaces rows by id, overwrite replaces all rows of the types that the input names. The
    rows of a spool with operations do what each of them says, by the `rules`. A load without rows makes a commit
    too. A load that leaves all rows as they are stored makes none. A dry run checks and counts, and stages nothing.
    A constraint that fails raises before anything is staged. With `quarantine` the records that break it are left
    out instead. With `index_later` a large load is not indexed. `cache` finds committed rows without reading
    storage. The caller closes the spool after the write.
    """
    if transaction.base.catalog.fingerprint != spool.catalog.fingerprint:
        raise schema_changed(transaction)
    read = LoadInput(spool.counts, spool.rejected, spool.seconds, spool.generated_ids)
    if spool.has_operations:
        return _prepare_operations(
            transaction,
            spool,
            read,
            rules or OperationRules(),
            progress,
            cache,
            dry_run=dry_run,
            quarantine=quarantine,
            index_later=index_later,
        )
    result = check_and_stage(
        _open(transaction, spool, mode, cache=cache, index_later=index_later),
        read,
        transaction.base.catalog,
        progress,
        partial(edge_key_hint, spool.catalog, mode),
        dry_run=dry_run,
        quarantine=quarantine,
    )
    assert result is not None, "offenders are left out"
    return Prepared(None if result.unchanged else load_class(mode, dry_run=dry_run), result)


def _prepare_operations(
    transaction: Transaction,
    spool: Spool,
    read: LoadInput,
    rules: OperationRules,
    progress: Progress | None,
    cache: RowAddressCache | None,
    *,
    dry_run: bool,
    quarantine: Quarantine | None,
    index_later: bool,
) -> Prepared[LoadResult]:
    began = time.monotonic()
    rejected = None if quarantine is None else RejectedIds(spool.catalog, quarantine)
    while True:
        arrays = None if rejected is None else rejected.arrays
        with resolve_operations(transaction, spool, rules, arrays, cache) as resolved:
            if rejected is not None and rejected.add(resolved.offenses):
                continue
            read = replace(
                read,
                records={key: resolved.spool.counts[key] for key in read.records},
                seconds=read.seconds + time.monotonic() - began,
            )
            is_unchanged = changes_nothing(spool.counts, resolved.spool.counts, resolved.removed)
            attempt = None
            if rejected is not None:
                records, sources = sum(spool.counts.values()), spool.sources.__getitem__
                attempt = Resolution(rejected, resolved.deleted, resolved.left_out, sources, records)
            if is_unchanged and not dry_run:
                result: LoadResult | None = unchanged_result(read, resolved.counts, attempt)
            else:
                opened = _open(
                    transaction, resolved.spool, "merge", resolved.removed, cache, index_later=index_later
                )
                hint = partial(edge_key_hint, spool.catalog, "merge") if attempt is None else attempt.hint
                result = check_and_stage(
                    opened, read, spool.catalog, progress, hint, dry_run=dry_run, attempt=attempt
                )
            if result is None:
                continue
        class_ = None if result.unchanged else load_class("merge", dry_run=dry_run)
        return Prepared(class_, with_fold_counts(result, resolved.counts))


def changes_nothing(records: Mapping[str, int], rows: Mapping[str, int], removed: Mapping[str, Any]) -> bool:
    """Return whether the operations of a load leave every row as it is. A load without records has a commit."""
    return not removed and not any(rows.values()) and any(records.values())


def unchanged_result(
    read: LoadInput, counts: Mapping[str, FoldCounts], attempt: Resolution | None = None
) -> LoadResult:
    """Return the result of a load whose operations change nothing."""
    if attempt is not None:
        attempt.accept()
    result = LoadResult(
        nodes=_of_kind("node:", read.records),
        edges=_of_kind("edge:", read.records),
        affected=dict.fromkeys(read.records, NO_CHANGES),
        rejected=read.rejected if attempt is None else attempt.rejected.quarantine.log.count,
        unchanged=True,
        seconds={"read": read.seconds},
        prepared_at=time.monotonic(),
    )
    return with_fold_counts(result, counts)


def with_fold_counts(result: LoadResult, counts: Mapping[str, FoldCounts]) -> LoadResult:
    """Return a result with the input rows that had no effect."""
    skipped = {key: asdict(item) for key, item in counts.items()}
    return replace(result, superseded=sum(item.superseded for item in counts.values()), skipped=skipped)


def load_class(mode: WriteMode, *, dry_run: bool) -> OperationClass | None:
    """Return the operation class of a load; None for a dry run, which commits nothing."""
    if dry_run:
        return None
    # An overwrite replaces rows that it has read, so a change of those rows is a conflict.
    return "strict" if mode == "overwrite" else "insert"


def schema_changed(transaction: Transaction) -> Conflict:
    """Return the error of a load whose branch changed its schema after the input was read."""
    return Conflict(
        "the schema changed while the load was being read",
        details={"branch": transaction.head.branch},
        hint="load again",
    )


@contextmanager
def _open(
    transaction: Transaction,
    spool: Spool,
    mode: WriteMode,
    removed: Mapping[str, pa.Table] | None = None,
    cache: RowAddressCache | None = None,
    *,
    index_later: bool,
) -> Iterator[LoadStrategy]:
    # An overwrite reads all rows that it replaces.
    replaced = (transaction.pin(key).rows for key in spool.counts) if mode == "overwrite" else ()
    if spool.is_bulk or sum(replaced) > spool.limits.rows:
        # Imported here: the import of DuckDB takes longer than a small load.
        from omnigraph.load.spilling_load import open_spilling_load

        with open_spilling_load(transaction, spool, mode, removed, index_later=index_later) as load:
            yield load
    else:
        yield MemoryLoad(transaction, spool, mode, removed, cache)


def check_and_stage(
    opened: AbstractContextManager[LoadStrategy],
    read: LoadInput,
    catalog: Catalog,
    progress: Progress | None,
    hint: Callable[[Violation], str | None],
    *,
    dry_run: bool = False,
    quarantine: Quarantine | None = None,
    attempt: Resolution | None = None,
) -> LoadResult | None:
    """Check the rules between rows and stage the rows. A broken rule raises `ConstraintViolation` with its hint.

    With `quarantine` the records that break a rule are left out. The error is raised if there are more of them than
    it allows, and for a violation without such a record. `attempt` is the resolution of a load with operations that
    leaves out records; if it finds more of them, nothing is staged and the result is None.
    """
    began = time.monotonic()
    total = sum(read.records.values())
    if progress is not None:
        progress("check", total)
    with opened as load:
        left_out: Mapping[str, int] = {}
        if quarantine is None:
            for violations in load.violations():
                if violations and attempt is not None and attempt.take_offenders(load):
                    return None
                raise_violations(_with_origins(violations, load), hint)
            if attempt is not None:
                attempt.accept()
        else:
            quarantine.log.restart()
            left_out, violations = LeftOut(load, catalog, quarantine.log, read.generated_ids).settle()
            raise_violations(_with_origins(violations, load), hint)
            quarantine.check(total + quarantine.log.read_count)
        checked = time.monotonic()
        if progress is not None:
            progress("stage", total)
        affected = load.stage(dry_run=dry_run)
    if attempt is not None:
        quarantine = attempt.rejected.quarantine
    staging = time.monotonic() - checked - sum(load.seconds.values())
    counts = {key: count - load.superseded[key] - left_out.get(key, 0) for key, count in read.records.items()}
    return LoadResult(
        nodes=_of_kind("node:", counts),
        edges=_of_kind("edge:", counts),
        affected=dict.fromkeys(affected, NO_CHANGES) if load.unchanged else affected,
        rejected=read.rejected if quarantine is None else quarantine.log.count,
        superseded=sum(load.superseded.values()),
        unchanged=load.unchanged,
        seconds={"read": read.seconds, "check": checked - began, "stage": staging, **load.seconds},
        prepared_at=time.monotonic(),
    )


def _of_kind(prefix: str, counts: Mapping[str, int]) -> dict[str, int]:
    return {key.removeprefix(prefix): count for key, count in counts.items() if key.startswith(prefix)}


def _with_origins(violations: Violations, load: LoadStrategy) -> Violations:
    """Return the violations with the origins of the records that they are about."""

    def needs_origin(item: Violation) -> bool:
        return item.rule in _RECORD_RULES and item.id is not None and "line" not in item.details

    ids: dict[str, dict[str, None]] = {}
    for item in filter(needs_origin, violations):
        ids.setdefault(item.table_key, {})[item.id or ""] = None
    origins = {key: load.origins(key, list(of_table)) for key, of_table in ids.items()}

    def with_origin(item: Violation) -> Violation:
        origin = origins[item.table_key].get(item.id or "") if needs_origin(item) else None
        return item if origin is None else item.with_origin(*origin)

    return Violations(tuple(map(with_origin, violations)), violations.total)
