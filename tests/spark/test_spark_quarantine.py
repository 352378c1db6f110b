"""Loads with rejects on Spark: records that break rules between rows are left out, as in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation, InvalidInput
from omnigraph.load import distributed
from omnigraph.store.objects.object_store import ObjectStore
from tests.support.s3 import Bucket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.support.s3_fixtures"]
pytestmark = pytest.mark.spark

SHOP = """
node Customer { number: I64 @key  name: String  email: String? @unique  age: I32?  @range(age, 0..150) }
node Order { number: I64 @key  total: F64 }
edge Placed: Customer -> Order @card(0..3) { channel: String? }
"""
NAMES = "query names() { match { $c: Customer } return { $c.name as name } }"
CUSTOMERS, BAD, EDGES = 200, 18, 89
KEPT = CUSTOMERS - BAD


@pytest.fixture
def shop(tmp_path: Path) -> og.LocalGraph:
    return og.init(str(tmp_path / "shop"), schema=SHOP)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Eighteen bad customers: nine with a value of another type, nine out of range. 89 edges refer to them."""
    bad = set(range(0, CUSTOMERS, 11))
    assert len(bad) == BAD + 1
    bad.discard(0)
    wrong = dict.fromkeys(sorted(bad)[::2], "x") | dict.fromkeys(sorted(bad)[1::2], "900")
    customers = [f"{number},n{number},e{number},{wrong.get(number, '30')}" for number in range(CUSTOMERS)]
    orders = [{"number": number, "total": number / 4} for number in range(EDGES + CUSTOMERS)]
    sources = [sorted(bad)[at % BAD] for at in range(EDGES)] + [
        at for at in range(CUSTOMERS) if at not in bad
    ]
    edges = [{"from": str(source), "to": str(at), "channel": "web"} for at, source in enumerate(sources)]
    paths = {name: tmp_path / name for name in ("customers.csv", "orders.json", "placed.json")}
    paths["customers.csv"].write_text("\n".join(["number,name,email,age", *customers]) + "\n")
    paths["orders.json"].write_text("".join(json.dumps(row) + "\n" for row in orders))
    paths["placed.json"].write_text("".join(json.dumps(row) + "\n" for row in edges))
    return {
        "Customer": paths["customers.csv"],
        "Order": paths["orders.json"],
        "Placed": paths["placed.json"],
    }


