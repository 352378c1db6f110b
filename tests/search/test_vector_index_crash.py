"""An optimize that is killed while it builds a vector index: searches never use half of an index."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph as og
from tests.maintain.test_optimize_crash import optimize_up_to
from tests.search.vector_graphs import ROWS, SCHEMA, documents, explain, recall, vector_indexes
from tests.support.crash import position

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "g"
    with og.init(path, schema=SCHEMA, durability="os", upkeep="off") as graph:
        graph.load({"Doc": documents()}, "append")
    return path


@pytest.fixture(scope="module")
def cuts(original: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Return the numbers of the changes before which optimize is killed."""
    folder = tmp_path_factory.mktemp("whole") / "g"
    shutil.copytree(original, folder)
    changes = optimize_up_to(str(folder), 0)["changes"]
    return {
        "first file of an index": position(changes, holds="/_indices/"),
        "last file of an index": position(changes, holds="/_indices/", last=True),
        "confirm": position(changes, holds=".outcome") - 1,
        "swap": position(changes, holds="__manifest/_versions/"),
        "end": position(changes, holds="__recovery/", last=True),
    }


@pytest.mark.parametrize(
    "killed_before",
    [
        pytest.param("first file of an index", marks=pytest.mark.slow),
        pytest.param("confirm", marks=pytest.mark.slow),
        pytest.param("end", marks=pytest.mark.slow),
        "last file of an index",
        "swap",
    ],
)
def test_optimize_killed_while_it_builds_a_vector_index_is_completed_or_discarded(
    original: Path, cuts: dict[str, int], killed_before: str, tmp_path: Path
) -> None:
    uri = str(tmp_path / "g")
    shutil.copytree(original, uri)
    optimize_up_to(uri, cuts[killed_before])

    whole = {"v_7_ivf_rq_l2": ROWS}
    with og.open(uri, mode="r") as graph:
        assert vector_indexes(graph) == (whole if killed_before == "end" else {})
        assert recall(graph, count=2) >= 0.95
    with og.open(uri, durability="os", upkeep="off") as graph:
        # A confirmed optimize is rolled forward by the open.
        assert vector_indexes(graph) == (whole if killed_before in ("swap", "end") else {})
        graph.optimize()
        assert vector_indexes(graph) == whole
        assert "search index" in explain(graph)
        assert recall(graph, count=2) >= 0.95
        assert not graph.verify().damage
