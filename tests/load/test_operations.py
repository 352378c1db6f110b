"""Loads with operations: patches, deletes, operation columns and order columns."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import ConstraintViolation
from omnigraph.graph.repository import Repository
from omnigraph.graph.write_request import WriteRequest
from omnigraph.load.load import LoadResult, prepare_load
from omnigraph.load.resolve import OperationRules
from omnigraph.load.spool import LoadLimits, Spool
from omnigraph.sources.readers import open_source
from omnigraph.sources.row_operations import Operation, RowOperations
from tests.load.histories import Change, Refused, changes, exact, replay
from tests.load.loads import BULK, SMALL, image
from tests.rules.naive import CATALOG
from tests.rules.states import Image
from tests.support.places import fresh_memory

_NUMBERS = count()


def load_changes(
    graph: Repository, history: list[Change], default: Operation, branch: str, limits: LoadLimits
) -> LoadResult:
    """Load a history in this process, in memory or in parts on disk."""
    operations = RowOperations(default, "op", "seq")
    catalog = graph.snapshot(branch).catalog
    batches = open_source([change.record() for change in history], catalog, operations=operations)
    with Spool.from_batches(batches, catalog, limits=limits, has_operations=True) as spool:
        request = WriteRequest("load", bulk=spool.is_bulk)
        prepare = partial(prepare_load, spool=spool, mode="merge", rules=OperationRules("seq"))
        _, result = graph.write(branch, request, prepare)
    assert result is not None
    return result


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
    return rows, dict(result.affected), dict(result.skipped), result.unchanged


@pytest.fixture(scope="module")
def graph() -> Repository:
    return Repository.init(fresh_memory(), CATALOG)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), is_patch=st.booleans())
def test_history_of_changes_loaded_in_parts_equals_a_replay(
    graph: Repository, data: st.DataObject, is_patch: bool
) -> None:
    name = f"h{next(_NUMBERS)}"
    default = Operation.PATCH if is_patch else Operation.REPLACE
    branches = {"memory": SMALL, "disk": BULK}
    for kind in branches:
        graph.create_branch(f"{name}/{kind}", "main")
    before = state(graph, f"{name}/memory")
    for history in data.draw(st.lists(st.lists(changes(is_patch=is_patch), max_size=7), max_size=3)):
        found = [
            outcome(graph, branch, partial(load_changes, graph, history, default, branch, limits))
            for kind, limits in branches.items()
            for branch in [f"{name}/{kind}"]
        ]
        assert found[0] == found[1]
        try:
            after, affected = replay(before, history, is_patch=is_patch)
        except Refused:
            assert isinstance(found[0][0], str), found[0]
            continue
        rows, counts, _, unchanged = found[0]
        assert rows == {key: {id_: exact(row) for id_, row in of.items()} for key, of in after.items()}
        assert {key: of for key, of in counts.items() if any(of.values())} == affected
        assert unchanged == (not affected and bool(history))
        before = state(graph, f"{name}/memory")


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