def rejected(receipt: og.LoadReceipt) -> list[Any]:
    assert receipt.rejects is not None
    return [json.loads(line) for line in Path(receipt.rejects).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("keys", ["database", "joins"])
def test_load_with_bad_customers_and_their_edges_loads_the_rest_on_both_engines(
    shop: og.LocalGraph,
    files: dict[str, Path],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: str,
) -> None:
    if keys == "joins":
        monkeypatch.setattr(distributed, "MAX_LOCAL_KEYS", 0)
    (tmp_path / "rejects").mkdir()
    found = {}
    for engine in ("local", "spark"):
        receipt = shop.load(
            files,
            branch=engine,
            create_from="main",
            engine=engine,
            spark=spark,
            rejects=f"{tmp_path}/rejects/",
            max_rejects="25%",
        )
        assert (receipt.nodes, receipt.edges) == (
            {"Customer": KEPT, "Order": EDGES + CUSTOMERS},
            {"Placed": KEPT},
        )
        assert receipt.rejected_by_rule == {
            "Customer": {"range": 9, "record": 9},
            "Placed": {"endpoint": EDGES},
        }
        found[engine] = rejected(receipt)
    assert found["spark"] == found["local"]
    first = next(item for item in found["local"] if item["type"] == "Placed")
    assert first == {
        "source": str(files["Placed"]),
        "line": 1,
        "type": "Placed",
        "id": None,
        "rule": "endpoint",
        "reason": "src '11' not found in Customer: its record was rejected",
        "error": "src '11' not found in Customer: its record was rejected",
        "record": {"edge": "Placed", "from": "11", "to": "0", "data": {"channel": "web"}},
    }
    # The rejected records, repaired, load back.
    customers = [item["record"] for item in found["spark"] if item["type"] == "Customer"]
    rows = [row["data"] if "data" in row else {**row, "number": int(row["number"])} for row in customers]
    repaired = [{"type": "Customer", "data": {**row, "age": 30}} for row in rows]
    edges = [item["record"] for item in found["spark"] if item["type"] == "Placed"]
    receipt = shop.load([*repaired, *edges], branch="spark", rejects=str(tmp_path / "again.ndjson"))
    assert (receipt.nodes, receipt.edges) == ({"Customer": BAD}, {"Placed": 3 * BAD})
    assert receipt.rejected_by_rule == {"Placed": {"card": EDGES - 3 * BAD}}


def test_load_of_dataframes_above_max_rejects_commits_nothing(
    shop: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    people = spark.createDataFrame([(1, "a", 30), (1, "b", 30)], "number long, name string, age int")
    before = shop.commits()[0].id
    with pytest.raises(ConstraintViolation, match="1 of 2 records rejected") as caught:
        shop.load({"Customer": people.coalesce(1)}, rejects=tmp_path, max_rejects=0)
    assert shop.commits()[0].id == before
    (line,) = Path(caught.value.details["rejects"]).read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["record"] == {"type": "Customer", "data": {"number": 1, "name": "b", "age": 30}}


def test_load_with_rejects_table_appends_rows_with_the_id_of_the_commit(
    shop: og.LocalGraph, spark: SparkSession
) -> None:
    name = "omnigraph_rejects_test"
    try:
        for number in range(2):
            source = [{"type": "Order", "data": {"number": number, "total": 1.0}}, {"type": "Order"}]
            receipt = shop.load(source, rejects=f"table:{name}", spark=spark)
            assert (receipt.rejected, receipt.rejects) == (1, f"table:{name}")
        rows = spark.table(name).collect()
        assert {row["load"] for row in rows} == {commit.id for commit in shop.commits()[:2]}
        assert {(row["line"], row["rule"], row["record"]) for row in rows} == {
            (2, "record", '{"type": "Order"}')
        }
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_load_of_dataframes_keeps_the_order_of_the_source_and_runs_jobs_together(
    shop: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    columns = "number long, name string, email string"
    frames = {
        "Customer": spark.createDataFrame([(1, "a", "m")], columns),
        "node:Customer": spark.createDataFrame([(2, "b", "m"), (1, "c", None)], columns).coalesce(1),
        "Order": spark.range(0, 40, 1, 4).selectExpr("id AS number", "CAST(id AS double) AS total"),
        "Placed": spark.createDataFrame([("2", "3"), ("1", "39")], "`from` string, `to` string").coalesce(1),
    }
    receipt = shop.load(frames, rejects=str(tmp_path / "r.ndjson"))
    assert (receipt.nodes, receipt.edges) == ({"Customer": 1, "Order": 40}, {"Placed": 1})
    assert [(item["type"], item["id"], item["rule"]) for item in rejected(receipt)] == [
        ("Customer", "2", "unique"),
        ("Customer", "1", "unique"),
        ("Placed", None, "endpoint"),
    ]


def test_load_of_failing_dataframe_raises_its_reason_first(shop: og.LocalGraph, spark: SparkSession) -> None:
    from pyspark.sql.functions import udf

    broken = spark.range(3).selectExpr("id AS number", "1.0D AS total")
    day = udf(lambda _: [][1], "double")
    before = shop.commits()[0].id
    with pytest.raises(InvalidInput) as caught:
        shop.load({"Order": broken.withColumn("total", day("number"))})
    assert str(caught.value) == "a Spark task failed: IndexError: list index out of range"
    assert caught.value.__cause__ is not None
    with pytest.raises(InvalidInput, match=r"^the Spark job failed: Division by zero"):
        shop.load({"Order": broken.selectExpr("number", "CAST(1 / (number - number) AS double) AS total")})
    assert shop.commits()[0].id == before


def in_bucket(s3: Bucket, prefix: str) -> list[Any]:
    """The rejected records of the only object below a prefix."""
    (key,) = [key for key in s3.keys if key.startswith(prefix)]
    store, _ = ObjectStore.split_uri(f"{s3.uri}/{key}", s3.options)
    return [json.loads(line) for line in store.get(key).data.splitlines()]


@pytest.mark.parametrize("keys", ["database", "joins"])
def test_spark_change_log_with_rejects_in_a_bucket_equals_a_local_load(
    s3: Bucket, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    if keys == "joins":
        monkeypatch.setattr(distributed, "MAX_LOCAL_KEYS", 0)
    shop = og.init(f"{s3.uri}/shop", schema=SHOP, storage_options=s3.options)
    shop.load(
        {"Customer": [{"number": 1, "name": "n", "email": "e1"}], "Order": [{"number": 1, "total": 1.0}]}
    )
    # The sink compares keys in the process that commits, however many they are.
    targets = {"local": "a/", "spark": "b/"} | ({"sink": "c/"} if keys == "database" else {})
    for name in targets:
        shop.branches.create(name)
    log = [
        {"op": "U", "seq": 1, "number": 2, "name": "a", "email": "e1", "age": 1},
        {"op": "U", "seq": 2, "number": 2, "name": "b", "email": "e1", "age": 2},
        {"op": "U", "seq": 3, "number": 3, "name": "c", "email": "e3", "age": 900},
        {"op": "U", "seq": 4, "number": 1, "name": "d", "email": "e1", "age": 4},
        {"op": "D", "seq": 5, "number": 9, "name": None, "email": None, "age": None},
    ]
    placed = [{"from": "2", "to": "1", "channel": "x"}, {"from": "1", "to": "1", "channel": "y"}]
    options: dict[str, Any] = {"op_column": "op", "order_by": "seq", "require_existing": True}
    frame = spark.createDataFrame(log, "op string, seq long, number long, name string, email string, age int")
    shop.load(
        {"Customer": pa.Table.from_pylist(log)}, "merge", branch="local", rejects=f"{s3.uri}/a/", **options
    )
    shop.load({"Customer": frame.repartition(3)}, "merge", branch="spark", rejects=f"{s3.uri}/b/", **options)
    if "sink" in targets:
        (
            frame.repartition(3)
            .write.format("omnigraph")
            .options(uri=shop.uri, branch="sink", type="Customer", mode="merge", opColumn="op", orderBy="seq")
            .options(requireExisting="true", rejects=f"{s3.uri}/c/")
            .options(**{f"storage.{name}": value for name, value in s3.options.items()})
            .mode("append")
            .save()
        )
    found = [in_bucket(s3, prefix) for prefix in targets.values()]
    expected = [(2, "unique"), (2, "unique"), (3, "range"), (9, "key")]
    for rejects in found:
        assert sorted((item["record"]["data"]["number"], item["rule"]) for item in rejects) == expected
        assert {item["record"]["op"] for item in rejects if item["rule"] == "key"} == {"D"}
    for branch in targets:
        names = [row["name"] for row in shop.query(NAMES, branch=branch).rows()]
        assert names == ["d"]
    with shop.batch(branch="spark", rejects=f"{s3.uri}/d/") as batch:
        batch.merge("Placed", spark.createDataFrame(placed, "`from` string, `to` string, channel string"))
    assert [(item["rule"], item["reason"]) for item in in_bucket(s3, "d/")] == [
        ("endpoint", "src '2' not found in Customer")
    ]
