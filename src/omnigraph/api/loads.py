"""Loads as the API offers them: from a source of any form to one commit and its receipt."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from omnigraph.api.commits import Commit, by_type_name
from omnigraph.engine.engine_choice import check_engine, wants_spark
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.load.load_request import LoadRequest, Rejects
from omnigraph.rules.load_mode import LOAD_MODES, LoadMode

if TYPE_CHECKING:
    from omnigraph.api.access import Guard
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.write_request import WriteRequest, WriteResult
    from omnigraph.load.load import LoadResult
    from omnigraph.sources.row_batch import Reject, Rejecting


REJECTS = "rejects.ndjson"
# From here on the ten seconds that Spark takes to start are worth it.
SPARK_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class LoadReceipt:
    """What a load did. `nodes` and `edges` count records per type, `affected` rows per type.

    `superseded` are records of a merge that a later one of the same id replaced, `rejected` those that were left
    out. `bytes` are those of the files that were read, where there were files, and `seconds` what each stage took.
    `replayed` says that an earlier call with the same idempotency key had done the work already. Of a dry run the
    counts are what would have been done, and there is no commit.
    """

    commit: Commit | None
    mode: LoadMode
    branch: str
    branch_created: bool = False
    nodes: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, int] = field(default_factory=dict)
    affected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rejected: int = 0
    superseded: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    replayed: bool = False
    bytes: int | None = None
    engine: Literal["local", "spark"] = "local"
    dry_run: bool = False

    @property
    def total(self) -> int:
        """All records that became rows."""
        return sum(self.nodes.values()) + sum(self.edges.values())

    def report(self) -> dict[str, Any]:
        """The load in figures: rows, rejects, bytes, and the seconds of each stage.

        >>> LoadReceipt(None, "append", "main", nodes={"City": 2}, seconds={"read": 0.25}).report()["rows"]
        {'nodes': {'City': 2}, 'edges': {}, 'total': 2}
        """
        seconds = {stage: round(value, 3) for stage, value in self.seconds.items()}
        return {
            "engine": self.engine,
            "mode": self.mode,
            "branch": self.branch,
            "dry_run": self.dry_run,
            "rows": {"nodes": dict(self.nodes), "edges": dict(self.edges), "total": self.total},
            "affected": {name: dict(counts) for name, counts in self.affected.items()},
            "rejected": self.rejected,
            "superseded": self.superseded,
            "bytes": self.bytes,
            "seconds": {**seconds, "total": round(sum(self.seconds.values()), 3)},
        }


def run_load(repository: Repository, request: LoadRequest, guard: Guard) -> LoadReceipt:
    """Read the whole input, check everything, commit once; when anything fails nothing is visible.

    A branch that was made for the load stays also when the load then fails.
    """
    from omnigraph.load.load import LoadResult

    check_load(request)
    missing = request.branch.strip() not in repository.branches()
    if missing:
        _make_branch(repository, request, guard)
    elif request.create_from is not None:
        request = replace(request, create_from=None)
    request = _mapped(repository, request)
    size = _input_bytes(repository, request)
    on_spark = _wants_spark(repository, request, size)
    with ExitStack() as opened:
        rejected = None if request.rejects is None else RejectedRecords(request.rejects, opened)
        take = None if rejected is None else rejected.take
        load = _load_on_spark if on_spark else _load_here
        done, prepared = load(repository, request, take)
    result = LoadResult() if prepared is None else prepared
    seconds = dict(result.seconds)
    if result.prepared_at is not None and done is not None:
        seconds["publish"] = time.monotonic() - result.prepared_at
    return LoadReceipt(
        None if done is None else Commit.of(done.commit),
        request.mode,
        request.branch.strip() if done is None else done.commit.branch,
        missing and not request.dry_run,
        nodes=dict(sorted(result.nodes.items())),
        edges=dict(sorted(result.edges.items())),
        affected=by_type_name(result.affected),
        rejected=0 if rejected is None else rejected.count,
        superseded=result.superseded,
        seconds=seconds,
        replayed=done is not None and done.replayed,
        bytes=size,
        engine="spark" if on_spark else "local",
        dry_run=request.dry_run,
    )


def _load_here(
    repository: Repository, request: LoadRequest, take: Rejecting | None
) -> WriteResult[LoadResult]:
    from omnigraph.load.load import prepare_load
    from omnigraph.load.spool import Spool
    from omnigraph.sources.readers import open_source

    catalog = repository.snapshot(request.base).catalog
    batches = open_source(
        request.source,
        catalog,
        permissive=request.permissive,
        rejecting=take,
        options=repository.objects.options,
        mapping=request.mapping,
    )
    with Spool.of(batches, catalog, rejecting=take, progress=request.progress) as spool:
        content = "" if request.idempotency_key is None else spool.digest()
        write = _write_request(request, content, bulk=spool.is_bulk and not request.dry_run)
        return repository.write(
            request.base,
            write,
            lambda transaction: prepare_load(
                transaction, spool, request.mode, progress=request.progress, dry=request.dry_run
            ),
        )


def _load_on_spark(
    repository: Repository, request: LoadRequest, take: Rejecting | None
) -> WriteResult[LoadResult]:
    from omnigraph.spark.engine.spark_load import load_on_spark

    # Also a dry run has an intent, which keeps cleanup away from the keys that it sets down.
    write = _write_request(request, f"{request.source}\0{request.mapping}", bulk=True)
    return load_on_spark(repository, request, write, take)


def _wants_spark(repository: Repository, request: LoadRequest, size: int | None) -> bool:
    """Whether the load is one for Spark: asked for, of what Spark alone can read, or of many bytes in files."""
    from omnigraph.sources.splits import can_split
    from omnigraph.spark.engine.spark_load import is_spark_source

    files = can_split(request.source)
    spark_alone = is_spark_source(request.source)
    if spark_alone and request.engine == "local":
        raise InvalidInput("DataFrames and tables of Spark are loaded by Spark", hint="use engine='spark'")
    large = files and not request.permissive and (size or 0) >= SPARK_BYTES
    on_spark = wants_spark(
        "spark" if spark_alone else request.engine,
        in_memory=repository.location.scheme == "memory",
        large=large,
    )
    if on_spark and (request.permissive or not (files or spark_alone)):
        raise InvalidInput(
            "Spark loads files of graph records, or files and DataFrames per type",
            hint="use engine='local' for anything else",
        )
    return on_spark


def _mapped(repository: Repository, request: LoadRequest) -> LoadRequest:
    """The request with its mapping read, and with the source that it leads to."""
    if request.mapping is None:
        return request
    from omnigraph.sources.mapping.mapping import read_mapping

    catalog = repository.snapshot(request.base).catalog
    mapping = read_mapping(request.mapping, catalog, repository.objects.options)
    return replace(request, source=mapping.source_of(request.source), mapping=mapping)


def _input_bytes(repository: Repository, request: LoadRequest) -> int | None:
    """How many bytes the files have that a load is given; None when it is given something else.

    Asking a store costs a request, which is not worth it where nothing depends on the answer.
    """
    from omnigraph.sources.splits import can_split, input_bytes

    if not can_split(request.source):
        return None
    settled = request.engine == "local" or repository.location.scheme == "memory"
    parts = request.source.values() if isinstance(request.source, Mapping) else [request.source]
    if settled and any("://" in str(part) for part in parts):
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
        # What is only tried must not use up the key.
        idempotency_key=None if request.dry_run else request.idempotency_key,
        request=f"load\0{request.mode}\0{content}",
        bulk=bulk,
    )


def check_load(request: LoadRequest) -> None:
    """Refuse an engine and a mode that do not exist, and rejects that could not be written."""
    check_engine(request.engine)
    if request.mode not in LOAD_MODES:
        raise InvalidInput(f"unknown load mode '{request.mode}'", hint=f"one of {', '.join(LOAD_MODES)}")
    _check_rejects(request.rejects)


def _check_rejects(target: Any) -> None:
    if target is None or callable(target):
        return
    if not isinstance(target, str | Path):
        raise InvalidInput(
            f"rejected records cannot go to {type(target).__name__}",
            hint="give the path of a file or a folder, or a function such as the `append` of a list",
        )
    folder = Path(target).parent
    if not folder.is_dir():
        raise NotFound(f"no such folder: {folder}", details={"path": str(target)})


def _make_branch(repository: Repository, request: LoadRequest, guard: Guard) -> None:
    if request.create_from is None:
        raise NotFound(
            f"branch '{request.branch}' not found; pass `from` to create it",
            details={"branch": request.branch},
            hint="in Python the argument is `create_from`",
        )
    guard.admit("branch_create", request.create_from, request.branch, actor=request.actor)
    if not request.dry_run:
        repository.create_branch(request.branch, request.create_from, actor=request.actor)


class RejectedRecords:
    """Counts rejected records and passes them on; a file is made for the first one."""

    def __init__(self, target: Rejects, opened: ExitStack) -> None:
        self.count = 0
        self._target = target
        self._opened = opened
        self._file: IO[str] | None = None

    def take(self, reject: Reject) -> None:
        """Pass on what a reader left out."""
        self.tell(reject.to_json())

    def tell(self, reject: Mapping[str, Any]) -> None:
        """Pass on what the line of a file of rejects says."""
        self.count += 1
        if not isinstance(self._target, str | Path):
            self._target(reject)
            return
        if self._file is None:
            path = Path(self._target)
            path = path / REJECTS if path.is_dir() else path
            # What is no Unicode becomes the escape that JSON has for it.
            file = path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n")
            self._file = self._opened.enter_context(file)
        self._file.write(json.dumps(reject, ensure_ascii=False, default=str) + "\n")
