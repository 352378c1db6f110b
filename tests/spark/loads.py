"""Loads done two ways, at once in one process and split by split, and what each said and left."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from omnigraph.catalog.table_lookup import find_table
from omnigraph.engine.engine_choice import RunTasks
from omnigraph.errors import OmnigraphError
from omnigraph.graph.recovery.scratch_files import ScratchFolder
from omnigraph.graph.repository import Repository
from omnigraph.graph.write_request import WriteRequest
from omnigraph.load.distributed import DistributedLoad, DistributedLoadOptions, LoadTasks, staged_splits
from omnigraph.load.load import LoadResult, prepare_load
from omnigraph.load.quarantine import Quarantine
from omnigraph.load.reject_log import RejectLog
from omnigraph.load.spool import Spool
from omnigraph.rules.load_mode import WriteMode
from omnigraph.sources.invalid_records import InvalidRecordCollector
from omnigraph.sources.mapping.type_mapping import LoadMapping, effective_source
from omnigraph.sources.readers import open_source
from omnigraph.sources.splits import plan_splits
from tests.catalog.test_identity import catalog_of
from tests.load.loads import image

SCHEMA = """
node Person { name: String @key  age: I32?  mail: String? @unique  @range(age, 0..150) }
node Firm { name: String @key }
node Note { text: String  day: Date?  vec: Vector(2)? }
edge Knows: Person -> Person { since: Date? }
edge Leads: Person -> Firm @card(1..2)
"""
CATALOG = catalog_of(SCHEMA)
MODES: list[WriteMode] = ["append", "merge", "overwrite"]
Record = dict[str, Any]


def person(name: str, **data: Any) -> Record:
    return {"type": "Person", "data": {"name": name, **data}}


def note(id_: str, text: str) -> Record:
    return {"type": "Note", "data": {"id": id_, "text": text}}


def firm(name: str) -> Record:
    return {"type": "Firm", "data": {"name": name}}


def knows(id_: str, src: str, dst: str) -> Record:
    return {"edge": "Knows", "from": src, "to": dst, "data": {"id": id_}}


def leads(id_: str, src: str, dst: str) -> Record:
    return {"edge": "Leads", "from": src, "to": dst, "data": {"id": id_}}


def text_of(records: Iterable[Record | str]) -> str:
    return "".join(f"{item if isinstance(item, str) else json.dumps(item)}\n" for item in records)


# --- the two ways -------------------------------------------------------------------------------------------


def one_by_one(items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
    """Each item once, its result as it arrives from another process."""
    return [pickle.loads(pickle.dumps(work(item))) for item in items]


def backwards_and_twice(items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
    """Each item twice, the last one first; now the one attempt is reported, now the other."""
    attempts = list(reversed([(work(item), work(item)) for item in reversed(items)]))
    return [pickle.loads(pickle.dumps(pair[number % 2])) for number, pair in enumerate(attempts)]


@dataclass
class Attempt:
    """What a load said: what it did or why it was refused, and the records that it left out, by place."""

    outcome: LoadResult | None = None
    error: tuple[Any, ...] | None = None
    rejects: list[Any] = field(default_factory=list)


def attempted(work: Callable[[Quarantine | None], LoadResult | None], rejecting: bool) -> Attempt:
    with RejectLog() as log:
        try:
            result = work(Quarantine(log) if rejecting else None)
        except OmnigraphError as error:
            violations = getattr(error, "violations", ())
            told = (type(error), error.message, error.args, error.hint, error.details, violations)
            return Attempt(error=told, rejects=_ordered(log))
        assert result is not None
        return Attempt(replace(result, seconds={}), rejects=_ordered(log))


def _ordered(rejects: RejectLog) -> list[Any]:
    return sorted(rejects.lines(), key=lambda item: (str(item["source"]), item["line"]))


def at_once(
    graph: Repository,
    source: Any,
    mode: WriteMode,
    branch: str,
    rejecting: bool = False,
    mapping: LoadMapping | None = None,
) -> Attempt:
    """Load the way that one process does."""

    def work(take: Any) -> LoadResult | None:
        catalog = graph.snapshot(branch).catalog
        invalid = InvalidRecordCollector()
        reject = None if take is None else take.log.add
        batches = open_source(source, catalog, on_reject=reject or invalid.add, mapping=mapping)
        with Spool.from_batches(invalid.checked(batches), catalog, on_reject=reject) as spool:
            prepare = partial(prepare_load, spool=spool, mode=mode, quarantine=take)
            return graph.write(branch, WriteRequest("load"), prepare).result

    return attempted(work, rejecting)


def opened(
    graph: Repository,
    source: Any,
    mode: WriteMode,
    *,
    split_bytes: int = 40,
    run: RunTasks = one_by_one,
    branch: str = "main",
    take: Any = None,
    mapping: LoadMapping | None = None,
) -> DistributedLoad:
    catalog = graph.snapshot(branch).catalog
    source = effective_source(source, mapping)
    tasks = LoadTasks(staged_splits(run, plan_splits(source, catalog, {}, split_bytes, mapping)), run)
    options = DistributedLoadOptions(
        mode,
        graph.durability,
        named=[find_table(catalog, str(name)).key for name in source] if isinstance(source, dict) else [],
        quarantine=take,
    )
    return DistributedLoad(tasks, ScratchFolder(graph.location.uri), catalog, options)


def apart(
    graph: Repository,
    source: Any,
    mode: WriteMode,
    branch: str = "main",
    rejecting: bool = False,
    *,
    split_bytes: int = 40,
    run: RunTasks = one_by_one,
    mapping: LoadMapping | None = None,
) -> Attempt:
    """Load split by split."""

    def work(take: Any) -> LoadResult | None:
        how: dict[str, Any] = {"split_bytes": split_bytes, "run": run, "mapping": mapping}
        with opened(graph, source, mode, branch=branch, take=take, **how) as found:
            return graph.write(branch, WriteRequest("load", bulk=True), found.prepare).result

    return attempted(work, rejecting)


def told(graph: Repository, branch: str = "main") -> dict[str, list[Any]]:
    """Every row; what was given no id has a fresh one, which is nobody's to compare."""
    found = image(graph, branch)
    for row in found["node:Note"]:
        del row["id"]
    found["node:Note"].sort(key=str)
    return found


