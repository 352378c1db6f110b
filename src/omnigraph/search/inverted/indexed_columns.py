"""The full-text index of a column at one version: which segments it has, and what is indexed in memory.

A row that no usable segment covers is analyzed when the column is first searched, so it is found in the commit that
wrote it. What memory has of the version before is extended.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version

from omnigraph.budget.deadline import check_deadline
from omnigraph.engine.memory.cached_table import CachedTable
from omnigraph.engine.memory.row_numbers import NumberedFragment
from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.lang.schema import TextAnalysis
from omnigraph.search.analyzer import Analyzer
from omnigraph.search.inverted.index_parts import MemoryPart, StoredPart
from omnigraph.search.inverted.table_text_index import PlacedPart, TableTextIndex
from omnigraph.store.tables.index_segments import index_kind
from omnigraph.store.tables.table_indexes import list_segments
from omnigraph.store.text.text_index_names import TextIndexMethod
from omnigraph.store.text.text_segment_reader import TextSegment

_TOKENIZER_REVISION = 1
"""The revision of `words.py` and `analyzer.py`. Another one makes stored indexes unused until `optimize`."""


@dataclass(frozen=True, slots=True)
class TextSegmentFiles:
    """The segments of an index of a column in one version: the name of each, and the fragments that it covers."""

    items: tuple[tuple[str, frozenset[int]], ...]

    @property
    def nbytes(self) -> int:
        """Estimated bytes."""
        return 64 + sum(128 + 32 * len(fragments) for _, fragments in self.items)


def text_index_method(analysis: TextAnalysis, *, with_positions: bool = False) -> TextIndexMethod:
    """Return the method of an index that this process builds. Tokens depend on its Unicode data and stemmer."""
    return TextIndexMethod.of(analysis, _tokenizer(analysis.language), with_positions=with_positions)


@lru_cache
def _tokenizer(language: str | None) -> str:
    stemmer = "" if language is None else version("snowballstemmer")
    return f"{_TOKENIZER_REVISION} {unicodedata.unidata_version} {stemmer}"


def table_text_index(table: CachedTable, name: str, analyzer: Analyzer) -> TableTextIndex:
    """Return the index of a text column. Segments are opened, and all other rows analyzed."""
    numbers, cache = table.numbers, table.cache
    physical = table.layout.physical(name)
    family: Hashable = ("text", table.pin.path, physical, analyzer.analysis, numbers.lineage)
    key = (numbers.serial, table.pin.version, _is_intact(table))

    def build() -> TableTextIndex:
        parts, others = _stored_parts(table, physical, analyzer)
        files = tuple(item.fragment.files for item in others)
        known: list[TableTextIndex] = cache.versions(family)
        donors = [
            item.memory
            for item in known
            if numbers.continues(item.numbers) and files[: len(item.memory.files)] == item.memory.files
        ]
        memory = max(donors, key=lambda item: len(item.files), default=MemoryPart.empty(analyzer))
        for item in others[len(memory.files) :]:
            check_deadline()
            memory = memory.extended(item.fragment.id, item.fragment.files, table.fragment_values(name, item))
        return TableTextIndex(numbers, [*parts, PlacedPart.of(memory, others)], memory)

    return cache.get_or_build(family, key, build)


@dataclass(frozen=True, slots=True)
class TextIndexCoverage:
    """How the words of a column are searched, and the number of rows that its stored index covers."""

    reason: str
    rows: int = 0


def text_index_coverage(table: CachedTable, name: str, analysis: TextAnalysis) -> TextIndexCoverage:
    """Return how the words of a column are searched. No file of an index is read."""
    if not _is_intact(table):
        return TextIndexCoverage("an index of the table is damaged")
    found = _segments(table, table.layout.physical(name), analysis).items
    if not found:
        return TextIndexCoverage("the property has no stored index of this analysis")
    covered = {id_ for _, fragments in found for id_ in fragments}
    rows = sum(item.rows for item in table.fragments() if item.id in covered)
    count = f"{len(found)} {'segment' if len(found) == 1 else 'segments'}"
    return TextIndexCoverage(f"stored index of {count}", rows)


def report_index_damage(table: CachedTable, error: OmnigraphError) -> bool:
    """Return whether an error is about an index file; if so, indexes of the version are not used any more."""
    if not str(error.details.get("file", "")).startswith("_indices/"):
        return False
    if isinstance(error, StorageError) and error.is_refusal:
        return False
    problem = str(error.details.get("cause") or error.message).splitlines()[0][:200]
    table.snapshot.tables.indexes.add(table.pin.path, table.pin.version, problem)
    return True


def _is_intact(table: CachedTable) -> bool:
    return table.snapshot.tables.indexes.is_intact(table.pin.path, table.pin.version)


def _segments(table: CachedTable, physical: str, analysis: TextAnalysis) -> TextSegmentFiles:
    digest = text_index_method(analysis).digest

    def find() -> TextSegmentFiles:
        found = []
        with table.snapshot.reading():
            for segment in list_segments(table.snapshot.tables, table.pin):
                if segment.index.startswith(f"{physical}_"):
                    method = TextIndexMethod.parse(index_kind(physical, segment.index))
                    if method is not None and method.digest == digest:
                        found.append((segment.handle.uuid, segment.fragments))
        return TextSegmentFiles(tuple(found))

    return table.cache.get_or_build(
        ("text segments", table.pin.path, physical, digest), table.pin.version, find
    )


def _stored_parts(
    table: CachedTable, physical: str, analyzer: Analyzer
) -> tuple[list[PlacedPart], list[NumberedFragment]]:
    """Return the usable segments, and the fragments that none of them covers."""
    remaining = {item.fragment.id: item for item in table.numbers.items}
    parts = []
    found = _segments(table, physical, analyzer.analysis).items if _is_intact(table) else ()
    for segment_id, fragments in found:
        try:
            segment = _open_segment(table, segment_id)
        except (NotFound, StorageError) as error:
            if not report_index_damage(table, error):
                raise
            return [], list(table.numbers.items)
        items: list[NumberedFragment | None] = []
        for covered in segment.header.fragments:
            item = remaining.get(covered.id) if covered.id in fragments else None
            if item is not None and item.fragment.physical_rows == covered.rows:
                del remaining[covered.id]
                items.append(item)
            else:
                items.append(None)
        parts.append(PlacedPart.of(StoredPart(segment, analyzer), items))
    return parts, list(remaining.values())


def _open_segment(table: CachedTable, segment_id: str) -> TextSegment:
    root = table.snapshot.tables.root
    return table.cache.get_or_build(
        ("text segment", table.pin.path), segment_id, lambda: TextSegment(root, table.pin.path, segment_id)
    )
