"""Sources of pipelines, read by real runs: graphs, their changes, partitioned folders, gzip, a database."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omnigraph as og
from omnigraph import pipelines
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.spark.pipelines.change_frames import change_frame
from omnigraph.spark.pipelines.kafka_frames import check_kafka, kafka_ends
from tests.spark.test_pipeline_targets import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DERBY = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
PEOPLE = """
node Person { code: String @key  name: String?  at: DateTime?  size: U64?  tags: [String]?  photo: Blob? }
edge Knows: Person -> Person { @key(src, dst)  since: Date? }
"""
# Other names than in the source, so a delete needs the values of the deleted row.
CUSTOMERS = """
node Customer { number: String @key  name: String?  at: DateTime?  size: U64?  tags: [String]?  photo: Blob? }
node Team { team: String @key }
edge Met: Customer -> Customer { @key(src, dst)  since: Date? }
"""
FOLLOW = """
graph: target.omni
sources:
  people: {format: changes, graph: source.omni, type: Person}
  knows: {format: changes, graph: source.omni, type: Knows}
  teams: {format: omnigraph, graph: source.omni, type: Person, branch: teams}
views:
  customers: select code as number, name, at, size, tags, photo, op from people
  known_teams: select code as team from teams
nodes:
  Customer: {from: customers, mode: patch, delete_when: op = 'delete', ignore: [op]}
  Team: {from: known_teams}
edges:
  Met: {from: knows, mode: patch, delete_when: op = 'delete', ignore: [op]}
"""


def run(file: Path, spark: SparkSession, **options: Any) -> pipelines.RunReport:
    return pipelines.run(file, spark=spark, variables={}, **options)


def inserted(report: pipelines.RunReport) -> dict[str, int]:
    return {name: counts["inserted"] for name, counts in report.affected.items() if counts["inserted"]}


# --- graphs -----------------------------------------------------------------------------------------------


def test_changes_of_a_graph_are_applied_with_the_last_values_of_deleted_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "p.yaml").write_text(FOLLOW, encoding="utf-8")
    source = og.init(tmp_path / "source.omni", schema=PEOPLE)
    target = og.init(tmp_path / "target.omni", schema=CUSTOMERS)
    full = {"at": "2026-05-01T08:00:00Z", "size": 2**64 - 1, "tags": ["x"], "photo": "base64:aGFsbG8="}
    source.load({"Person": [{"code": "a", "name": "Ana", **full}, {"code": "b"}, {"code": "c", **full}]})
    source.load({"Knows": [{"src": "a", "dst": "b"}, {"src": "b", "dst": "c", "since": "2026-05-01"}]})
    source.branches.create("teams")
    source.load({"Person": [{"code": "red"}]}, branch="teams")
    assert inserted(run(tmp_path / "p.yaml", spark)) == {"Customer": 3, "Team": 4, "Met": 2}
    assert run(tmp_path / "p.yaml", spark).outcome == "unchanged"

    source.load({"Person": [{"code": "a"}]}, "delete")
    source.load({"Person": [{"code": "b", "name": "Bo"}, {"code": "d", **full}]}, "patch")
    source.load({"Knows": [{"src": "b", "dst": "c"}]}, "delete")
    source.load({"Knows": [{"src": "d", "dst": "d", "since": "2026-05-02"}]})

    report = run(tmp_path / "p.yaml", spark)

    # A deleted node takes its edges with it, in the source and in the target.
    assert report.affected["Customer"] == {"inserted": 1, "updated": 1, "deleted": 1}
    assert report.affected["Met"] == {"inserted": 1, "updated": 0, "deleted": 2}
    people = rows(source, "Person")
    assert list(people) == ["b", "c", "d"]
    assert rows(target, "Customer") == {
        name: {("number" if key == "code" else key): value for key, value in row.items()}
        for name, row in people.items()
    }
    assert "teams" not in report.sources
    assert run(tmp_path / "p.yaml", spark).outcome == "unchanged"


def test_changes_since_a_commit_that_is_gone_are_refused_with_the_way_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph = og.init(tmp_path / "g.omni", schema="node Person { code: String @key  op: String? }")
    head = graph.commits(limit=1)[0].id
    with pytest.raises(InvalidInput, match="has a property 'op'"):
        change_frame(spark, graph.uri, "Person", head, head, {})
    plain = og.init(tmp_path / "h.omni", schema="node Person { code: String @key }")
    with pytest.raises(NotFound, match="is not in the graph any more") as raised:
        change_frame(spark, plain.uri, "Person", head, plain.commits(limit=1)[0].id, {})
    assert "--full-refresh" in str(raised.value)


# --- files ------------------------------------------------------------------------------------------------


def test_partitioned_and_compressed_files_are_read_once_with_the_columns_of_their_folders(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "env=test"
    text = """
graph: g.omni
sources:
  orders: {format: csv, path: in/orders/, incremental: files}
  lines: {format: ndjson, path: "in/lines/*.ndjson.gz", incremental: files}
nodes:
  Order: {from: orders, columns: {key: id}}
  Line: {from: lines}
