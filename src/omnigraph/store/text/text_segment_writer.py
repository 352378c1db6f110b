"""Writing of the files of a full-text segment, term by term in their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.store.lance.lance_files import FILE_FORMAT
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.text.text_segment_format import (
    BLOCK_TERMS,
    INDEX,
    INDEX_SCHEMA,
    POSITIONS,
    POSTINGS,
    SCHEMAS,
    SIZES,
    TERMS,
    TERMS_SCHEMA,
    CoveredFragment,
    Numbers,
    SegmentHeader,
    checksum,
    to_differences,
)

_BATCH_ROWS: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class TermRun:
    """Some terms in code point order, and their postings one after the other.

    `rows` has the number of postings of each term. Places ascend within a term. `positions` has those of each
    posting one after the other, ascending, as many as its count; None without positions.
    """

    terms: pa.Array
    rows: Numbers
    places: Numbers
    counts: Numbers
    lengths: Numbers
    positions: Numbers | None = None


def write_text_segment(
    root: LanceRoot,
    folder: str,
    fragments: Sequence[CoveredFragment],
    sizes: Iterable[Numbers],
    runs: Iterable[TermRun],
    *,
    with_positions: bool,
) -> dict[str, int]:
    """Write the files of a segment into a directory below the root; return their sizes by name.

    The terms of a run follow those of the run before it.
    """
    writer = _Writer(root, folder, with_positions=with_positions)
    for part in sizes:
        writer.add(SIZES, [part])
    for run in runs:
        writer.add_run(run)
    return writer.finish(fragments)


class _Writer:
    def __init__(self, root: LanceRoot, folder: str, *, with_positions: bool) -> None:
        self._session = root.folder_session(folder)
        self._with_positions = with_positions
        self._files: dict[str, Any] = {}
        self._block: list[pa.RecordBatch] = []
        self._waiting = 0
        self._blocks: list[tuple[str, int, int, int]] = []
        self._terms = self._postings = self._positions = 0
        for name in (TERMS, POSTINGS, SIZES, *([POSITIONS] if with_positions else ())):
            self._open(name, SCHEMAS[name])

    def _open(self, name: str, schema: pa.Schema) -> None:
        self._files[name] = self._session.open_writer(name, schema=schema, version=FILE_FORMAT)

    def add(self, name: str, columns: Sequence[Numbers | pa.Array]) -> None:
        """Append rows to a file."""
        schema = SCHEMAS[name]
        arrays = [
            pa.array(column, field.type) if isinstance(column, np.ndarray) else column
            for column, field in zip(columns, schema, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for start in range(0, rows.num_rows, _BATCH_ROWS):
            self._files[name].write_batch(rows.slice(start, _BATCH_ROWS))

    def add_run(self, run: TermRun) -> None:
        """Append terms with their postings."""
        if not len(run.terms):
            return
        firsts = np.cumsum(run.rows) - run.rows
        self.add(
            POSTINGS,
            [to_differences(run.places, firsts), run.counts.astype(np.uint32), run.lengths.astype(np.uint32)],
        )
        position_sums = np.zeros(len(run.rows), np.uint64)
        if run.positions is not None:
            starts = np.cumsum(run.counts, dtype=np.int64) - run.counts
            differences = to_differences(run.positions, starts)
            self.add(POSITIONS, [differences])
            position_sums = np.add.reduceat(differences, starts[firsts], dtype=np.uint64)
        terms = pa.RecordBatch.from_arrays(
            [
                run.terms.cast(pa.large_string()),
                pa.array(run.rows.astype(np.uint32)),
                pa.array(run.places[firsts + run.rows - 1].astype(np.uint32)),
                pa.array(np.add.reduceat(run.counts, firsts, dtype=np.uint64)),
                pa.array(np.add.reduceat(run.lengths, firsts, dtype=np.uint64)),
                pa.array(position_sums),
            ],
            schema=TERMS_SCHEMA,
        )
        self._block.append(terms)
        self._waiting += terms.num_rows
        if self._waiting >= BLOCK_TERMS:
            self._write_blocks(self._waiting - self._waiting % BLOCK_TERMS)

    def _write_blocks(self, count: int) -> None:
        """Write so many of the waiting terms, in blocks."""
        waiting = pa.Table.from_batches(self._block, TERMS_SCHEMA).combine_chunks()
        for start in range(0, count, BLOCK_TERMS):
            block = waiting.slice(start, min(BLOCK_TERMS, count - start)).to_batches()[0]
            self._files[TERMS].write_batch(block)
            first = block["term"][0].as_py()
            self._blocks.append((first, self._postings, self._positions, checksum(block.columns)))
            self._postings += int(np.sum(block["rows"].to_numpy(), dtype=np.int64))
            self._positions += int(np.sum(block["tokens"].to_numpy(), dtype=np.int64))
        self._terms += count
        rest = waiting.slice(count)
        self._block, self._waiting = rest.to_batches(), rest.num_rows

    def finish(self, fragments: Sequence[CoveredFragment]) -> dict[str, int]:
        """Complete the files; return their sizes."""
        if self._waiting:
            self._write_blocks(self._waiting)
        columns = list(zip(*self._blocks, strict=True)) or [(), (), (), ()]
        blocks = pa.RecordBatch.from_arrays(
            [pa.array(list(column), field.type) for column, field in zip(columns, INDEX_SCHEMA, strict=True)],
            schema=INDEX_SCHEMA,
        )
        header = SegmentHeader(tuple(fragments), self._terms, self._with_positions)
        self._open(INDEX, INDEX_SCHEMA.with_metadata(header.metadata(blocks)))
        if blocks.num_rows:
            self._files[INDEX].write_batch(blocks)
        sizes = {}
        for name, file in self._files.items():
            file.close()
            sizes[name] = int(file.size_bytes)
        return sizes
