"""The example shop, from its first run to a failed audit: files, a database, quarantine, review and lineage."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omnigraph as og
from omnigraph import pipelines
from omnigraph.errors import Conflict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).parents[2] / "examples" / "shop"


class Shop:
    """A copy of the example with its database and graph."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
        self.folder = folder
        self.spark = spark
        self.variables = {"SHOP_DB": f"jdbc:derby:{folder}/db;create=true"}
        self.file = folder / "pipeline.yaml"
        self.graph = og.init(folder / "shop.omni", schema=folder / "schema.pg")

    def products(self, *rows: tuple[str, str, float, str]) -> None:
        frame = self.spark.createDataFrame(list(rows), "sku string, title string, price double, at string")
        frame = frame.selectExpr("sku", "title", "price", "timestamp(at) as updated_at")
        frame.coalesce(1).write.format("jdbc").options(
            url=self.variables["SHOP_DB"],
            dbtable="products",
            driver="org.apache.derby.iapi.jdbc.AutoloadedDriver",
        ).mode("append").save()

    def day(self, day: str, customers: list[tuple[str, str, str]], orders: list[Any]) -> None:
        sys.path.insert(0, str(self.folder))
        try:
            from make_data import write_day  # type: ignore[import-not-found]
        finally:
            sys.path.pop(0)
        write_day(self.folder, day, customers, orders)

    def run(self) -> pipelines.RunReport:
        return pipelines.run(self.file, variables=self.variables, spark=self.spark)

    @property
    def head(self) -> str:
        return self.graph.commits(limit=1)[0].id


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Shop]:
    made = Shop(tmp_path_factory.mktemp("shop"), spark)
    made.products(
        ("tea", "Green tea", 4.5, "2026-05-01 08:00:00"), ("mug", "Mug", 9.0, "2026-05-01 09:00:00")
    )
    made.day(
        "2026-05-01",
        [("1", " Ana ", "ANA@example.org"), ("2", "Bo", ""), ("3", "Cy", "nobody")],
        [("o1", "1", "tea", 2), ("o2", "2", "mug", 1)],
    )
    yield made
    made.graph.close()


def test_first_run_publishes_all_sources_as_one_commit_and_repeats_as_a_no_op(shop: Shop) -> None:
    plan = pipelines.plan(shop.file, variables=shop.variables, spark=shop.spark)
    assert shop.graph.branches.list() == ["main"]
    assert plan.targets["Customer"].affected["inserted"] == 2
    assert plan.targets["Customer"].failed == 1
    assert {row["sku"] for row in plan.targets["Product"].sample} == {"tea", "mug"}

    report = shop.run()

    assert report.outcome == "published"
    assert {name: counts["inserted"] for name, counts in report.affected.items()} == {
        "Customer": 2,
        "Product": 2,
        "Order": 2,
        "Placed": 2,
        "Contains": 2,
    }
    assert report.quarantined == {"Customer": 1}
    (rejected,) = Path(report.quarantine or "").glob("*.ndjson")
    assert json.loads(rejected.read_text())["record"]["name"] == "Cy"
    assert shop.graph.get("Customer", "1") == {
        "id": "1",
        "customer_id": "1",
        "name": "Ana",
        "email": "ana@example.org",
    }
    assert shop.graph.branches.list() == ["main"]
    assert [commit.operation for commit in shop.graph.commits()] == ["merge", "init"]
    head = shop.head

    again = shop.run()

    assert again.outcome == "unchanged"
    assert shop.head == head
    assert shop.graph.branches.list() == ["main"]


def test_later_run_reads_only_new_files_and_changed_rows_of_the_database(shop: Shop) -> None:
    shop.products(("jar", "Jar", 3.0, "2026-05-02 07:00:00"))
    shop.day("2026-05-02", [("2", "Bob", "bob@example.org")], [("o3", "2", "jar", 5)])

    report = shop.run()

    assert report.outcome == "published"
    assert report.sources["customers"].files[0].endswith("2026-05-02.csv")
    assert report.sources["customers"].file_count == 1
    assert report.sources["products"].start == "2026-05-01 09:00:00Z"
    assert report.sources["products"].stop == "2026-05-02 07:00:00Z"
    assert report.affected["Customer"] == {"inserted": 0, "updated": 1, "deleted": 0}
    # The lag of an hour reads the rows of the last hour again, which merge writes again.
    assert report.affected["Product"] == {"inserted": 1, "updated": 2, "deleted": 0}
    status = pipelines.status(shop.file, variables=shop.variables)
    assert status.published[0].commit == report.commit
    assert len(status.published) == 2
    assert status.waiting == ()


def test_run_of_rows_that_are_stored_already_commits_its_state_once(shop: Shop) -> None:
    shop.day("2026-05-02a", [("2", "Bob", "bob@example.org")], [])
    head = shop.head

    report = shop.run()

    assert report.outcome == "published"
    assert report.affected["Customer"] == {"inserted": 0, "updated": 0, "deleted": 0}
    assert list(shop.graph.diff(head, shop.head)) == []
    assert shop.run().outcome == "unchanged"


def test_run_leaves_the_session_of_the_caller_active(shop: Shop, spark: SparkSession) -> None:
    # createDataFrame activates its session.
    spark.createDataFrame([(1,)], "n int")
    shop.day("2026-05-02b", [("2", "Bert", "bert@example.org")], [])
    shop.run()
    active = type(spark).getActiveSession()
    assert active is not None
    assert active._jsparkSession.sessionUUID() == spark._jsparkSession.sessionUUID()


def test_failed_audit_leaves_its_branch_and_the_next_run_excludes_it(shop: Shop) -> None:
    head = shop.head
    many = [(f"c{number}", "Dee", "") for number in range(51)]
    shop.day("2026-05-03", many, [("o4", "c1", "tea", 1)])

    report = shop.run()

    assert report.outcome == "left"
    assert [audit.passed for audit in report.audits] == [True, False]
    assert shop.head == head
    assert report.branch is not None
    assert shop.graph.get("Customer", "c1", branch=report.branch) is not None
    (waiting,) = pipelines.status(shop.file, variables=shop.variables).waiting
    assert waiting.commit == report.commit

    text = shop.file.read_text(encoding="utf-8")
    shop.file.write_text(text.replace("<= 50", "<= 500"), encoding="utf-8")
    assert shop.run().outcome == "published"
    assert shop.graph.get("Customer", "c1") is not None
    with pytest.raises(Conflict, match="another run of pipeline 'shop'"):
        shop.graph.branches.merge(report.branch)


def test_tests_of_the_example_pass_and_a_wrong_expectation_fails(shop: Shop) -> None:
    results = pipelines.test(EXAMPLE / "pipeline.yaml", variables=shop.variables, spark=shop.spark)
    assert [(result.name, result.differences) for result in results] == [
        ("one_order", ()),
        ("order_without_customer", ()),
    ]
