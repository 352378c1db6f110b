"""Words near another word by edit distance, for all terms of a dictionary at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.budget.deadline import check_deadline
from omnigraph.search.words import UNSPACED

# Cells of edit distance tables in memory at a time.
_TABLE_CELLS = 1 << 20


def near_terms(terms: pa.Array, word: str, max_edits: int) -> list[int]:
    """Return the numbers of the terms that are words within `max_edits` edits of the word.

    >>> near_terms(pa.array(["blue", "red", "reed", "手机"]), "rad", 1)
    [1]
    """
    lengths = pc.utf8_length(terms).to_numpy().astype(np.int64)
    near: list[int] = []
    check_deadline()
    for length in np.unique(lengths[np.abs(lengths - len(word)) <= max_edits]).tolist():
        numbers = np.flatnonzero(lengths == length)
        step = max(1, _TABLE_CELLS // (length + 1))
        for start in range(0, len(numbers), step):
            some = numbers[start : start + step]
            spelled = terms.take(pa.array(some))
            codes = np.frombuffer("".join(spelled.to_pylist()).encode("utf-32-le"), "<u4")
            edits = min(max_edits, max(length, len(word)))
            close = some[_within(codes.reshape(-1, length), word, edits)].tolist()
            near += [number for number in close if not UNSPACED.match(terms[number].as_py())]
    return near


def _within(codes: npt.NDArray[np.uint32], word: str, max_edits: int) -> npt.NDArray[np.bool_]:
    """Return for each row of code points whether it is within `max_edits` edits of the word.

    The usual dynamic programming table, one row per prefix of the word, for all candidates at once. Cells further
    than `max_edits` from the diagonal are never filled, because they cannot be part of the result.
    """
    count, length = codes.shape
    columns = np.ascontiguousarray(codes.T)
    too_far = max_edits + 1
    above = np.full((length + 1, count), too_far, np.int64)
    above[: max_edits + 1] = np.arange(min(length, max_edits) + 1)[:, None]
    here = np.full_like(above, too_far)
    for done, char in enumerate(word, start=1):
        check_deadline()
        low, high = max(done - max_edits, 1), min(done + max_edits, length)
        # The left edge of the table, or a cell outside the band, which is too far in any case.
        here[low - 1] = done
        for j in range(low, high + 1):
            replaced = above[j - 1] + (columns[j - 1] != ord(char))
            here[j] = np.minimum(replaced, np.minimum(above[j], here[j - 1]) + 1)
        above, here = here, above
    return above[length] <= max_edits
