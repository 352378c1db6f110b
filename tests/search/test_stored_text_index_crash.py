"""An optimize that is killed while it builds a full-text index: searches never use half of an index."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph as og
from tests.maintain.test_optimize_crash import optimize_up_to
from tests.search.text_graphs import (
    FEW_QUERIES,
    SCHEMA,
    Answers,
    answers,
    documents,
    explain,
    small_indexes,
    text_indexes_of,
)
from tests.support.crash import position

pytestmark = pytest.mark.faults

_ROWS = 60
# The process that is killed indexes a table of any size.
_OPTIMIZE = """import sys, omnigraph as og
from tests.search.text_graphs import small_indexes
with small_indexes():
    og.open(sys.argv[1], durability='os').optimize()
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    path = tmp_path_factory.mktemp("texts") / "g"
    with og.init(path, schema=SCHEMA, durability="os", upkeep="off") as graph:
        graph.load({"Doc": documents(0, _ROWS)}, "append")
        return path, answers(graph, FEW_QUERIES)


@pytest.fixture(scope="module")
def cuts(original: tuple[Path, Answers], tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Return the numbers of the changes before which optimize is killed."""
    folder = tmp_path_factory.mktemp("whole") / "g"
    shutil.copytree(original[0], folder)
    changes = optimize_up_to(str(folder), 0, _OPTIMIZE)["changes"]
    return {
        "first file of an index": position(changes, holds="/_indices/"),
        "last file of an index": position(changes, holds="/_indices/", last=True),
        "postings": position(changes, holds="postings.lance"),
        "confirm": position(changes, holds=".outcome") - 1,
        "swap": position(changes, holds="__manifest/_versions/"),
        "end": position(changes, holds="__recovery/", last=True),
    }


@pytest.mark.parametrize(
    "killed_before",
    [
        pytest.param("first file of an index", marks=pytest.mark.slow),
        pytest.param("last file of an index", marks=pytest.mark.slow),
        pytest.param("confirm", marks=pytest.mark.slow),
        pytest.param("end", marks=pytest.mark.slow),
        "postings",
        "swap",
    ],
)
def test_optimize_killed_while_it_builds_a_text_index_is_completed_or_discarded(
    original: tuple[Path, Answers], cuts: dict[str, int], killed_before: str, tmp_path: Path
) -> None:
    uri, expected = str(tmp_path / "g"), original[1]
    shutil.copytree(original[0], uri)
    optimize_up_to(uri, cuts[killed_before], _OPTIMIZE)

    whole = {"body": _ROWS, "title": _ROWS}
    with og.open(uri, mode="r") as graph:
        assert text_indexes_of(graph) == (whole if killed_before == "end" else {})
        assert answers(graph, FEW_QUERIES) == expected
    with og.open(uri, durability="os", upkeep="off") as graph:
        # A confirmed optimize is rolled forward by the open.
        assert text_indexes_of(graph) == (whole if killed_before in ("swap", "end") else {})
        with small_indexes():
            graph.optimize()
        assert text_indexes_of(graph) == whole
        assert explain(graph)[0] == "search words of $d.body: stored index of 1 segment"
        assert answers(graph, FEW_QUERIES) == expected
        assert not graph.verify().damage
