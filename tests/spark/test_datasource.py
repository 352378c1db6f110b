"""`format("omnigraph")` in a real Spark: every type, every option, one commit per read, filters and partitions."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import omnigraph as og
from tests.support.s3 import Bucket
from tests.support.waiting import HANG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest_plugins = ["tests.support.s3_fixtures"]
# Starting Spark on a busy machine takes a minute.
pytestmark = pytest.mark.spark

SCHEMA = """
node Thing {
  name: String @key
  s: String?  blob: Blob?  ok: Bool?  i: I32?  l: I64?  u: U32?  v: U64?  f: F32?  d: F64?
  t: DateTime?  day: Date?  kind: enum(x, y)?  vec: Vector(3)?
  ss: [String]?  us: [U32]?  vs: [U64]?  ts: [DateTime]?  days: [Date]?  fs: [F32]?  oks: [Bool]?
}
node Person { name: String @key  age: I32? }
node Nothing { name: String @key  age: I32? }
edge Knows: Person -> Person { since: Date? }
"""

# In years when Julian and Gregorian calendars differ, and before 1970: where conversions go wrong.
EARLY = date(1066, 10, 14)
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999000)  # noqa: DTZ001 - Spark's type has no zone

# Each property as it is loaded and as Spark has it; all of them are null in another row.
VALUES: dict[str, tuple[Any, Any]] = {
    "s": ("hé\U0001f600", "hé\U0001f600"),
    "blob": ("base64:AAH/", (b"\x00\x01\xff", None)),
    "ok": (True, True),
    "i": (-(2**31), -(2**31)),
    "l": (-(2**63), -(2**63)),
    "u": (2**32 - 1, 2**32 - 1),
    "v": (2**64 - 1, Decimal(2**64 - 1)),
    "f": (0.5, 0.5),
    "d": (0.1, 0.1),
    "t": ("1969-12-31T23:59:59.999Z", BEFORE_1970),
    "day": ("1066-10-14", EARLY),
    "kind": ("x", "x"),
    "vec": ([1, 2, 0.5], [1.0, 2.0, 0.5]),
    "ss": (["", "b"], ["", "b"]),
    "us": ([2**32 - 1, 0], [2**32 - 1, 0]),
    "vs": ([2**64 - 1, 2**63], [Decimal(2**64 - 1), Decimal(2**63)]),
    "ts": (["1969-12-31T23:59:59.999Z"], [BEFORE_1970]),
    "days": (["1066-10-14"], [EARLY]),
    "fs": ([0.5], [0.5]),
    "oks": ([True, False], [True, False]),
}
PEOPLE = 60

CONNECT = """
import sys
from pyspark.sql import SparkSession
import omnigraph.spark
from omnigraph.spark.session import resolve_session

spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert resolve_session() is spark
omnigraph.spark.register(spark)
people = spark.read.format("omnigraph").option("type", "Person").load(sys.argv[1])
print("people:", people.where("age > 50").count())
spark.stop()
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    made = og.init(str(tmp_path_factory.mktemp("source") / "g"), schema=SCHEMA)
    full = {"name": "full", **{name: loaded for name, (loaded, _) in VALUES.items()}}
    made.load({"Thing": [full, {"name": "empty"}]})
    # Three loads, three fragments.
    for part in range(3):
        made.load({"Person": [{"name": f"p{n}", "age": n} for n in range(part, PEOPLE, 3)]})
    made.load({"Knows": [{"from": "p1", "to": "p2", "since": "1066-10-14"}, {"from": "p2", "to": "p3"}]})
    made.mutate('query gone() { delete Person where name = "p10" }')
    made.mutate('query add() { insert Person { name: "nobody" } }')
    return made


def source(spark: SparkSession, graph: og.Graph, type_name: str, **options: str) -> DataFrame:
    return spark.read.format("omnigraph").options(uri=graph.uri, type=type_name, **options).load()


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def names(frame: DataFrame) -> list[str]:
    return sorted(row["name"] for row in frame.select("name").collect())


def test_spark_read_returns_every_type_and_null_exactly(spark: SparkSession, graph: og.Graph) -> None:
    rows = {row["name"]: row.asDict() for row in source(spark, graph, "Thing").collect()}
    assert rows["full"] == {
        "id": "full",
        "name": "full",
        **{name: value for name, (_, value) in VALUES.items()},
    }
    assert rows["empty"] == {"id": "empty", "name": "empty", **dict.fromkeys(VALUES)}


def test_spark_read_of_edges_has_id_src_dst_and_properties(spark: SparkSession, graph: og.Graph) -> None:
    edges = source(spark, graph, "Knows")
    assert [(field.name, field.nullable) for field in edges.schema] == [
        ("id", False), ("src", False), ("dst", False), ("since", True),
    ]  # fmt: skip
    found = edges.orderBy("src").collect()
    assert [tuple(row)[1:] for row in found] == [("p1", "p2", EARLY), ("p2", "p3", None)]
    assert len({row["id"] for row in found}) == 2


