"""What the options of a read mean, and what is read: all that needs no Spark running."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.catalog.columns import arrow_type
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.graph.repository import Repository
from omnigraph.maintain.cleanup import cleanup
from omnigraph.spark.datasource.read_plan import plan_table_read
from omnigraph.spark.engine.table_read import TableRead, to_spark

SCHEMA = """
node Item {
  name: String @key
  count: I32?  big: U64?  price: F32?  weight: F64?  seen: DateTime?  day: Date?  ok: Bool?
  tags: [String]?  file: Blob?
}
edge Item: Item -> Item { }
edge Likes: Item -> Item { }
node Other { name: String @key }
"""

ROWS = [
    {"name": "a", "count": -1, "big": 2**64 - 1, "price": 0.1, "weight": 0.0, "seen": "1969-12-31T23:59:59.999Z"},
    {"name": "ab", "count": 0, "big": 0, "price": -0.0, "weight": -0.0, "day": "1582-10-04", "ok": True},
    {"name": "b", "count": 2**31 - 1, "big": 2**63, "weight": 1e300, "day": "2024-02-29", "ok": False},
    {"name": "é'%", "price": 16777216, "seen": "2026-01-01T00:00:00Z", "tags": []},
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    made = og.init(str(tmp_path_factory.mktemp("reads") / "g"), schema=SCHEMA)
    made.load({"Other": [{"name": f"o{n}"} for n in range(10)]})
    made.load([{"type": "Item", "data": row} for row in ROWS])
    made.load({"Likes": [{"from": "a", "to": "ab"}, {"from": "a", "to": "b"}, {"from": "b", "to": "a"}]})
    return made


def planned(graph: og.Graph, type_name: str = "node:Item", **options: str) -> TableRead:
    return plan_table_read({"uri": graph.uri, "type": type_name, **options})


def read_all(read: TableRead) -> pa.Table:
    """Every row of a read, in types that Arrow and Spark share."""
    schema = pa.schema([(column.name, pa.string()) for column in read.columns])
    batches = [batch for part in read.partitions() for batch in read.batches(part, schema)]
    return pa.Table.from_batches(batches, schema)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'type' is missing"),
        ({"type": "Other", "brnach": "main"}, "unknown option 'brnach'; did you mean `branch`"),
        ({"type": "Othr"}, "unknown type 'Othr'; did you mean `Other`"),
        ({"type": "Item"}, "ambiguous type 'Item'"),
        ({"type": "Other", "branch": "nope"}, "branch 'nope' not found"),
        ({"type": "Other", "commit": "nope"}, "nope"),
        ({"type": "Other", "commit": "x", "timestamp": "2026-01-01"}, "commit and timestamp each select a state"),
        ({"type": "Other", "commit": "x", "branch": "main"}, "branch and commit each select a state"),
        ({"type": "Other", "timestamp": "yesterday"}, "expected an ISO 8601 timestamp, got 'yesterday'"),
        ({"type": "Other", "columns": "name,nmae"}, "node type 'Other' has no column 'nmae'; did you mean `name`"),
        ({"type": "Other", "columns": "name, name"}, "column 'name' is selected twice"),
        ({"type": "Other", "rowsPerPartition": "0"}, "expected an integer above 0, got '0'"),
        ({"type": "Other", "path": "elsewhere"}, "specified twice"),
    ],
)  # fmt: skip
def test_table_read_with_invalid_options_is_refused(
    graph: og.Graph, options: dict[str, str], message: str
) -> None:
    with pytest.raises((InvalidInput, NotFound)) as refused:
        plan_table_read({"uri": graph.uri, **options})
    assert message in str(refused.value)


def test_table_read_of_memory_graph_is_refused() -> None:
    og.init("memory://pipeline-reads", schema="node N { name: String @key }")
    with pytest.raises(InvalidInput, match="is in the memory of one process"):
        plan_table_read({"uri": "memory://pipeline-reads", "type": "N"})


def test_table_read_of_node_and_edge_with_one_name_selects_by_kind(graph: og.Graph) -> None:
    assert planned(graph, "edge:Item").ddl.startswith("`id` STRING NOT NULL, `src` STRING NOT NULL, `dst` ")
    assert [column.name for column in planned(graph, "node:Item").columns][:2] == ["id", "big"]


def test_table_read_printed_has_no_credentials(graph: og.Graph) -> None:
    read = planned(graph, **{"storage.secret_access_key": "hush"})
    assert dict(read.storage) == {"secret_access_key": "hush"}
    assert "hush" not in repr(read)


def test_table_read_pickled_returns_the_same_rows(graph: og.Graph) -> None:
    read = planned(graph, "Other")
    assert read_all(pickle.loads(pickle.dumps(read))).num_rows == 10


def test_table_read_of_blob_with_two_nulls_is_null(graph: og.Graph) -> None:
    column = next(item for item in planned(graph).columns if item.name == "file")
    stored = pa.array(
        [{"data": b"x", "uri": None}, {"data": None, "uri": "s3://b/k"}, {"data": None, "uri": None}, None],
        arrow_type(column.type),
    )
    found = to_spark(stored, column, pa.struct([("data", pa.binary()), ("uri", pa.string())]))
    assert found.is_null().to_pylist() == [False, False, True, True]
    assert found[0].as_py() == {"data": b"x", "uri": None}


def test_table_read_partitions_group_neighbours_up_to_the_row_limit(tmp_path: Path) -> None:
    made = og.init(str(tmp_path / "g"), schema="node N { name: String @key }")
    for count in (4, 4, 1, 20, 3):
        made.load({"N": [{"name": f"{count}-{made.commits()[0].id}-{n}"} for n in range(count)]})
    read = plan_table_read({"uri": made.uri, "type": "N", "rowsPerPartition": "8"})
    parts = read.partitions()
    assert [part.fragments for part in parts] == [(0, 1), (2,), (4,), (3,), (3,), (3,)]
    # The fragment with 20 rows is split.
    assert [(part.offset, part.limit) for part in parts[3:]] == [(0, 8), (8, 8), (16, 8)]
    assert read_all(read).num_rows == 32


def test_table_read_of_removed_version_reports_it_as_reclaimed(tmp_path: Path) -> None:
    made = og.init(str(tmp_path / "g"), schema="node N { name: String @key  age: I32? }")
    for age in range(3):
        made.load({"N": [{"name": "a", "age": age}]}, mode="merge")
    read = plan_table_read({"uri": made.uri, "type": "N", "commit": made.commits()[1].id})
    fragments = read.partitions()[0]
    cleanup(Repository.open(made.uri), keep=1, confirm=True, grace=timedelta(0))
    with pytest.raises(NotFound, match="reclaimed"):
        read.partitions()
    with pytest.raises(NotFound, match="reclaimed"):
        list(read.batches(fragments, pa.schema([(column.name, pa.string()) for column in read.columns])))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("count >= 0", ["ab", "b"]),
        ("count >= 0 and not (ok = true)", ["b"]),
        ("big = 18446744073709551615", ["a"]),
        ('price is null or name = "a"', ["a", "b"]),
        ('day < date("1600-01-01")', ["ab"]),
        ('seen < now() and seen > datetime("2000-01-01T00:00:00Z")', ["é'%"]),
        ("weight = 0", ["a", "ab"]),
        ("count > 2147483647", []),
    ],
)
def test_table_read_with_condition_selects_rows(graph: og.Graph, condition: str, expected: list[str]) -> None:
    assert sorted(read_all(planned(graph, columns="id", where=condition))["id"].to_pylist()) == expected


def test_table_read_with_condition_on_edge_endpoints_selects_rows(graph: og.Graph) -> None:
    read = planned(graph, "Likes", where='from = "a" and to != "b"')
    assert read_all(read)["dst"].to_pylist() == ["ab"]


@pytest.mark.parametrize(
    "condition",
    ["nmae = 1", "count >", "", "count = 1 } query more() { delete Other where name = \"x\"", "count = $n",
     "count = 1 delete Other where name = \"x\""],
)  # fmt: skip
def test_table_read_with_invalid_condition_is_refused(graph: og.Graph, condition: str) -> None:
    with pytest.raises(InvalidInput):
        planned(graph, where=condition)
