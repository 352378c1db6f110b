"""Names of stored full-text indexes, and how a version of a table states their segments.

The files of a text index have a format of this package: Lance analyzes texts in another way and scores in single
precision. Lance knows the index as an inverted index, which no filter uses, and its files are in the directory of
its segment. Garbage collection, backups and digests therefore treat it like every other index.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import lance
from lance.bitmap import Bitmap
from lance.dataset import Index, IndexFile

from omnigraph.lang.schema import TextAnalysis

_DETAILS: Final = ("/lance.table.InvertedIndexDetails", b"")
_PREFIX: Final = "TEXT_"
_WITH_POSITIONS: Final = "_P"
_DIGEST_LENGTH: Final = 8


@dataclass(frozen=True, slots=True)
class TextIndexMethod:
    """What makes the tokens of an index: the analysis and everything else that tokens depend on.

    `name` identifies it and is part of the name of the index, where a scalar index has its kind.

    >>> method = TextIndexMethod.of(TextAnalysis(), "words 1", with_positions=True)
    >>> method.name == f"TEXT_{method.digest}_P", TextIndexMethod.parse(method.name) == method
    (True, True)
    >>> TextIndexMethod.parse("BTREE") is None
    True
    """

    digest: str
    with_positions: bool = False

    @classmethod
    def of(cls, analysis: TextAnalysis, tokenizer: str, *, with_positions: bool) -> TextIndexMethod:
        """Return the method of an analysis. `tokenizer` identifies the rules and tables that split texts."""
        options = [
            analysis.language,
            sorted(analysis.stop_words),
            analysis.ascii_fold,
            analysis.ngram,
            tokenizer,
        ]
        digest = hashlib.sha256(json.dumps(options).encode()).hexdigest()
        return cls(digest[:_DIGEST_LENGTH].upper(), with_positions)

    @classmethod
    def parse(cls, name: str) -> TextIndexMethod | None:
        """Return the method with a name; None if it is not that of an index of texts."""
        digest = name.upper().removeprefix(_PREFIX)
        if digest == name.upper():
            return None
        return cls(digest.removesuffix(_WITH_POSITIONS), digest.endswith(_WITH_POSITIONS))

    @property
    def name(self) -> str:
        """The digest, and whether the index has positions."""
        return f"{_PREFIX}{self.digest}{_WITH_POSITIONS if self.with_positions else ''}"


def is_text_index(column: str, name: str) -> bool:
    """Return whether the index of a column with this name is one of texts.

    >>> is_text_index("body_3", "body_3_text_0a1b2c3d_p"), is_text_index("text_1", "text_1_btree")
    (True, False)
    """
    return TextIndexMethod.parse(name.removeprefix(f"{column}_")) is not None


def new_segment_id() -> str:
    """Return the name of the directory of a new segment."""
    return str(uuid4())


def describe_segment(
    dataset: lance.LanceDataset,
    column: str,
    name: str,
    segment_id: str,
    fragments: Iterable[int],
    sizes: Mapping[str, int],
) -> Any:
    """Return the uncommitted segment whose files were written, as Lance describes one."""
    field = next(item for item in dataset.lance_schema.fields() if item.name() == column)
    return Index(
        uuid=segment_id,
        name=name,
        fields=[field.id()],
        dataset_version=int(dataset.version),
        fragment_ids=Bitmap(fragments),
        index_version=0,
        files=[IndexFile(file, size) for file, size in sizes.items()],
        index_details=_DETAILS,
    )
