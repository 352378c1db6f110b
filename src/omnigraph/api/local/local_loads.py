"""Load into a local graph, in this process or on Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from omnigraph.api.local.index_labels import name_index_labels
from omnigraph.api.results.commits import Commit
from omnigraph.api.results.loads import LoadReceipt
from omnigraph.api.results.receipts import by_type_name
from omnigraph.engine.engine_choice import wants_spark
from omnigraph.errors import ConstraintViolation, InvalidInput, NotFound, OmnigraphError
from omnigraph.load.load_request import LoadPart, LoadRequest
from omnigraph.load.reject_limit import RejectLimit
from omnigraph.load.reject_log import RejectLog
from omnigraph.load.reject_target import RejectTarget
from omnigraph.sources.input_warnings import WarningCollector
from omnigraph.spark.engine.reject_table import append_to_table

if TYPE_CHECKING:
    from omnigraph.api.local.authorizer import Authorizer
    from omnigraph.engine.committed_rows import RowAddressCache
    from omnigraph.graph.publish import PublishReceipt
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.write_request import WriteRequest, WriteResult
    from omnigraph.load.load import LoadResult
    from omnigraph.load.quarantine import Quarantine

# Spark takes about ten seconds to start, which is less than the time it saves from this input size on.
SPARK_BYTES = 256 << 20


def run_load(
    repository: Repository, request: LoadRequest, authorizer: Authorizer, cache: RowAddressCache
) -> LoadReceipt:
    """Read and validate the whole input, then commit once. If anything fails, nothing is committed.

    A branch that was created for the load remains if the load fails. `cache` finds committed rows of small loads.
    """
    from omnigraph.graph.branch_lookup import has_branch
    from omnigraph.load.load import LoadResult

    missing = not has_branch(repository.manifest, request.branch.strip())
    if missing:
        _create_branch(repository, request, authorizer)
    elif request.create_from is not None:
        request = replace(request, create_from=None)
    request = _resolve_mapping(repository, request)
    size = _input_bytes(repository, request)
    on_spark = _chooses_spark(repository, request, size)
    warnings = WarningCollector()
    with RejectLog() as log:
        target = None
        if request.rejects is not None:
            target = RejectTarget(
                request.rejects, log, repository.objects.options, append_to_table(request.spark)
            )
        try:
            if on_spark:
                receipt, prepared = _load_on_spark(repository, request, target)
            else:
                receipt, prepared = _load_locally(repository, request, target, warnings, cache)
        except OmnigraphError as error:
            if isinstance(error, InvalidInput | ConstraintViolation):
                name_index_labels(error, request.source)
            if target is not None:
                target.write_refused(error)
                target.deliver()
            raise
        result = LoadResult() if prepared is None else prepared
        rejected_by_rule = {} if target is None or prepared is None else log.counts
        rejected = 0 if target is None or prepared is None else log.count
        if target is not None and prepared is not None:
            _deliver(target, receipt)
    seconds = dict(result.seconds)
    if result.prepared_at is not None and receipt is not None:
        seconds["publish"] = time.monotonic() - result.prepared_at
    return LoadReceipt(
        None if receipt is None else Commit.of(receipt.commit),
        request.mode,
        request.branch.strip() if receipt is None else receipt.commit.branch,
        missing and not request.dry_run,
        nodes=dict(sorted(result.nodes.items())),
        edges=dict(sorted(result.edges.items())),
        affected=by_type_name(result.affected),
        rejected=rejected,
        superseded=result.superseded,
        seconds=seconds,
        replayed=receipt is not None and receipt.replayed,
        bytes=size,
        engine="spark" if on_spark else "local",
        dry_run=request.dry_run,
        warnings=warnings.collected(),
        skipped=by_type_name(result.skipped),
        rejected_by_rule=rejected_by_rule,
        rejects=None if target is None else target.location,
        unindexed=_unindexed(request, result) if receipt is not None else {},
    )


def _unindexed(request: LoadRequest, result: LoadResult) -> dict[str, int]:
    """Return the rows per type that no index covers, for a load that leaves indexes to the next optimize."""
    if not request.index_later:
        return {}
    affected = by_type_name(result.affected)
    rows = {name: counts["inserted"] + counts["updated"] for name, counts in affected.items()}
    return {name: count for name, count in rows.items() if count}


def _deliver(target: RejectTarget, receipt: PublishReceipt | None) -> None:
    try:
        target.deliver()
    except Exception as error:
        outcome = "nothing is committed" if receipt is None else f"the load is commit {receipt.commit.id}"
        error.add_note(outcome)
        raise


def _quarantine(request: LoadRequest, target: RejectTarget | None) -> Quarantine | None:
    from omnigraph.load.quarantine import Quarantine

    if target is None:
        return None
    limit = None if request.max_rejects is None else RejectLimit.parse(request.max_rejects)
    return Quarantine(target.log, limit)


def _load_locally(
    repository: Repository,
    request: LoadRequest,
    target: RejectTarget | None,
    warnings: WarningCollector,
    cache: RowAddressCache,
) -> WriteResult[LoadResult]:
    from omnigraph.load.load import prepare_load
    from omnigraph.load.spool import Spool
    from omnigraph.rules.blob_ingress import BlobIngress
    from omnigraph.sources.invalid_records import InvalidRecordCollector
    from omnigraph.sources.readers import open_source

    catalog = repository.snapshot(request.base).catalog
    quarantine = _quarantine(request, target)
    reject = None if quarantine is None else quarantine.log.add
    invalid = InvalidRecordCollector()
    opened = [
        open_source(
            part.source,
            catalog,
            permissive=request.permissive,
            on_reject=invalid.add if reject is None else reject,
            options=repository.objects.options,
            mapping=part.mapping,
            warnings=warnings,
            csv_null=part.csv_null,
            operations=part.operations,
        )
        for part in request.all_parts
    ]
    ingress = BlobIngress(request.external_blobs, repository.objects.options)
    with Spool.from_batches(
        invalid.checked(chain.from_iterable(opened)),
        catalog,
        on_reject=reject,
        progress=request.progress,
        ingress=ingress,
        rules=request.rules,
        vectors=request.vectors,
    ) as spool:
        content = "" if request.idempotency_key is None else _batch_text(request) or spool.digest()
        write = _write_request(request, content, bulk=spool.is_bulk and not request.dry_run)
        prepare = partial(
            prepare_load,
            spool=spool,
            mode=request.write_mode,
            rules=request.rules,
            progress=request.progress,
            dry_run=request.dry_run,
            quarantine=quarantine,
            index_later=request.index_later,
            cache=cache,
        )
        return repository.write(request.base, write, prepare if target is None else target.writing(prepare))


def _load_on_spark(
    repository: Repository, request: LoadRequest, target: RejectTarget | None
) -> WriteResult[LoadResult]:
    from omnigraph.graph.idempotency import canonical_text
    from omnigraph.spark.engine.spark_load import load_on_spark

    # A dry run has an intent too: it protects the key files that the tasks write from garbage collection.
    content = (
        ""
        if request.idempotency_key is None
        else _batch_text(request) or canonical_text([request.source, request.mapping, request.csv_null])
    )
    write = _write_request(request, content, bulk=True)
    quarantine = _quarantine(request, target)
    return load_on_spark(repository, request, write, quarantine, None if target is None else target.writing)


def _chooses_spark(repository: Repository, request: LoadRequest, size: int | None) -> bool:
    """Return whether Spark runs the load: on request, for a source that only Spark reads, or for large files."""
    from omnigraph.sources.splits import can_split
    from omnigraph.spark.engine.spark_load import is_spark_source

    if request.parts:
        # The driver stages the parts that are in memory.
        files = True
        spark_only = any(is_spark_source(part.source) for part in request.parts)
    else:
        files, spark_only = can_split(request.source), is_spark_source(request.source)
    if spark_only and request.engine == "local":
        raise InvalidInput("only Spark loads Spark DataFrames and tables", hint="use engine='spark'")
    large = files and not request.permissive and (size or 0) >= SPARK_BYTES
    on_spark = wants_spark(
        "spark" if spark_only else request.engine,
        in_memory=repository.location.scheme == "memory",
        large=large,
    )
    if on_spark and (request.permissive or not (files or spark_only)):
        raise InvalidInput(
            "Spark loads files of graph records, or files and DataFrames per type",
            hint="use engine='local' for anything else",
        )
    return on_spark


def _resolve_mapping(repository: Repository, request: LoadRequest) -> LoadRequest:
    """Return the request with its mapping parsed and with the source that the mapping names."""
    if all(part.mapping is None for part in request.all_parts):
        return request
    from omnigraph.sources.mapping.mapping_reader import read_mapping

    catalog = repository.snapshot(request.base).catalog

    def resolved(part: LoadPart) -> LoadPart:
        if part.mapping is None:
            return part
        mapping = read_mapping(part.mapping, catalog, repository.objects.options)
        return replace(part, source=mapping.source_of(part.source), mapping=mapping)

    if request.parts:
        return replace(request, parts=tuple(map(resolved, request.parts)))
    part = resolved(request.all_parts[0])
    return replace(request, source=part.source, mapping=part.mapping)


def _input_bytes(repository: Repository, request: LoadRequest) -> int | None:
    """Return the size of the input files, or None if the input is something else.

    A size on object storage costs a request. It is requested only if the engine depends on it.
    """
    from omnigraph.sources.splits import can_split, input_bytes

    if request.parts or not can_split(request.source):
        return None
    engine_known = request.engine == "local" or repository.location.scheme == "memory"
    parts = request.source.values() if isinstance(request.source, Mapping) else [request.source]
    if engine_known and any("://" in str(part) for part in parts):
        return None
    catalog = repository.snapshot(request.base).catalog
    return input_bytes(request.source, catalog, repository.objects.options, request.mapping)


def _write_request(request: LoadRequest, content: str, *, bulk: bool) -> WriteRequest:
    from omnigraph.graph.write_request import WriteRequest

    return WriteRequest(
        "load",
        actor=request.actor,
        message=request.message,
        expected_head=request.if_commit,
        # A dry run must not use the key up.
        idempotency_key=None if request.dry_run else request.idempotency_key,
        request=_request_text(request, content),
        bulk=bulk,
        alone=request.run is not None,
        run=None if request.dry_run else request.run,
    )


def _request_text(request: LoadRequest, content: str) -> str:
    """Return what a repeated call with the same idempotency key must have in common with the first."""
    text = f"load\0{request.mode}\0{content}"
    extra = [request.op_column, request.order_by, request.require_existing]
    return f"{text}\0{json.dumps(extra)}" if any(extra) else text


def _batch_text(request: LoadRequest) -> str:
    """Return the types and operations of a batch; empty for another load.

    The idempotency key of a batch stands for its rows, because a micro-batch that is repeated may have them in
    another order.
    """
    if not request.parts:
        return ""
    parts = [
        [sorted(map(str, part.source)) if isinstance(part.source, Mapping) else None, str(part.operations)]
        for part in request.parts
    ]
    return f"batch\0{json.dumps(parts)}"


def _create_branch(repository: Repository, request: LoadRequest, authorizer: Authorizer) -> None:
    if request.create_from is None:
        raise NotFound(
            f"branch '{request.branch}' not found; pass `from` to create it",
            details={"branch": request.branch},
            hint="in Python the argument is `create_from`",
        )
    authorizer.authorize("branch_create", request.create_from, request.branch, actor=request.actor)
    authorizer.authorize("read", request.create_from, actor=request.actor)
    if not request.dry_run:
        repository.create_branch(request.branch, request.create_from, actor=request.actor)
