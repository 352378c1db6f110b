"""Loads as the API offers them: from a source of any form to one commit and its receipt."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias

from omnigraph.api.commits import Commit, by_type_name
from omnigraph.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from omnigraph.graph.publish import Receipt as Done
    from omnigraph.graph.repository import Repository, WriteRequest
    from omnigraph.write.input import Reject, Rejecting
    from omnigraph.write.load import LoadOutcome

LoadMode: TypeAlias = Literal["append", "merge", "overwrite"]
LoadEngine: TypeAlias = Literal["auto", "local", "spark"]
# Where rejected records go: a file of JSON lines, or whoever wants to be told.
Rejects: TypeAlias = str | Path | Callable[[Mapping[str, Any]], None]

MODES: tuple[LoadMode, ...] = ("append", "merge", "overwrite")
_ENGINES: tuple[LoadEngine, ...] = ("auto", "local", "spark")
# From here on the ten seconds that Spark takes to start are worth it.
SPARK_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class LoadReceipt:
    """What a load did. `nodes` and `edges` count records per type, `affected` rows per type.

    `superseded` are records of a merge that a later one of the same id replaced, `rejected` those that were left
    out. `replayed` says that an earlier call with the same idempotency key had done the work already.
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

    @property
    def total(self) -> int:
        """All records that became rows."""
        return sum(self.nodes.values()) + sum(self.edges.values())


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A load as it was asked for."""

    source: Any
    mode: LoadMode
    branch: str
    create_from: str | None = None
    engine: LoadEngine = "auto"
    rejects: Rejects | None = None
    permissive: bool = False
    message: str | None = None
    if_commit: str | None = None
    idempotency_key: str | None = None
    actor: str | None = None
    progress: Callable[[str, int], None] | None = None
    spark: Any = None


def run_load(repository: Repository, request: LoadRequest) -> LoadReceipt:
    """Read the whole input, check everything, commit once; when anything fails nothing is visible.

    A branch that was made for the load stays also when the load then fails.
    """
    from omnigraph.write.load import LoadOutcome

    _check(request)
    created = _make_branch(repository, request)
    outcome = LoadOutcome(request.mode)
    with ExitStack() as opened:
        rejected = None if request.rejects is None else _Rejected(request.rejects, opened)
        take = None if rejected is None else rejected.take
        load = _load_on_spark if _wants_spark(repository, request) else _load_here
        done = load(repository, request, outcome, take)
    assert done is not None, "a load commits also when there is nothing in it"
    return LoadReceipt(
        Commit.of(done.commit),
        request.mode,
        done.commit.branch,
        created,
        nodes=dict(sorted(outcome.nodes.items())),
        edges=dict(sorted(outcome.edges.items())),
        affected=by_type_name(outcome.affected),
        rejected=0 if rejected is None else rejected.count,
        superseded=outcome.superseded,
        seconds=outcome.seconds,
        replayed=done.replayed,
    )


def _load_here(
    repository: Repository, request: LoadRequest, outcome: LoadOutcome, take: Rejecting | None
) -> Done | None:
    from omnigraph.write.load import prepare_load
    from omnigraph.write.sources import open_source
    from omnigraph.write.spool import Spool

    catalog = repository.snapshot(request.branch).catalog
    batches = open_source(
        request.source,
        catalog,
        permissive=request.permissive,
        rejecting=take,
        options=repository.objects.options,
    )
    with Spool.of(batches, catalog, rejecting=take, progress=request.progress) as spool:
        content = "" if request.idempotency_key is None else spool.digest()
        write = _write_request(request, content, bulk=spool.is_bulk)
        prepare = prepare_load(spool, request.mode, outcome, progress=request.progress)
        return repository.write(request.branch, write, prepare)


def _load_on_spark(
    repository: Repository, request: LoadRequest, outcome: LoadOutcome, take: Rejecting | None
) -> Done | None:
    from omnigraph.pipeline.session import resolve_session
    from omnigraph.pipeline.tasks import run_tasks
    from omnigraph.write.distributed import DistributedLoad
    from omnigraph.write.sources import named_key
    from omnigraph.write.splits import plan_splits

    catalog = repository.snapshot(request.branch).catalog
    options = repository.objects.options
    splits = plan_splits(request.source, catalog, options)
    named = (
        [named_key(name, catalog) for name in request.source] if isinstance(request.source, Mapping) else []
    )
    master = request.spark if isinstance(request.spark, str) else None
    spark = resolve_session(None if master is not None else request.spark, master)
    with DistributedLoad(
        partial(run_tasks, spark),
        splits,
        catalog,
        request.mode,
        outcome,
        uri=repository.location.uri,
        options=options,
        durability=repository.durability,
        named=named,
        rejecting=take,
        progress=request.progress,
    ) as load:
        write = _write_request(request, f"{request.source}", bulk=True)
        return repository.write(request.branch, write, load.prepare)


def _wants_spark(repository: Repository, request: LoadRequest) -> bool:
    """Whether the load is one for Spark: asked for, or of files that are many bytes together."""
    from omnigraph.write.splits import can_split, input_bytes

    in_memory = repository.location.scheme == "memory"
    possible = can_split(request.source) and not request.permissive and not in_memory
    if request.engine == "spark":
        if in_memory:
            raise InvalidInput(
                "a graph in the memory of this process is out of reach for Spark's tasks",
                hint="use a path or s3://, or engine='local'",
            )
        if not possible:
            raise InvalidInput(
                "Spark loads files of graph records, or CSV and Parquet files per type",
                hint="use engine='local' for anything else",
            )
        return True
    if request.engine == "local" or not possible:
        return False
    catalog = repository.snapshot(request.branch).catalog
    return input_bytes(request.source, catalog, repository.objects.options) >= SPARK_BYTES


def _write_request(request: LoadRequest, content: str, *, bulk: bool) -> WriteRequest:
    from omnigraph.graph.repository import WriteRequest

    return WriteRequest(
        "load",
        actor=request.actor,
        message=request.message,
        expected_head=request.if_commit,
        idempotency_key=request.idempotency_key,
        request=f"load\0{request.mode}\0{content}",
        bulk=bulk,
    )


def _check(request: LoadRequest) -> None:
    if request.mode not in MODES:
        raise InvalidInput(f"unknown load mode '{request.mode}'", hint=f"one of {', '.join(MODES)}")
    if request.engine not in _ENGINES:
        raise InvalidInput(f"unknown engine '{request.engine}'", hint=f"one of {', '.join(_ENGINES)}")


def _make_branch(repository: Repository, request: LoadRequest) -> bool:
    """Whether the load's branch had to be made."""
    if request.branch.strip() in repository.branches():
        return False
    if request.create_from is None:
        raise NotFound(
            f"branch '{request.branch}' not found; pass `from` to create it",
            details={"branch": request.branch},
            hint="in Python the argument is `create_from`",
        )
    repository.create_branch(request.branch, request.create_from, actor=request.actor)
    return True


class _Rejected:
    """Counts rejected records and passes them on; a file is made for the first one."""

    def __init__(self, target: Rejects, opened: ExitStack) -> None:
        self.count = 0
        self._target = target
        self._opened = opened
        self._file: IO[str] | None = None

    def take(self, reject: Reject) -> None:
        self.count += 1
        if not isinstance(self._target, str | Path):
            self._target(reject.to_json())
            return
        if self._file is None:
            path = Path(self._target)
            self._file = self._opened.enter_context(path.open("w", encoding="utf-8", newline="\n"))
        self._file.write(json.dumps(reject.to_json(), ensure_ascii=False, default=str) + "\n")
