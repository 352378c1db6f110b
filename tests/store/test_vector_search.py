"""Vector segments of a table: several serve one index, and vectors are read in batches of bounded size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.errors import InvalidInput
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables import vector_search
from omnigraph.store.tables.row_addresses import fragments_of
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.vector_indexes import FEW_VECTORS, VectorIndexMethod
from omnigraph.store.tables.vector_search import find_vector_indexes, read_vectors, search_vector_index
from omnigraph.store.tables.version_diff import Slice
from tests.support.places import lance_root, uri
from tests.support.rows import pin_of

__all__ = ["uri"]

DIMENSION = 8
SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), pa.field("v_2", pa.list_(pa.float32(), DIMENSION))]
)
METHOD = VectorIndexMethod("ivf_rq", "l2")


def rows(first: int, count: int) -> pa.Table:
    vectors = np.random.default_rng(first).normal(size=(count, DIMENSION)).astype(np.float32)
    return pa.table(
        [
            pa.array([f"row-{number}" for number in range(first, first + count)]),
            pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION),
        ],
        schema=SCHEMA,
    )


@pytest.fixture
def tables(uri: str) -> Tables:
    return Tables(lance_root(uri))


def two_segments(tables: Tables) -> TablePin:
    """Return a version with three fragments, of which two have a segment each."""
    pin = TablePin("nodes/1-x", tables.create("nodes/1-x", SCHEMA).version, 0, "content")
    for first in (0, 600):
        pin = pin_of(tables.stage(pin, insert=rows(first, 600)))
        pin = pin_of(tables.stage_index(pin, "v_2", METHOD.name))
    return pin_of(tables.stage(pin, insert=rows(1_200, 300)))


def test_search_of_two_segments_finds_rows_of_both_and_none_that_they_do_not_cover(tables: Tables) -> None:
    pin = two_segments(tables)
    (index,) = find_vector_indexes(tables, pin, "v_2")
    assert (index.method, len(index.fragments)) == (METHOD, 2)
    assert find_vector_indexes(tables, pin, "v") == []
    found = search_vector_index(tables, pin, "v_2", [0.1] * DIMENSION, "l2", 200, nprobes=20)
    assert found is not None
    assert set(fragments_of(found).tolist()) == index.fragments
    vectors = np.concatenate([np.array(rows(first, 600)["v_2"].to_pylist()) for first in (0, 600)])
    nearest = np.argsort(((vectors - 0.1) ** 2).sum(axis=1))[:20]
    order = sorted(index.fragments)
    expected = {(order[number // 600] << 32) + number % 600 for number in nearest.tolist()}
    assert expected <= set(found.tolist())


def test_search_after_a_deletion_leaves_out_the_deleted_rows(tables: Tables) -> None:
    pin = two_segments(tables)
    before = search_vector_index(tables, pin, "v_2", [0.1] * DIMENSION, "l2", 100, nprobes=20)
    assert before is not None
    pin = pin_of(tables.stage(pin, delete_addresses=before[:40].tolist()))
    after = search_vector_index(tables, pin, "v_2", [0.1] * DIMENSION, "l2", 100, nprobes=20)
    assert after is not None
    assert not set(before[:40].tolist()) & set(after.tolist())


def test_vectors_are_read_in_batches_of_bounded_size(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = two_segments(tables)
    monkeypatch.setattr(vector_search, "BATCH_BYTES", 3_200)
    first, second, third = (item.id for item in tables.fragments(pin.path, pin.version))
    dense, sparse = np.arange(0, 600, 2, dtype=np.uint32), np.array([1, 250, 299], np.uint32)
    slices = [Slice(first), Slice(second, dense), Slice(third, sparse)]
    found = list(read_vectors(tables, pin, "v_2", 4.0 * DIMENSION, slices))
    assert max(len(vectors) for _, vectors in found) <= 100
    read = {
        address: vector
        for addresses, vectors in found
        for address, vector in zip(addresses.tolist(), vectors.to_pylist(), strict=True)
    }
    expected: dict[int, object] = {}
    for fragment, start, offsets in (
        (first, 0, np.arange(600)),
        (second, 600, dense),
        (third, 1_200, sparse),
    ):
        values = rows(start, 300 if start == 1_200 else 600)["v_2"].to_pylist()
        expected |= {(fragment << 32) + offset: values[offset] for offset in offsets.tolist()}
    assert read == expected


def test_segment_over_too_few_vectors_is_refused(tables: Tables) -> None:
    pin = TablePin("nodes/1-x", tables.create("nodes/1-x", SCHEMA).version, 0, "content")
    pin = pin_of(tables.stage(pin, insert=rows(0, 255)))
    with pytest.raises(InvalidInput, match=FEW_VECTORS):
        tables.stage_index(pin, "v_2", METHOD.name)
