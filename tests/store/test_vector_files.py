"""Vectors read from local data files without Lance are those that Lance reads."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import NotFound, StorageError
from omnigraph.store.tables.row_addresses import make_addresses
from omnigraph.store.tables.vector_files import VectorFile, find_vector_files
from omnigraph.store.tables.version_diff import take_addresses

SCHEMA = """
node Doc {
    name: String @key
    required: Vector(64)
    sparse: Vector(80)?
    short: Vector(8)
}
"""
ROWS = 3_000
KEY = "node:Doc"


def vectors(dimension: int, nulls: np.ndarray | None = None) -> pa.Array:
    numbers = np.random.default_rng(dimension).normal(size=ROWS * dimension).astype(np.float32)
    return pa.FixedSizeListArray.from_arrays(
        pa.array(numbers), dimension, mask=None if nulls is None else pa.array(nulls)
    )


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.LocalGraph:
    made = og.init(str(tmp_path_factory.mktemp("vectors") / "g"), schema=SCHEMA, upkeep="off")
    rows = {
        "name": [f"d{number}" for number in range(ROWS)],
        "required": vectors(64),
        "sparse": vectors(80, np.arange(ROWS) % 7 == 3),
        "short": vectors(8),
    }
    made.load({"Doc": pa.table(rows)}, "append")
    return made


def files(graph: og.LocalGraph, name: str) -> dict[int, VectorFile]:
    snapshot = graph.snapshot()
    pin = snapshot.pin(KEY)
    numbers = [item.fragment_id for item in snapshot.tables.open(pin.path, pin.version).get_fragments()]
    return dict(find_vector_files(snapshot.tables, pin, snapshot.table(KEY).physical(name), numbers))


@pytest.mark.parametrize("name", ["required", "sparse"])
@pytest.mark.parametrize("rows", [[0], [5, 6, 7], range(0, ROWS, 301), range(1_300, 1_600), range(ROWS)])
def test_vectors_of_a_local_file_equal_those_of_lance(graph: og.LocalGraph, name: str, rows: range) -> None:
    snapshot = graph.snapshot()
    ((fragment, file),) = files(graph, name).items()
    offsets = np.array(rows, np.uint32)
    column = snapshot.table(KEY).physical(name)
    addresses = make_addresses(fragment, offsets)
    expected = take_addresses(snapshot.tables, snapshot.pin(KEY), addresses, [column])[
        column
    ].combine_chunks()
    found = file.read(offsets)
    assert found.is_null().equals(expected.is_null())
    assert found.drop_null().equals(expected.drop_null())


def test_short_vectors_and_vectors_with_null_numbers_are_left_to_lance(graph: og.LocalGraph) -> None:
    assert files(graph, "short") == {}


def test_vectors_of_several_pages_are_found(graph: og.LocalGraph) -> None:
    ((_, file),) = files(graph, "sparse").items()
    (page,) = file.pages
    starts = [0, 1, 1_000, ROWS]
    parts = [
        replace(page, rows=end - start, data_start=page.data_start + start * page.row_bytes)
        for start, end in pairwise(starts)
    ]
    offsets = np.array([0, 1, 2, 999, 1_000, 2_998, 2_999], np.uint32)
    assert VectorFile(file.path, tuple(parts)).read(offsets).equals(file.read(offsets))


def test_vectors_of_a_missing_or_cut_file_are_an_error(graph: og.LocalGraph, tmp_path: Path) -> None:
    ((_, file),) = files(graph, "required").items()
    cut = tmp_path / "cut.lance"
    cut.write_bytes(Path(file.path).read_bytes()[:100_000])
    with pytest.raises(StorageError, match="ends before byte"):
        VectorFile(str(cut), file.pages).read(np.array([390], np.uint32))
    with pytest.raises(NotFound, match=r"gone\.lance: not found"):
        VectorFile(str(tmp_path / "gone.lance"), file.pages).read(np.array([0], np.uint32))
