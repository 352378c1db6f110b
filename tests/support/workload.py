"""Every kind of write there is, each as a process of its own, and what must hold after any of them was cut off.

    python -m tests.support.workload '{"kind": "append", "uri": "…"}'

prints ``ACK <commit id>`` once the call has returned, or ``REFUSED <code>`` when it raised one of our errors. A
kind works on the graph that its `setting` prepared; what it leaves is the same every time, so that a test can
compare. The graph may be anywhere: `uri` and `options` are passed through.

Rows whose id begins with ``pair`` are always written to both tables, and deleted from both, in one commit.
"""

from __future__ import annotations

import json
import socket
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal, TypeAlias

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, accept
from omnigraph.catalog.columns import arrow_schema
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.tags import create_tag, delete_tag, list_tags
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.store.manifest import manifest
from omnigraph.store.manifest.records import GENESIS_SEQUENCE, CommitRecord, RecoveryRecord, TablePin
from tests.support import merge_writes
from tests.support.api_writes import API_WRITES, SCHEMA_WRITES, make_people
from tests.support.copies import COPIES
from tests.support.groups import GroupWrite, receipts, write_group
from tests.support.merge_writes import MERGE_WRITES, make_branches
from tests.support.rows import compact
from tests.support.upgrades import UPGRADES
from tests.support.upkeep import perform_upkeep

SCHEMA: Final = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person { since: I32? }\n"
PERSON, KNOWS = "node:Person", "edge:Knows"
BOTH: Final = (PERSON, KNOWS)
WRITER: Final = "writer"
SIDE: Final = "side"
TAG: Final = "kept"
PAIR: Final = "pair"
SHALLOW_FOLD: Final = 4
MADE_ID: Final = 26
USUAL: Final = frozenset({"id", "src", "dst", "name", "age", "since"})

Rows: TypeAlias = dict[str, int]
Graph: TypeAlias = Repository
Act: TypeAlias = Callable[[Graph], str]
Setting: TypeAlias = Literal["nothing", "small", "worn", "long", "deep", "people", "branches"]


def catalog(text: str = SCHEMA) -> Catalog:
    """The catalog of a schema, of the one above unless another is given."""
    return accept(load_schema(text), text)


def rows_of(transaction: Transaction, key: str, rows: Rows) -> pa.Table:
    """Rows of a table by id; every other string holds the id, every number the value."""
    return _rows(arrow_schema(transaction.base.table(key), physical=True), rows)


def _rows(schema: pa.Schema, rows: Rows) -> pa.Table:
    columns = [
        pa.array(list(rows) if pa.types.is_string(item.type) else list(rows.values()), item.type)
        for item in schema
    ]
    return pa.table(columns, schema=schema)


def pairs(*numbers: int, value: int = 0) -> Rows:
    """Rows that belong into both tables."""
    return {f"{PAIR}-{number}": value for number in numbers}


# --- kinds of writes --------------------------------------------------------------------------------------


def write(
    graph: Graph,
    prepare: Callable[[Transaction], Prepared[None]],
    *,
    branch: str = "main",
    bulk: bool = False,
    operation: str = "write",
    key: str | None = None,
    actor: str = WRITER,
) -> str:
    """Write through `Graph.write`; return the id of the commit, or an empty string if nothing changed."""
    request = WriteRequest(operation, actor=actor, bulk=bulk, idempotency_key=key)
    receipt, _ = graph.write(branch, request, prepare)
    return "" if receipt is None else receipt.commit.id


def change(
    delete: Iterable[str] = (), insert: Rows | None = None, *, strict: bool = False
) -> Callable[[Transaction], Prepared[None]]:
    """Delete and insert the same ids in both tables."""
    doomed = list(delete)

    def prepare(transaction: Transaction) -> Prepared[None]:
        for key in BOTH:
            new = None if insert is None else rows_of(transaction, key, insert)
            transaction.stage(key, delete_ids=doomed, insert=new)
        return Prepared("strict" if strict else "insert", None)

    return prepare