BEFORE = [
    *(person(f"p{number}", age=number, mail=f"m{number}") for number in range(3)),
    *(firm(f"f{number}") for number in range(2)),
    knows("k0", "p0", "p1"),
    knows("k1", "p1", "p2"),
    leads("l0", "p0", "f0"),
    leads("l1", "p0", "f1"),
    leads("l2", "p1", "f1"),
]


def begun(folder: Path) -> Repository:
    graph = Repository.init(str(folder / "graph"), CATALOG, durability="os")
    path = folder / "before.jsonl"
    path.write_text(text_of(BEFORE), encoding="utf-8")
    assert at_once(graph, path, "append", "main").error is None
    return graph


_numbers = count()


def forked(graph: Repository) -> tuple[str, str]:
    number = next(_numbers)
    pair = (f"once-{number}", f"apart-{number}")
    for name in pair:
        graph.create_branch(name)
    return pair


def compared(
    graph: Repository, source: Any, mode: WriteMode, *, rejecting: bool = False, **how: Any
) -> Attempt:
    """Load on two branches, at once and split by split; what both said, having left the same rows."""
    once, parts = forked(graph)
    wanted = at_once(graph, source, mode, once, rejecting, how.get("mapping"))
    found = apart(graph, source, mode, parts, rejecting, **how)
    assert found == wanted, f"{found}\nis not\n{wanted}"
    assert told(graph, parts) == told(graph, once)
    if wanted.error is None:
        assert all(
            graph.snapshot(parts).pin(key).rows == len(rows) for key, rows in image(graph, parts).items()
        )
    else:
        assert told(graph, parts) == told(graph)
    return found
