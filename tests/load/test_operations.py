"""Loads with operations: patches, deletes, operation columns and order columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.api.interface.batches import Batch
from omnigraph.errors import ConstraintViolation
from omnigraph.graph.recovery.scratch_files import ScratchFolder
from omnigraph.graph.repository import Repository
from omnigraph.graph.write_request import WriteRequest
from omnigraph.load import key_lookups, operation_staging
from omnigraph.load.distributed import DistributedLoad, DistributedLoadOptions, LoadTasks, staged_splits
from omnigraph.load.load import prepare_load
from omnigraph.load.operation_rules import OperationRules
from omnigraph.load.quarantine import Quarantine
from omnigraph.load.spool import LoadLimits, Spool
from omnigraph.sources.readers import open_source
from omnigraph.sources.row_operations import Operation, RowOperations
from omnigraph.sources.splits import plan_splits
from tests.catalog.test_identity import catalog_of
from tests.load.histories import Change, Refused, changes, exact, replay
from tests.load.loads import BULK, SMALL, image, load
from tests.rules.naive import CATALOG
from tests.rules.states import Image
from tests.spark.loads import backwards_and_twice
from tests.support.places import fresh_memory

_NUMBERS = count()
# Splits of a few lines and parts of two rows, with every task run twice.
_SPLIT_BYTES = 150
RULES = OperationRules("seq", op_column="op")


def load_locally(
    graph: Repository,
    file: Path,
    default: Operation,
    branch: str,
    limits: LoadLimits,
    quarantine: Quarantine | None = None,
) -> Any:
    """Load a file of changes in this process, in memory or in parts on disk."""
    catalog = graph.snapshot(branch).catalog
    reject = None if quarantine is None else quarantine.log.add
    batches = open_source(file, catalog, on_reject=reject, operations=RowOperations(default, "op", "seq"))
    with Spool.from_batches(batches, catalog, limits=limits, on_reject=reject, rules=RULES) as spool:
        request = WriteRequest("load", bulk=spool.is_bulk)
        prepare = partial(prepare_load, spool=spool, mode="merge", rules=RULES, quarantine=quarantine)
        return graph.write(branch, request, prepare).result


def load_in_tasks(
    graph: Repository, file: Path, default: Operation, branch: str, quarantine: Quarantine | None = None
) -> Any:
    """Load a file of changes split by split."""
    catalog = graph.snapshot(branch).catalog
    operations = RowOperations(default, "op", "seq")
    splits = plan_splits(file, catalog, {}, _SPLIT_BYTES, operations=operations)
    tasks = LoadTasks(staged_splits(backwards_and_twice, splits), backwards_and_twice)
    options = DistributedLoadOptions("merge", graph.durability, rules=RULES, quarantine=quarantine)
    scratch = ScratchFolder(graph.location.uri)
    with DistributedLoad(tasks, scratch, catalog, options) as load:
        return graph.write(branch, WriteRequest("load", bulk=True), load.prepare).result


def state(graph: Repository, branch: str) -> Image:
    return {key: {row["id"]: row for row in rows} for key, rows in image(graph, branch).items()}


def outcome(graph: Repository, branch: str, load: Any) -> Any:
    """Return the state and the counts after a load, or its violations."""
    try:
        result = load()
    except ConstraintViolation as error:
        return error.message, error.violations, error.details
    rows = {
        key: {id_: exact(row) for id_, row in found.items()} for key, found in state(graph, branch).items()
    }
    skipped = {key: of for key, of in result.skipped.items() if any(of.values())}
    affected = {key: of for key, of in result.affected.items() if any(of.values())}
    return rows, affected, skipped, result.unchanged


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    folder = tmp_path_factory.mktemp("operations")
    return Repository.init(str(folder / "graph"), CATALOG, durability="os")


def check_history(graph: Repository, folder: Path, loads: list[list[Change]], *, is_patch: bool) -> None:
    """Load changes in memory, in parts on disk and in tasks, and compare each state with a replay."""
    name = f"h{next(_NUMBERS)}"
    file = folder / f"{name}.jsonl"
    default = Operation.PATCH if is_patch else Operation.REPLACE
    for kind in ("memory", "disk", "tasks"):
        graph.create_branch(f"{name}/{kind}", "main")
    before = state(graph, f"{name}/memory")
    for history in loads:
        file.write_text("".join(f"{json.dumps(change.record())}\n" for change in history))
        work = {
            "memory": partial(load_locally, graph, file, default, f"{name}/memory", SMALL),
            "disk": partial(load_locally, graph, file, default, f"{name}/disk", BULK),
            "tasks": partial(load_in_tasks, graph, file, default, f"{name}/tasks"),
        }
        in_memory, on_disk, in_tasks = (outcome(graph, f"{name}/{kind}", load) for kind, load in work.items())
        assert in_memory == on_disk
        assert in_memory == in_tasks
        try:
            after, affected = replay(before, history, is_patch=is_patch)
        except Refused:
            assert isinstance(in_memory[0], str), in_memory
            continue
        rows, counts, _, unchanged = in_memory
        assert rows == {key: {id_: exact(row) for id_, row in of.items()} for key, of in after.items()}
        assert counts == affected
        assert unchanged == (not affected and bool(history))
        before = state(graph, f"{name}/memory")


histories = st.booleans().flatmap(
    lambda is_patch: st.tuples(
        st.just(is_patch), st.lists(st.lists(changes(is_patch=is_patch), max_size=8), max_size=3)
    )
)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_staging, "_PART_ROWS", 2)
    # Committed keys are looked up, as for a small load into a large table.
    monkeypatch.setattr(key_lookups, "MIN_ROWS_PER_VALUE", 0)


@pytest.mark.usefixtures("small_parts")
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories)
def test_history_of_changes_in_every_engine_equals_a_replay(
    graph: Repository, tmp_path: Path, history: tuple[bool, list[list[Change]]]
) -> None:
    check_history(graph, tmp_path, history[1], is_patch=history[0])


@pytest.mark.long
@pytest.mark.usefixtures("small_parts")
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories)
def test_long_history_of_changes_in_every_engine_equals_a_replay(
    graph: Repository, tmp_path: Path, history: tuple[bool, list[list[Change]]]
) -> None:
    check_history(graph, tmp_path, history[1], is_patch=history[0])


def test_small_load_into_a_large_table_checks_all_edges_of_its_sources(
    tmp_path: Path,
) -> None:
    catalog = catalog_of("node P { n: I32? }\nedge K: P -> P @card(1..2) { n: I32? }")
    graph = Repository.init(str(tmp_path / "graph"), catalog, durability="os")
    rows = [{"id": f"p{n}"} for n in range(300)]
    stored = [{"id": f"k{n}", "src": f"p{n}", "dst": f"p{n + 1}"} for n in range(200)]
    stored += [{"id": f"m{n}", "src": f"p{n}", "dst": f"p{n + 2}"} for n in range(200)]
    load(graph, {"node:P": rows, "edge:K": stored}, "append")
    file = tmp_path / "small.jsonl"

    def changed(*items: Change) -> Any:
        file.write_text("".join(f"{json.dumps(item.record())}\n" for item in items))
        load_in_tasks(graph, file, Operation.REPLACE, "main")

    def edge(id_: str, src: str, dst: str) -> Change:
        return Change("edge:K", "U", 1, {"id": id_, "src": src, "dst": dst})

    with pytest.raises(ConstraintViolation, match=r"source 'p7' has 3 edges \(max 2\)"):
        changed(edge("new", "p7", "p1"))
    with pytest.raises(ConstraintViolation, match="dst 'nobody' not found in P"):
        changed(edge("k7", "p7", "nobody"))
    with pytest.raises(ConstraintViolation, match="has 0 edges"):
        changed(Change("edge:K", "D", 1, {"id": "k7"}), Change("edge:K", "D", 1, {"id": "m7"}))
    changed(edge("k7", "p7", "p200"), edge("new", "p250", "p1"))
    found = state(graph, "main")["edge:K"]
    assert (found["k7"]["dst"], found["new"]["src"], len(found)) == ("p200", "p250", 401)


# --- through the API ----------------------------------------------------------------------------------------

SCHEMA = """
node City { name: String @key  inhabitants: I64?  kind: String  seq: I64? }
node Person { name: String @key  age: I32? }
edge Lives: Person -> City { since: I32? }
"""


@pytest.fixture
def cities() -> og.Graph:
    graph = og.init(fresh_memory(), schema=SCHEMA)
    graph.load(
        [
            {"type": "City", "data": {"name": "Bern", "kind": "a", "inhabitants": 1, "seq": 5}},
            {"type": "City", "data": {"name": "Rome", "kind": "b"}},
            {"type": "Person", "data": {"name": "Ana"}},
            {"edge": "Lives", "from": "Ana", "to": "Bern", "data": {"id": "e1", "since": 1}},
        ]
    )
    return graph


def row(graph: og.Graph, name: str) -> dict[str, Any]:
    found = graph.get("City", name)
    assert found is not None
    return found


def test_patch_of_a_table_keeps_columns_that_are_not_given(cities: og.Graph) -> None:
    table = pa.table({"name": ["Bern"], "inhabitants": [None]})
    receipt = cities.load({"City": table}, mode="patch")
    assert receipt.affected == {"City": {"inserted": 0, "updated": 1, "deleted": 0}}
    assert cities.get("City", "Bern") == {
        "id": "Bern",
        "name": "Bern",
        "kind": "a",
        "inhabitants": None,
        "seq": 5,
    }


def test_patch_of_records_keeps_fields_that_are_not_given(cities: og.Graph) -> None:
    cities.load(
        [
            {"type": "City", "data": {"id": "Bern", "inhabitants": 7}},
            {"edge": "Lives", "data": {"id": "e1", "since": 2}},
        ],
        mode="patch",
    )
    assert row(cities, "Bern")["inhabitants"] == 7
    assert cities.get("Lives", "e1") == {"id": "e1", "from": "Ana", "to": "Bern", "since": 2}


def test_patch_of_a_new_key_without_a_required_property_is_refused(cities: og.Graph) -> None:
    with pytest.raises(og.errors.ConstraintViolation, match="line 1: non-nullable property 'kind'"):
        cities.load({"City": [{"name": "Oslo"}]}, mode="patch")


def test_delete_removes_edges_of_the_node_and_counts_absent_rows(cities: og.Graph) -> None:
    receipt = cities.load({"City": [{"name": "Bern"}, {"id": "Nowhere"}]}, mode="delete")
    assert receipt.affected["City"]["deleted"] == receipt.affected["Lives"]["deleted"] == 1
    assert receipt.skipped["City"] == {"superseded": 0, "unchanged": 0, "absent": 1}
    assert cities.get("Lives", "e1") is None
    with pytest.raises(og.errors.ConstraintViolation, match="has no id 'Nowhere' to delete"):
        cities.load({"City": [{"id": "Nowhere"}]}, mode="delete", require_existing=True)


def test_rows_of_one_key_apply_in_the_order_of_the_order_column(cities: og.Graph, tmp_path: Path) -> None:
    file = tmp_path / "cities.csv"
    file.write_text("op,at,name,kind,inhabitants\nU,10,Bern,new,3\nI,9,Bern,old,2\nd,8,Bern,,\nD,1,Rome,,\n")
    receipt = cities.load({"City": file}, mode="merge", op_column="op", order_by="at")
    assert row(cities, "Bern")["kind"] == "new"
    assert cities.get("City", "Rome") is None
    assert receipt.skipped["City"]["superseded"] == receipt.superseded == 2


def test_row_older_than_the_stored_order_property_has_no_effect(cities: og.Graph) -> None:
    late = [{"name": "Bern", "kind": "late", "seq": 4, "op": "U"}, {"name": "Bern", "seq": 3, "op": "D"}]
    receipt = cities.load({"City": late}, mode="patch", op_column="op", order_by="seq")
    assert receipt.commit is None
    assert receipt.skipped["City"]["superseded"] == 2
    assert row(cities, "Bern")["kind"] == "a"


def test_edge_that_a_load_repeats_while_it_deletes_the_node_is_refused(cities: og.Graph) -> None:
    records = [
        {"type": "City", "op": "D", "data": {"name": "Bern"}},
        {"edge": "Lives", "op": "U", "data": {"id": "e1", "since": 1}},
    ]
    with pytest.raises(og.errors.ConstraintViolation, match="dst 'Bern' not found in City"):
        cities.load(records, mode="patch", op_column="op")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "append", "op_column": "op"}, "does not apply to mode 'append'"),
        ({"mode": "overwrite", "order_by": "seq"}, "does not apply to mode 'overwrite'"),
        ({"mode": "merge", "op_column": "op"}, 'unknown operation "X"'),
    ],
)
def test_load_with_a_wrong_operation_raises_invalid_input(
    cities: og.Graph, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(og.errors.InvalidInput, match=message):
        cities.load([{"type": "City", "op": "X", "data": {"name": "Bern", "kind": "a"}}], **arguments)


# --- batches ------------------------------------------------------------------------------------------------


def test_batch_of_many_types_is_one_commit_checked_as_a_whole(cities: og.Graph, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text('{"type": "Person", "data": {"name": "Bo"}}\n', encoding="utf-8")
    before = len(cities.commits())
    with cities.batch(message="all") as batch:
        # The edge precedes its node: only the state at the end is checked.
        batch.merge("Lives", [{"from": "Bo", "to": "Oslo", "id": "e2"}])
        batch.append("City", pa.table({"name": ["Oslo"], "kind": ["n"]}))
        batch.patch("City", [{"name": "Oslo", "inhabitants": 5}])
        batch.load(file)
        batch.delete("City", [{"name": "Bern"}])
    assert batch.receipt is not None
    assert len(cities.commits()) == before + 1
    assert batch.receipt.affected["City"] == {"inserted": 1, "updated": 0, "deleted": 1}
    assert batch.receipt.affected["Lives"] == {"inserted": 1, "updated": 0, "deleted": 1}
    assert row(cities, "Oslo")["inhabitants"] == 5


def test_batch_commits_nothing_after_an_exception_or_a_violation(cities: og.Graph) -> None:
    before = cities.commits()[0].id

    def change(then: Callable[[Batch], object]) -> None:
        with cities.batch() as batch:
            batch.delete("City", [{"name": "Bern"}])
            then(batch)

    def fail(_: Batch) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        change(fail)
    with pytest.raises(og.errors.ConstraintViolation, match="already has id 'Rome'"):
        change(lambda batch: batch.append("City", [{"name": "Rome", "kind": "again"}]))
    batch = cities.batch()
    assert batch.commit() is None
    assert cities.commits()[0].id == before
    with pytest.raises(og.errors.InvalidInput, match="the batch has ended"):
        batch.merge("City", [])


def test_batch_with_the_same_idempotency_key_commits_once(cities: og.Graph) -> None:
    receipts = []
    for mayor in (1, 2):
        with cities.batch(idempotency_key="stream 7") as batch:
            batch.patch("City", [{"name": "Rome", "inhabitants": mayor}])
        receipts.append(batch.receipt)
    assert receipts[1] is not None
    assert receipts[1].replayed
    assert row(cities, "Rome")["inhabitants"] == 1