def _init(uri: str, options: Mapping[str, str]) -> str:
    return Repository.init(uri, catalog(), options=options, actor=WRITER).head().commit.id


def _append(graph: Graph) -> str:
    return write(graph, change(insert=pairs(100)))


def _upsert(graph: Graph) -> str:
    return write(graph, change(pairs(1, 2, 101), pairs(1, 2, 101, value=7)))


def _delete(graph: Graph) -> str:
    return write(graph, change(pairs(0, 1), strict=True))


def _mixed(graph: Graph) -> str:
    return write(graph, change(pairs(0, 3), pairs(102, 103), strict=True))


def _twice(graph: Graph) -> str:
    def prepare(transaction: Transaction) -> Prepared[None]:
        for key in BOTH:
            transaction.stage(key, insert=rows_of(transaction, key, pairs(104)))
            transaction.stage(key, delete_ids=pairs(104, 2), insert=rows_of(transaction, key, pairs(105)))
        return Prepared("strict", None)

    return write(graph, prepare)


def _overwrite(rows: Rows) -> Act:
    def act(graph: Graph) -> str:
        def prepare(transaction: Transaction) -> Prepared[None]:
            for key in BOTH:
                new = rows_of(transaction, key, rows)
                batches = new.to_batches() if rows else []
                staged = transaction.base.tables.stage_overwrite(transaction.pin(key), batches, new.schema)
                transaction.write(key, staged)
            return Prepared("strict", None)

        return write(graph, prepare)

    return act


def _add_column(graph: Graph) -> str:
    def prepare(transaction: Transaction) -> Prepared[None]:
        for key in BOTH:
            tables, pin = transaction.base.tables, transaction.pin(key)
            schema = tables.open(pin.path, pin.version).schema.append(pa.field("extra", pa.string()))
            transaction.write(key, tables.stage_columns(pin, schema))
        return Prepared("strict", None)

    return write(graph, prepare)


def _rewrite(graph: Graph) -> str:
    def prepare(transaction: Transaction) -> Prepared[None]:
        for key in BOTH:
            transaction.write(key, compact(transaction.base.tables, transaction.pin(key)))
        return Prepared("maintenance", None)

    return write(graph, prepare)


def _index(graph: Graph) -> str:
    def prepare(transaction: Transaction) -> Prepared[None]:
        for key in BOTH:
            tables = transaction.base.tables
            transaction.write(key, tables.stage_index(transaction.pin(key), "id", "BTREE"))
        return Prepared("maintenance", None)

    return write(graph, prepare)


def _bulk(graph: Graph) -> str:
    return write(graph, change(pairs(0), pairs(106, 107), strict=True), bulk=True)


def _bulk_on_a_branch(graph: Graph) -> str:
    return write(graph, change(insert=pairs(108)), branch=SIDE, bulk=True)


def _keyed(graph: Graph) -> str:
    return write(graph, change(insert=pairs(109)), key="once")


def _group(graph: Graph) -> str:
    """Three writes with one swap: two inserts, and a change of a row that the first of them inserts."""
    works = [
        change(insert=pairs(111)),
        change(insert=pairs(112)),
        change(pairs(0, 111), pairs(111, value=5), strict=True),
    ]
    request = WriteRequest("write", actor=WRITER)
    done = receipts(write_group(graph, [GroupWrite(work, request) for work in works]))
    return done[-1].commit.id


def _create_branch(graph: Graph) -> str:
    return graph.create_branch("new", actor=WRITER).commit.id


def _delete_branch(graph: Graph) -> str:
    graph.delete_branch(SIDE)
    return ""


def _create_tag(graph: Graph) -> str:
    return create_tag(graph, "made", graph.snapshot(SIDE), message="made", actor=WRITER).commit


def _delete_tag(graph: Graph) -> str:
    return delete_tag(graph, TAG).commit


def _trim_log(graph: Graph) -> str:
    with folding_at(SHALLOW_FOLD):
        return _append(graph)


def _heal(graph: Graph) -> str:
    # Opening the graph has done it, except for owners that still seemed to live then.
    graph.recover()
    return graph.head().commit.id


