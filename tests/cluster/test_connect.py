"""Through a Spark Connect server, with no JVM of one's own, everything is as it is elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import pipelines
from omnigraph.errors import Conflict
from tests.cluster.conftest import Driver
from tests.cluster.outcomes import figures, lines, loaded_here, saved, unfinished
from tests.cluster.shop import SCHEMA as SHOP_SCHEMA
from tests.cluster.shop import check_published, make_shop
from tests.spark.loads import knows, person
from tests.support.s3 import Bucket
from tests.support.spark_cluster import Cluster

pytest_plugins = ["tests.support.s3_fixtures"]
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def address(alone: Cluster) -> Iterator[str]:
    with alone.connect_server() as made:
        yield made


@pytest.fixture
def client(alone: Cluster, address: str) -> Iterator[Driver]:
    """A driver without a JVM."""
    made = Driver(alone, address)
    yield made
    made.process.kill()


def test_connect_client_loads_merges_and_reads(client: Driver, graph: og.LocalGraph, tmp_path: Path) -> None:
    records = [person(f"q{n}", age=n) for n in range(30)] + [knows("k9", "q0", "q29")]
    again = [person(f"q{n}", age=n + 15) for n in range(5)]
    for mode, given in (("append", records), ("merge", again)):
        path = saved(tmp_path / f"{mode}.jsonl", given)
        wanted = loaded_here(graph, path, mode)
        assert figures(client.ask("load", graph.uri, str(path), mode, branch="spark")) == wanted
        assert lines(graph, "spark") == lines(graph, "local")
    read = client.ask("read", graph.uri, "Person", branch="spark")
    ages = {f"q{n}": n if n > 4 else n + 15 for n in range(30)} | {f"p{n}": n for n in range(3)}
    assert sorted((row["name"], row["age"]) for row in read) == sorted(ages.items())
    assert not unfinished(graph)


def test_connect_pipeline_whose_driver_is_killed_at_each_step_publishes_its_input_once(
    alone: Cluster, address: str, s3: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = make_shop(s3, tmp_path)
    for name, value in shop.environment.items():
        monkeypatch.setenv(name, value)
    for step in ("rows", "audits", "merge"):
        victim = Driver(alone, address)
        victim.tell("pipeline", *shop.given, stop_at=step)
        assert victim.answer() == {"stopped": step}
        victim.process.kill()
        assert [commit.operation for commit in shop.graph.commits()] == ["init"]
    status = pipelines.status(shop.file, variables=shop.variables)
    assert (len(status.published), len(status.waiting), len(status.empty_branches)) == (0, 2, 1)

    client = Driver(alone, address)
    check_published(shop, client.ask("pipeline", *shop.given))

    # The branches of the killed runs stay listed, and cannot be merged any more.
    status = pipelines.status(shop.file, variables=shop.variables)
    assert (len(status.published), len(status.waiting), len(status.empty_branches)) == (1, 2, 1)
    with pytest.raises(Conflict, match="another run of pipeline 'people'"):
        shop.graph.branches.merge(status.waiting[0].branch)
    assert client.ask("pipeline", *shop.given)["outcome"] == "unchanged"
    client.process.kill()


DEFINITIONS = """
from pyspark import pipelines as dp

import omnigraph.spark

omnigraph.spark.register(spark)
dp.create_sink("people", format="omnigraph", options={{"uri": "{graph}", "type": "Person", "mode": "merge"}})


@dp.append_flow(target="people")
def rows():
    source = spark.readStream.format("csv").schema("code string, name string").option("header", "true")
    return source.load("{folder}/in")
"""


def test_declarative_pipeline_with_a_graph_as_sink_loads_each_file_once(
    alone: Cluster, address: str, tmp_path: Path
) -> None:
    graph = og.init(tmp_path / "g.omni", schema=SHOP_SCHEMA)
    (tmp_path / "in").mkdir()
    (tmp_path / "people.py").write_text(
        DEFINITIONS.format(graph=graph.uri, folder=tmp_path), encoding="utf-8"
    )
    libraries = [{"glob": {"include": "people.py"}}]
    spec = {"name": "people", "storage": f"file://{tmp_path}/storage", "libraries": libraries}
    (tmp_path / "spark-pipeline.yml").write_text(json.dumps(spec), encoding="utf-8")
    # What `spark-pipelines` starts, without a JVM to start it.
    command = [
        sys.executable,
        "-m",
        "pyspark.pipelines.cli",
        "run",
        "--spec",
        str(tmp_path / "spark-pipeline.yml"),
    ]
    environment = {**alone.environment(), "SPARK_REMOTE": address}
    for number, text in enumerate(("code,name\na,A\nb,B\n", "code,name\na,A2\nc,C\n")):
        (tmp_path / "in" / f"{number}.csv").write_text(text, encoding="utf-8")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    names = graph.query("query all() { match { $p: Person } return { $p.name as name } }").rows()
    assert sorted(row["name"] for row in names) == ["A2", "B", "C"]
    assert [commit.operation for commit in graph.commits()] == ["load", "load", "init"]