def test_spark_read_of_empty_table_has_columns_and_no_rows(spark: SparkSession, graph: og.Graph) -> None:
    nothing = source(spark, graph, "Nothing")
    assert nothing.columns == ["id", "age", "name"]
    assert nothing.collect() == []


def test_spark_read_partitions_are_groups_of_fragments(spark: SparkSession, graph: og.Graph) -> None:
    parts = source(spark, graph, "Person", rowsPerPartition="20").rdd.glom().map(len).collect()
    assert (len(parts), sum(parts)) == (4, PEOPLE)
    assert source(spark, graph, "Person").rdd.getNumPartitions() == 1


def test_spark_read_with_schema_reads_only_those_columns(spark: SparkSession, graph: og.Graph) -> None:
    by_option = source(spark, graph, "Thing", columns="v, name")
    assert [row.asDict() for row in by_option.orderBy("name").collect()] == [
        {"v": None, "name": "empty"},
        {"v": Decimal(2**64 - 1), "name": "full"},
    ]
    by_schema = (
        spark.read.schema("name STRING, i INT").format("omnigraph").option("type", "Thing").load(graph.uri)
    )
    assert [tuple(row) for row in by_schema.orderBy("name").collect()] == [
        ("empty", None),
        ("full", -(2**31)),
    ]


def test_spark_read_with_a_different_schema_is_refused(spark: SparkSession, graph: og.Graph) -> None:
    wrong = (
        spark.read.schema("name STRING, i STRING").format("omnigraph").options(uri=graph.uri, type="Thing")
    )
    with pytest.raises(Exception, match="column 'i' of node type 'Thing': expected INT, got STRING"):
        wrong.load().collect()


def test_spark_read_used_twice_applies_each_filter_separately(spark: SparkSession, graph: og.Graph) -> None:
    people = source(spark, graph, "Person")
    assert people.where("age = 7").count() == 1
    assert people.count() == PEOPLE
    young, old = people.where("age < 2"), people.where("age > 57")
    assert names(young.unionAll(old)) == ["p0", "p1", "p58", "p59"]


def test_spark_read_with_where_option_filters_in_the_scan(spark: SparkSession, graph: og.Graph) -> None:
    found = source(spark, graph, "Person", where="age > 50 and not (age = 58)", columns="name")
    assert names(found) == [f"p{n}" for n in (51, 52, 53, 54, 55, 56, 57, 59)]
    assert " Filter " not in plan(found)


def test_spark_read_after_later_commits_stays_at_its_commit(spark: SparkSession, graph: og.Graph) -> None:
    graph.branches.create("moving")
    before = source(spark, graph, "Person", branch="moving")
    graph.mutate('query add() { insert Person { name: "late" } }', branch="moving")
    graph.mutate("query clear() { delete Person where age >= 0 }", branch="moving")
    assert before.count() == PEOPLE
    assert before.join(before.select("id"), "id").count() == PEOPLE
    assert names(source(spark, graph, "Person", branch="moving")) == ["late", "nobody"]


def test_spark_read_at_commit_snapshot_or_timestamp_returns_that_state(
    spark: SparkSession, graph: og.Graph
) -> None:
    graph.branches.create("travel")
    then = datetime.now(UTC).isoformat()
    # A moment counts as the whole of its millisecond.
    time.sleep(0.005)
    old = graph.commits("travel")[0].id
    graph.mutate('query add() { insert Person { name: "late" } }', branch="travel")
    reads = {
        "branch": {"branch": "travel"},
        "commit": {"commit": old},
        "snapshot": {"snapshot": old},
        "timestamp": {"branch": "travel", "timestamp": then},
    }
    counts = {name: source(spark, graph, "Person", **options).count() for name, options in reads.items()}
    assert counts == {"branch": PEOPLE + 1, "commit": PEOPLE, "snapshot": PEOPLE, "timestamp": PEOPLE}


def test_spark_read_of_unknown_type_raises_error_with_its_name(spark: SparkSession, graph: og.Graph) -> None:
    with pytest.raises(Exception, match="unknown type 'Persn'; did you mean `Person`"):
        source(spark, graph, "Persn")


def test_spark_read_from_bucket_does_not_print_credentials(
    spark: SparkSession, s3: Bucket, capfd: pytest.CaptureFixture[str]
) -> None:
    made = og.init(f"{s3.uri}/g", schema="node N { name: String @key }", storage_options=s3.options)
    made.load({"N": [{"name": "a"}, {"name": "b"}]})
    storage = {f"storage.{name}": value for name, value in s3.options.items()}
    found = source(spark, made, "N", **storage)
    assert names(found.where("name > 'a'")) == ["b"]
    found.explain(True)
    shown = "".join(capfd.readouterr())
    assert "omnigraph" in shown
    assert s3.options["secret_access_key"] not in shown


@pytest.mark.long
def test_spark_connect_read_returns_the_same_rows(graph: og.Graph) -> None:
    run = subprocess.run(
        [sys.executable, "-c", CONNECT, graph.uri],
        # The server that this starts would take any `python3` for its workers.
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "people: 9"