def _upkeep(graph: Graph) -> str:
    perform_upkeep(graph, keep=2)
    return ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of write: the graph it starts from and what it does there.

    `doomed` is a branch that it deletes in the end, by a step of its own. `touched` are the branches that it reads
    or writes, None for all.
    """

    setting: Setting
    act: Act
    doomed: str | None = None
    touched: tuple[str, ...] | None = None


KINDS: Final[dict[str, Kind]] = {
    "append": Kind("small", _append),
    "upsert": Kind("small", _upsert),
    "delete": Kind("small", _delete),
    "mixed": Kind("small", _mixed),
    "twice": Kind("small", _twice),
    "overwrite": Kind("small", _overwrite(pairs(0, 110))),
    "overwrite-to-empty": Kind("small", _overwrite({})),
    "add-column": Kind("small", _add_column),
    "rewrite": Kind("small", _rewrite),
    "index": Kind("small", _index),
    "bulk": Kind("small", _bulk),
    "bulk-on-a-branch": Kind("small", _bulk_on_a_branch),
    "keyed": Kind("small", _keyed),
    "group": Kind("small", _group),
    "create-branch": Kind("small", _create_branch),
    "delete-branch": Kind("small", _delete_branch),
    "create-tag": Kind("small", _create_tag),
    "delete-tag": Kind("small", _delete_tag),
    "fold-a-table": Kind("worn", _append),
    "fold-the-log": Kind("long", _append),
    "fold-and-trim-the-log": Kind("deep", _trim_log),
    "heal": Kind("small", _heal),
}
API_KINDS: Final[dict[str, Kind]] = {name: Kind("people", item.act) for name, item in API_WRITES.items()}
# Afterwards edges have other ids, so the invariants of writes do not hold.
SCHEMA_KINDS: Final[dict[str, Kind]] = {
    name: Kind("people", item.act) for name, item in SCHEMA_WRITES.items()
}
MERGE_KINDS: Final[dict[str, Kind]] = {
    name: Kind("branches", item.act, item.doomed, tuple(filter(None, (item.branch, item.source))))
    for name, item in MERGE_WRITES.items()
}
# Afterwards old commits cannot be read, so the invariants of writes do not hold.
UPKEEP_KINDS: Final[dict[str, Kind]] = {"upkeep": Kind("worn", _upkeep)}
EVERY_KIND: Final[dict[str, Kind]] = KINDS | API_KINDS | SCHEMA_KINDS | MERGE_KINDS | UPKEEP_KINDS


# --- the graphs they start from ---------------------------------------------------------------------------


def prepare_setting(setting: Setting, uri: str, options: Mapping[str, str] | None = None) -> None:
    """Make the graph that kinds of a setting start from."""
    if setting == "nothing":
        return
    schema = merge_writes.SCHEMA if setting == "branches" else SCHEMA
    graph = Repository.init(uri, catalog(schema), options=options, durability="os", actor="founder")
    if setting == "branches":
        make_branches(graph)
        graph.close()
        return
    write(graph, change(insert=pairs(0, 1, 2, 3)), actor="founder")
    graph.create_branch(SIDE, actor="founder")
    create_tag(graph, TAG, graph.snapshot(), actor="founder")
    write(graph, change(insert=pairs(4)), actor="founder")
    if setting == "worn":
        # A table folds its small fragments when there are as many as this.
        for number in range(32):
            write(graph, change(insert=pairs(10 + number)), actor="founder")
    if setting == "long":
        _fill_log(graph, level=0, files=manifest.LOG_COMPACT_AT - 1)
    if setting == "people":
        make_people(graph)
    if setting == "deep":
        with folding_at(SHALLOW_FOLD):
            _fill_log(graph, level=1, files=SHALLOW_FOLD)
    graph.close()


def _fill_log(graph: Graph, *, level: int, files: int) -> None:
    """Commit until there are so many log files of a level that the next commit has it folded."""
    for _ in range(manifest.LOG_COMPACT_AT**2):
        if sum(item.level == level for item in graph.manifest.view.of_kind("commit")) == files:
            return
        write(graph, change(pairs(4), pairs(4)), actor="founder")
    raise AssertionError(f"level {level} of the log never had {files} files")


@contextmanager
def folding_at(files: int) -> Iterator[None]:
    """Let this process fold logs earlier than it would, which makes deep logs cheap."""
    usual = manifest.LOG_COMPACT_AT
    manifest.LOG_COMPACT_AT = files
    try:
        yield
    finally:
        manifest.LOG_COMPACT_AT = usual


# --- a kind as a process ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker process is asked to do."""

    kind: str
    uri: str
    options: dict[str, str] = field(default_factory=dict)
    durability: Literal["full", "os"] = "full"
    # A name of its own makes the process another machine's, as far as leases can tell.
    machine: str | None = None
    lease_seconds: float | None = None
    module: ClassVar[str] = "tests.support.workload"

    def to_argument(self) -> str:
        """The JSON form that the process takes."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})


def be_on_machine(name: str) -> None:
    """Make this process one of another machine's."""
    socket.gethostname = lambda: name


