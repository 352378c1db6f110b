"""What the history of an entity costs on an object store: nothing for the commits that changed other entities."""

from __future__ import annotations

from pathlib import Path

import omnigraph as og
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server
from tests.support.s3_graphs import upload_graph
from tests.support.s3_seam import Log

__all__ = ["s3", "s3_server"]

SCHEMA = "node City { name: String @key  size: I64? }"


def _prepare(folder: Path, others: int) -> Path:
    with og.init(folder / f"{others}", SCHEMA, durability="os") as graph:
        graph.load({"City": [{"name": "Bern", "size": 0}]})
        for size in (1, 2):
            for number in range(others):
                graph.load({"City": [{"name": f"c{size}-{number}"}]})
            graph.load({"City": [{"name": "Bern", "size": size}]}, "merge")
        for number in range(others):
            graph.load({"City": [{"name": f"c{number}"}]})
    return folder / f"{others}"


def _table_requests(log: Log) -> int:
    return len([item for item in log.requests if "nodes/" in item.key])


def test_history_and_blame_take_as_many_requests_with_many_other_commits_as_with_few(
    tmp_path: Path, s3: Bucket
) -> None:
    counts = []
    for others in (2, 8):
        uri = upload_graph(_prepare(tmp_path, others), s3, str(others))
        logs = []
        for read in (_look_up, _read_history, _read_blame):
            with og.open(uri, mode="r", storage_options=s3.options) as graph, s3.seam.recording() as log:
                read(graph)
            logs.append(_table_requests(log))
        # The row is looked up once in the present state.
        counts.append([count - logs[0] for count in logs[1:]])
    assert counts[0] == counts[1], counts
    assert max(counts[0]) <= 14, counts


def _look_up(graph: og.Graph) -> None:
    assert graph.snapshot().scan("node:City", None, "id = 'Bern'").num_rows == 1


def _read_history(graph: og.Graph) -> None:
    assert [item.op for item in graph.history("City", "Bern")] == ["update", "update", "insert"]


def _read_blame(graph: og.Graph) -> None:
    assert {item.exact for item in graph.blame("City", "Bern")} == {True}