"""

    def day(name: str, number: int) -> None:
        place = folder / "in" / "orders" / f"day={name}" / "shop=A%2FB"
        place.mkdir(parents=True)
        (place / "part-0.csv.gz").write_bytes(gzip.compress(f"id\no{number}\n".encode()))
        (folder / "in" / "lines").mkdir(exist_ok=True)
        line = json.dumps({"number": number, "text": "x"}) + "\n"
        (folder / "in" / "lines" / f"{number}.ndjson.gz").write_bytes(gzip.compress(line.encode()))

    day("2026-05-01", 1)
    (folder / "p.yaml").write_text(text, encoding="utf-8")
    order = "node Order { key: String @key  day: Date  shop: String }\n"
    graph = og.init(folder / "g.omni", schema=order + "node Line { number: I32 @key  text: String? }")
    assert inserted(run(folder / "p.yaml", spark)) == {"Order": 1, "Line": 1}
    day("2026-05-02", 2)
    report = run(folder / "p.yaml", spark)
    assert {name: item.file_count for name, item in report.sources.items()} == {"orders": 1, "lines": 1}
    assert inserted(report) == {"Order": 1, "Line": 1}
    for key, day_of in (("o1", "2026-05-01"), ("o2", "2026-05-02")):
        assert graph.get("Order", key) == {"id": key, "key": key, "day": day_of, "shop": "A/B"}
    assert run(folder / "p.yaml", spark).outcome == "unchanged"


# --- databases --------------------------------------------------------------------------------------------


class Database:
    """A Derby database with the rows of a table."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.url = f"jdbc:derby:{folder}/db"
        jvm: Any = spark._jvm
        self._connection = jvm.java.sql.DriverManager.getConnection(f"{self.url};create=true")
        self.execute("create table items (id int, changed timestamp)")

    def execute(self, text: str) -> None:
        statement = self._connection.createStatement()
        try:
            statement.execute(text)
        finally:
            statement.close()

    def insert(self, number: int, moment: str) -> None:
        self.execute(f"insert into items values ({number}, timestamp('{moment}'))")


@pytest.fixture
def time_zone(spark: SparkSession) -> Iterator[None]:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("time_zone")
def test_rows_of_a_database_are_read_once_by_their_time_in_any_time_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    database = Database(spark, tmp_path)
    text = f"""
graph: g.omni
sources:
  items: {{format: jdbc, url: "{database.url}", table: items, driver: {DERBY}, incremental: {{column: changed}}}}
nodes:
  Item: {{from: items, mode: append, columns: {{number: id}}, ignore: [CHANGED]}}
"""
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    og.init(tmp_path / "g.omni", schema="node Item { number: I32 @key }")
    # More digits than Spark has, and two rows in one microsecond.
    database.insert(1, "2026-10-25 00:30:00.123456789")
    database.insert(2, "2026-10-25 00:30:00.123456999")
    assert inserted(run(tmp_path / "p.yaml", spark)) == {"Item": 2}
    # Here the clock shows the hour of the first rows twice.
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    database.insert(3, "2026-10-25 01:00:00")
    report = run(tmp_path / "p.yaml", spark)
    # An append of a row that is stored would fail.
    assert inserted(report) == {"Item": 1}
    assert (report.sources["items"].start, report.sources["items"].stop) == (
        "2026-10-25 00:30:00.123456Z",
        "2026-10-25 01:00:00Z",
    )
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    assert run(tmp_path / "p.yaml", spark).outcome == "unchanged"


def test_lag_reads_rows_that_were_committed_late_or_with_the_greatest_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    database = Database(spark, tmp_path)
    text = f"""
graph: g.omni
sources:
  items:
    format: jdbc
    url: "{database.url}"
    query: select id as number, changed from items
    driver: {DERBY}
    incremental: {{column: changed, lag: 1h}}
nodes:
  Item: {{from: items, ignore: [CHANGED]}}
"""
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    graph = og.init(tmp_path / "g.omni", schema="node Item { number: I32 @key }")
    database.insert(1, "2026-05-01 09:00:00")
    assert inserted(run(tmp_path / "p.yaml", spark)) == {"Item": 1}
    head = graph.commits(limit=1)[0].id
    assert run(tmp_path / "p.yaml", spark).outcome == "unchanged"
    assert graph.commits(limit=1)[0].id == head
    assert graph.branches.list() == ["main"]
    database.insert(2, "2026-05-01 09:00:00")
    database.insert(3, "2026-05-01 08:00:00")
    database.insert(4, "2026-05-01 07:59:59")
    assert inserted(run(tmp_path / "p.yaml", spark)) == {"Item": 2}
    assert sorted(row["number"] for row in rows(graph, "Item").values()) == [1, 2, 3]


# --- messages ---------------------------------------------------------------------------------------------


def test_offsets_of_messages_continue_in_each_partition(spark: SparkSession) -> None:
    messages = spark.createDataFrame([(0, 5), (0, 6), (2, 1)], "partition int, offset bigint")
    start = {"items": {"0": 5, "1": 9}}
    assert kafka_ends(messages, "items", start) == {"items": {"0": 7, "1": 9, "2": 2}}
    assert kafka_ends(messages.limit(0), "items", None) is None
    with pytest.raises(InvalidInput, match="spark-sql-kafka-0-10"):
        check_kafka(spark)
