"""A pipeline on a bucket: its file, its input, and the variables with which every process reaches the bucket."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import omnigraph as og
from tests.support.s3 import Bucket

SCHEMA = "node Person { code: String @key  name: String }\nedge Knows: Person -> Person { @key(src, dst) }"
# The exchange gives the rows of the first type to several tasks.
FILE = """
graph: ${BUCKET}/graph
sources:
  people: {format: csv, path: "${BUCKET}/in/people/*.csv", incremental: files}
  knows: {format: ndjson, path: "${BUCKET}/in/knows/", incremental: files, columns: "src string, dst string"}
views:
  spread: select /*+ REPARTITION(4) */ code, name from people
nodes:
  Person: {from: spread, mode: append}
edges:
  Knows: {from: knows, mode: append}
audits:
  - {diff: main, expect: inserted('Person') > 0}
"""
PEOPLE = 40


@dataclass(frozen=True)
class Shop:
    """A pipeline file and its graph."""

    file: str
    variables: dict[str, str]
    environment: dict[str, str]
    graph: og.LocalGraph

    @property
    def given(self) -> tuple[str, dict[str, str], dict[str, str]]:
        """What a driver needs to run it."""
        return self.file, self.variables, self.environment


def make_shop(s3: Bucket, folder: Path) -> Shop:
    """A graph without rows, and input for one run."""
    file = folder / "people.yaml"
    file.write_text(FILE, encoding="utf-8")
    graph = og.init(f"{s3.uri}/graph", schema=SCHEMA, storage_options=s3.options)
    for part in range(2):
        rows = [f"p{number},N{number}" for number in range(PEOPLE) if number % 2 == part]
        put(s3, f"in/people/{part}.csv", "\n".join(["code,name", *rows]))
    edges = [{"src": f"p{number}", "dst": f"p{(number + 1) % PEOPLE}"} for number in range(PEOPLE)]
    put(s3, "in/knows/0.ndjson", "\n".join(map(json.dumps, edges)))
    environment = {
        "AWS_ENDPOINT_URL": s3.options["endpoint"],
        "AWS_ACCESS_KEY_ID": s3.options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": s3.options["secret_access_key"],
        "AWS_REGION": s3.options["region"],
        "AWS_ALLOW_HTTP": "true",
    }
    return Shop(str(file), {"BUCKET": s3.uri}, environment, graph)


def put(s3: Bucket, key: str, text: str) -> None:
    s3.server.objects.put(s3.name, key, text.encode())


def check_published(shop: Shop, report: dict[str, object]) -> None:
    """The rows are in the graph once, by one commit that was merged."""
    assert report["outcome"] == "published"
    counts = {"inserted": PEOPLE, "updated": 0, "deleted": 0}
    assert report["affected"] == {"Person": counts, "Knows": counts}
    stats = {item.operation for item in shop.graph.commits()}
    assert [item.operation for item in shop.graph.commits()] == ["merge", "init"], stats
    names = shop.graph.query("query all() { match { $p: Person } return { $p.name as name } }").rows()
    assert sorted(row["name"] for row in names) == sorted(f"N{number}" for number in range(PEOPLE))
