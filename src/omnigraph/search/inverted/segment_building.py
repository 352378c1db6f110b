"""Building of a stored full-text segment over some fragments of a table, in this process or in a Spark task.

Texts are inverted slice by slice, and the slices are merged term by term into the files. The memory follows the
postings of the segment, not its texts; `MAX_SEGMENT_BYTES` limits it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.budget.deadline import check_deadline
from omnigraph.lang.schema import TextAnalysis
from omnigraph.search.analyzer import Analyzer
from omnigraph.search.inverted.inverted_texts import InvertedTexts, invert_texts, rank_terms
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.index_segments import BuiltSegment, index_name
from omnigraph.store.text.fragment_texts import read_fragment_texts
from omnigraph.store.text.text_index_names import TextIndexMethod, describe_segment, new_segment_id
from omnigraph.store.text.text_segment_format import CoveredFragment
from omnigraph.store.text.text_segment_writer import TermRun, write_text_segment

MAX_SEGMENT_BYTES: Final = 256 << 20
"""The bytes of texts of a segment, about."""
_SLICE_BYTES = 1 << 24
# Postings that are merged at a time.
_RUN_POSTINGS = 1 << 21


@dataclass(frozen=True, slots=True)
class TextSegmentPlan:
    """How to build segments of an index of texts. It can be pickled."""

    analysis: TextAnalysis
    method: TextIndexMethod


@dataclass(frozen=True, slots=True)
class _Slice:
    """Inverted texts, the place of the first one, and where the positions of each term begin."""

    texts: InvertedTexts
    start: int
    sizes: npt.NDArray[np.uint32]
    position_bounds: npt.NDArray[np.int64]

    @classmethod
    def of(cls, texts: pa.Array, start: int, analyzer: Analyzer, *, with_positions: bool) -> _Slice:
        missing = texts.is_null().to_numpy(zero_copy_only=False)
        inverted = invert_texts(pc.fill_null(texts, ""), analyzer, with_positions=with_positions)
        sizes = np.where(missing, 0, inverted.lengths + np.uint32(1)).astype(np.uint32)
        occurrences = np.concatenate([[0], np.cumsum(inverted.counts, dtype=np.int64)])
        return cls(inverted, start, sizes, occurrences[inverted.bounds])


def build_text_segment(
    root: LanceRoot, pin: TablePin, column: str, plan: TextSegmentPlan, fragments: Sequence[int]
) -> BuiltSegment:
    """Build an uncommitted segment over some fragments of a pinned table. It is durable on return.

    After a failure unreferenced files remain.
    """
    segment_id = new_segment_id()
    folder = f"_indices/{segment_id}"
    with_positions = plan.method.with_positions
    with translate_lance_errors(f"index {pin.path}.{column}"):
        dataset = root.open(pin.path, pin.version)
        covered, slices = _invert(dataset, column, fragments, Analyzer(plan.analysis), with_positions)
        sizes = write_text_segment(
            root,
            f"{pin.path}/{folder}",
            covered,
            (item.sizes for item in slices),
            merge_slices(slices, with_positions=with_positions),
            with_positions=with_positions,
        )
        name = index_name(column, plan.method.name)
        segment = describe_segment(dataset, column, name, segment_id, fragments, sizes)
        files = {f"{folder}/{name}": size for name, size in sizes.items()}
        return BuiltSegment(segment, root.seal(pin.path, files))


def _invert(
    dataset: Any, column: str, fragments: Sequence[int], analyzer: Analyzer, with_positions: bool
) -> tuple[list[CoveredFragment], list[_Slice]]:
    covered: list[CoveredFragment] = []
    slices: list[_Slice] = []
    start = 0
    for id_ in fragments:
        first, rows = len(slices), 0
        for texts in read_fragment_texts(dataset, id_, column, _SLICE_BYTES):
            check_deadline()
            if len(texts):
                slices.append(_Slice.of(texts, start + rows, analyzer, with_positions=with_positions))
                rows += len(texts)
        found = sum(int(np.count_nonzero(item.sizes)) for item in slices[first:])
        covered.append(CoveredFragment(id_, rows, found, sum(item.texts.tokens for item in slices[first:])))
        start += rows
    return covered, slices


def merge_slices(slices: Sequence[_Slice], *, with_positions: bool) -> Iterator[TermRun]:
    """Yield the terms of adjacent slices in order with the postings of all slices, some at a time."""
    terms, ranks = rank_terms(
        pa.concat_arrays([pa.array([], pa.large_string()), *(item.texts.terms for item in slices)])
    )
    counts = np.concatenate([np.zeros(0, np.int64), *(np.diff(item.texts.bounds) for item in slices)])
    totals = np.zeros(len(terms), np.int64)
    np.add.at(totals, ranks, counts)
    numbers = np.split(ranks, np.cumsum([len(item.texts.terms) for item in slices])[:-1])
    ends = np.cumsum(totals)
    first = 0
    while first < len(terms):
        check_deadline()
        before = ends[first - 1] if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + _RUN_POSTINGS, side="right")))
        parts = [
            _part(item, own, first, stop, with_positions) for item, own in zip(slices, numbers, strict=True)
        ]
        found, places, occurrences, lengths = (
            np.concatenate([part[column] for part in parts]) for column in range(4)
        )
        # Stable, so that places ascend within a term.
        order = np.argsort(found, kind="stable")
        positions = None
        if with_positions:
            positions = _reordered(np.concatenate([part[4] for part in parts]), occurrences, order)
        yield TermRun(
            terms.slice(first, stop - first),
            totals[first:stop],
            places[order],
            occurrences[order],
            lengths[order],
            positions,
        )
        first = stop


def _part(
    item: _Slice, numbers: npt.NDArray[np.int64], first: int, stop: int, with_positions: bool
) -> tuple[npt.NDArray[Any], ...]:
    """Return the term, place, count and row length of each posting of some terms, and the positions."""
    low, high = np.searchsorted(numbers, [first, stop]).tolist()
    bounds = item.texts.bounds
    found = np.repeat(numbers[low:high], np.diff(bounds[low : high + 1]))
    postings = slice(bounds[low], bounds[high])
    rows = item.texts.places[postings]
    positions = item.texts.positions
    kept = np.zeros(0, np.uint32)
    if with_positions and positions is not None:
        kept = positions[item.position_bounds[low] : item.position_bounds[high]]
    return (
        found,
        rows.astype(np.int64) + item.start,
        item.texts.counts[postings],
        item.texts.lengths[rows],
        kept,
    )


def _reordered(
    values: npt.NDArray[np.uint32], counts: npt.NDArray[np.uint32], order: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    """Return runs of values, as many in each as its count, in another order of the runs."""
    starts = np.cumsum(counts, dtype=np.int64) - counts
    moved = counts[order].astype(np.int64)
    begins = np.cumsum(moved) - moved
    return values[np.repeat(starts[order] - begins, moved) + np.arange(len(values))]