def run(task: Task) -> None:
    """Do what the task says and acknowledge it."""
    if task.machine is not None:
        be_on_machine(task.machine)
    try:
        if task.kind == "init":
            commit = _init(task.uri, task.options)
        elif task.kind in COPIES:
            commit = COPIES[task.kind].run(task.uri, task.options)
        elif task.kind in UPGRADES:
            commit = UPGRADES[task.kind](task.uri, task.options)
        else:
            graph = Repository.open(task.uri, options=task.options, durability=task.durability)
            if task.lease_seconds is not None:
                graph.intents.lease_seconds = task.lease_seconds
            commit = EVERY_KIND[task.kind].act(graph)
    except OmnigraphError as error:
        say(f"REFUSED {error.code} {error.message}")
    else:
        say(f"ACK {commit}")


def say(line: str) -> None:
    """Tell the test, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def after_all(
    kind: str, uri: str, before: State, after: State, options: Mapping[str, str] | None = None
) -> State:
    """The state after a kind of write, less its last step where that can be missing: deleting a branch."""
    doomed = EVERY_KIND[kind].doomed
    now = None if doomed is None else look(uri, options)
    if doomed is None or now is None or doomed not in now.branches:
        return after
    return after.with_branch_of(before, doomed)


# --- what must hold ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    """What a reader can see of a graph: per branch how long its history is and the rows of each table.

    `rest` has per branch the schema, and what is in types and properties that most graphs here do not have. `tags`
    has by name the place of the commit in its history, and its rows.
    """

    branches: dict[str, tuple[int, dict[str, Rows]]]
    rest: dict[str, tuple[str, dict[str, list[str]]]] = field(default_factory=dict)
    tags: dict[str, tuple[int, dict[str, Rows]]] = field(default_factory=dict)

    def with_branch_of(self, other: State, name: str) -> State:
        """This state, with a branch as another has it."""
        branches = self.branches | {name: other.branches[name]}
        return replace(self, branches=branches, rest=self.rest | {name: other.rest[name]})


@dataclass(frozen=True, slots=True)
class Findings:
    """What a fresh look at a graph found, after healing."""

    state: State
    commits: dict[str, CommitRecord]
    recoveries: list[RecoveryRecord]


def observe(graph: Graph) -> State:
    """The state of a graph as a reader sees it."""
    found, rest = {}, {}
    for name in graph.branches():
        snapshot = graph.snapshot(name)
        tables = {key: _without_made_ids(key, snapshot.scan(key)) for key in BOTH}
        found[name] = (snapshot.commit.sequence, tables)
        rest[name] = snapshot.catalog.source, _rest_of(snapshot)
    tags = {}
    for name, entry in list_tags(graph.manifest):
        snapshot = graph.snapshot(at=entry.commit)
        tables = {key: _without_made_ids(key, snapshot.scan(key)) for key in BOTH}
        tags[name] = (snapshot.commit.sequence, tables)
    return State(found, rest, tags)


def _rest_of(snapshot: Snapshot) -> dict[str, list[str]]:
    """By type, the rows of properties that are not among those which every graph here has."""
    found = {}
    for key, table in snapshot.catalog.tables.items():
        columns = {item.physical: item.name for item in table.columns}
        if key in BOTH:
            columns = {physical: name for physical, name in columns.items() if name not in USUAL}
        if not columns:
            continue
        rows = snapshot.scan(key, columns=sorted({"id", *columns})).to_pylist()
        named = [{columns.get(name, name): value for name, value in row.items()} for row in rows]
        found[key] = sorted(json.dumps(row, sort_keys=True) for row in named)
    return found


def look(uri: str, options: Mapping[str, str] | None = None) -> State | None:
    """The state of a graph without changing it; None when there is none."""
    try:
        graph = Repository.open(uri, mode="r", options=options)
    except NotFound:
        return None
    try:
        return observe(graph)
    finally:
        graph.close()


def _without_made_ids(key: str, table: pa.Table) -> Rows:
    """Rows by id, but edges whose ids were made for them by their ends: nobody can foresee those ids."""
    rows = _ids_and_values(table)
    if key != KNOWS:
        return rows
    found: Rows = {}
    for id_, src, dst in zip(*(table[name].to_pylist() for name in ("id", "src", "dst")), strict=True):
        name = f"{src} to {dst}" if len(id_) == MADE_ID and not id_.startswith(PAIR) else id_
        while name in found:
            name += " again"
        found[name] = rows[id_]
    return dict(sorted(found.items()))


def _ids_and_values(table: pa.Table) -> Rows:
    number = next(name for name in table.column_names if pa.types.is_integer(table.schema.field(name).type))
    ids = table["id"].to_pylist()
    repeated = [id_ for id_, times in Counter(ids).items() if times > 1]
    assert not repeated, f"ids occur more than once: {repeated[:5]}"
    return dict(sorted(zip(ids, table[number].to_pylist(), strict=True)))


def check_invariants(
    uri: str,
    options: Mapping[str, str] | None = None,
    *,
    acknowledged: Iterable[str] = (),
    lease_seconds: float | None = None,
    touched: Collection[str] | None = None,
) -> Findings:
    """Open a graph afresh, heal it, and check everything that must always hold; then write once more.

    The last write goes to each branch, or to those in `touched` that exist.

    Raises `AssertionError` with what is wrong. What is returned is the state before that last write.
    """
    graph = Repository.open(uri, options=options, durability="os")
    if lease_seconds is not None:
        usual, graph.intents.lease_seconds = graph.intents.lease_seconds, lease_seconds
        graph.recover()
        # A writer renews its own lease all the time if it lasts no time.
        graph.intents.lease_seconds = usual
    try:
        commits = _check_manifest(graph)
        for name in graph.branches():
            _check_chain(graph, name, commits)
        # Commits that pin the same versions have the same rows.
        by_pins = {_pins_of_both(graph, commit): commit for commit in commits.values()}
        for commit in by_pins.values():
            _check_tables(graph, commit)
        missing = [id_ for id_ in acknowledged if id_ not in commits]
        assert not missing, f"acknowledged commits are gone: {missing}"
        left = [item.key for item in graph.objects.list("__recovery")]
        assert not left, f"recovery left objects behind: {left}"
        findings = Findings(observe(graph), commits, graph.recoveries())
        _check_next_write(graph, touched)
    finally:
        graph.close()
    return findings


def _check_manifest(graph: Graph) -> dict[str, CommitRecord]:
    view = graph.manifest.refresh()
    assert len(view.of_kind("registry")) == 1, "there must be exactly one registry"
    heads = Counter(item.parts[0] for item in view.of_kind("head"))
    # A branch at rest has no head file; its entry names the commit.
    live = Counter(entry.incarnation for entry in graph.branches().values() if entry.commit is None)
    assert heads == live, f"heads {dict(heads)} do not match the live branches {dict(live)}"
    stored = view.dataset.to_table()
    rows = stored["key"].to_pylist()
    # A schema that another branch has accepted too may be there twice, but not with two meanings.
    meanings = {*zip(rows, stored["body"].to_pylist(), strict=True)}
    counted = [key for key in rows if not key.startswith("schema:")]
    counted += [key for key, _ in meanings if key.startswith("schema:")]
    repeated = [key for key, times in Counter(counted).items() if times > 1]
    assert not repeated, f"rows of the manifest occur more than once: {repeated}"
    commits = {item.id: item for item in graph.manifest.all_commits(view)}
    logged = {key.removeprefix("commit:") for key in rows if key.startswith("commit:")}
    assert logged == set(commits), "the log's names and rows disagree"
    for record in graph.recoveries():
        assert record.actor == WRITER, f"recovery {record.id} names {record.actor}"
        assert (record.commit_id is not None) == (record.outcome == "rolled_forward")
        assert record.commit_id is None or record.commit_id in commits
    return commits


def _check_chain(graph: Graph, branch: str, commits: Mapping[str, CommitRecord]) -> None:
    head = graph.head(branch)
    assert commits.get(head.commit.id) == head.commit, f"the head of {branch} is not in the log as it stands"
    chain: set[str] = set()
    newer: CommitRecord | None = None
    commit: CommitRecord | None = head.commit
    while commit is not None:
        if newer is not None:
            assert commit.sequence == newer.sequence - 1, f"{branch} skips from {newer.sequence}"
            assert commit.created_at < newer.created_at, f"{branch} runs backwards in time"
        newer = commit
        chain.add(commit.id)
        for parent in (commit.parent, commit.merged_parent):
            assert parent is None or parent in commits, f"{commit.id} has lost its parent {parent}"
        commit = None if commit.parent is None else commits[commit.parent]
    assert newer is not None
    assert newer.sequence == GENESIS_SEQUENCE, f"{branch} does not reach the first commit"
    astray = {item.id for item in commits.values() if item.incarnation == head.incarnation} - chain
    assert not astray, f"commits of {branch} are in the log but not in its history: {astray}"


def _pins_of_both(graph: Graph, commit: CommitRecord) -> tuple[TablePin, ...]:
    snapshot = graph.snapshot(at=commit.id)
    return tuple(snapshot.pin(key) for key in BOTH)


def _check_tables(graph: Graph, commit: CommitRecord) -> None:
    snapshot = graph.snapshot(at=commit.id)
    tables = {}
    for key in BOTH:
        stored = snapshot.scan(key)
        _check_keys(key, stored)
        tables[key] = _ids_and_values(stored)
        pinned = snapshot.pin(key).rows
        assert len(tables[key]) == pinned, f"{key} has {len(tables[key])} rows, its pin says {pinned}"
        for end in ("src", "dst") if key == KNOWS else ():
            nowhere = set(stored[end].to_pylist()) - tables[PERSON].keys()
            assert not nowhere, f"commit {commit.id} has edges whose {end} is nowhere: {sorted(nowhere)}"
    halves = {id_ for id_ in tables[PERSON].items() ^ tables[KNOWS].items() if id_[0].startswith(PAIR)}
    assert not halves, f"commit {commit.id} shows one half of {sorted(halves)}"


def _check_keys(key: str, stored: pa.Table) -> None:
    """The key of a node is its id, so that no two nodes have one key."""
    if key == PERSON:
        names = next(
            name for name in stored.column_names[1:] if pa.types.is_string(stored.schema.field(name).type)
        )
        assert stored["id"].to_pylist() == stored[names].to_pylist(), "a node's id is not its key"


def _check_next_write(graph: Graph, touched: Collection[str] | None) -> None:
    names = graph.branches()
    for name in names if touched is None else names.keys() & touched:
        before = graph.head(name).commit
        id_ = write(graph, change(insert={f"{PAIR}-after-{before.id}": 1}), branch=name)
        after = graph.head(name).commit
        assert (after.id, after.parent) == (id_, before.id), f"the next write on {name} did not come next"
        write(graph, change([f"{PAIR}-after-{before.id}"], strict=True), branch=name, bulk=True)


if __name__ == "__main__":
    run(Task(**json.loads(sys.argv[1])))
