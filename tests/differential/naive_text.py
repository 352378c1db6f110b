"""Search and ranking by the book: tokens, edits, BM25 and distances, one row at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from unicodedata import normalize

import snowballstemmer

from omnigraph.lang.schema import SIMPLE_TEXT, TextAnalysis

K1 = 1.2
B = 0.75

_TOKEN = re.compile(r"[^\W_]+")
# Scripts that are written without spaces, as far as the generated texts have any.
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


def tokens(text: str) -> list[str]:
    """The runs of letters and digits, however their case and their accents are written.

    >>> tokens("Graph-databases, 2nd_edition: E\u0301!")
    ['graph', 'databases', '2nd', 'edition', 'é']
    """
    return _TOKEN.findall(normalize("NFKC", normalize("NFKC", text).casefold()))


def analyzed(text: str, analysis: TextAnalysis) -> list[str]:
    """The tokens as the schema wants them: no stop words, no accents, stems.

    >>> analyzed("The cafés are closing", TextAnalysis("english", ("the", "are"), ascii_fold=True))
    ['cafe', 'close']
    """
    if analysis == SIMPLE_TEXT:
        return tokens(text)
    assert analysis.language in (None, "english")
    assert not analysis.ngram
    found = [token for token in tokens(text) if token not in analysis.stop_words]
    if analysis.ascii_fold:
        found = [
            "".join(char for char in normalize("NFD", token) if char < "\u0300" or char > "\u036f")
            for token in found
        ]
    stem = snowballstemmer.stemmer("english").stemWord
    return [stem(token) for token in found] if analysis.language else found


def any_token(text: str, query: str, analysis: TextAnalysis = SIMPLE_TEXT) -> bool:
    """Whether any token of the query is one of the text."""
    return bool(set(analyzed(text, analysis)) & set(analyzed(query, analysis)))


def any_similar_token(text: str, query: str, max_edits: int, analysis: TextAnalysis = SIMPLE_TEXT) -> bool:
    """Whether any token of the query is within so many edits of one of the text.

    What is written without spaces is forgiven nothing: two edits would turn any pair of characters into any other.

    >>> any_similar_token("Ann", "a", 2), any_similar_token("a", "日本", 2), any_similar_token("日本", "日本", 0)
    (True, False, True)
    """
    return any(
        left == right
        if _UNSPACED.search(left) or _UNSPACED.search(right)
        else edits(left, right) <= max_edits
        for left in analyzed(text, analysis)
        for right in analyzed(query, analysis)
    )


def edits(left: str, right: str) -> int:
    """How many insertions, deletions and substitutions of characters lead from one to the other.

    >>> edits("graph", "grph"), edits("kitten", "sitting"), edits("ab", "ba"), edits("", "abc")
    (1, 3, 2, 3)
    """
    before = list(range(len(right) + 1))
    for row, one in enumerate(left, start=1):
        after = [row]
        for column, other in enumerate(right, start=1):
            after.append(
                min(before[column] + 1, after[column - 1] + 1, before[column - 1] + (one != other)),
            )
        before = after
    return before[-1]


def bm25(text: str, query: str, texts: Sequence[str], analysis: TextAnalysis = SIMPLE_TEXT) -> float:
    """The score of a text that is one of `texts`; a token that the query repeats counts once, no token is 0.

    >>> bm25("a b", "z", ["a b", "c"]), bm25("a", "a", ["a", "b"]) == bm25("a", "a a", ["a", "b"])
    (0.0, True)
    """
    documents = [analyzed(item, analysis) for item in texts]
    average = sum(map(len, documents)) / len(documents)
    document = analyzed(text, analysis)
    score = 0.0
    for term in dict.fromkeys(analyzed(query, analysis)):
        frequency = document.count(term)
        if frequency:
            holding = sum(term in item for item in documents)
            rarity = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
            length = 1 - B + B * len(document) / average
            score += rarity * frequency * (K1 + 1) / (frequency + K1 * length)
    return score


def vector_distance(left: Sequence[float], right: Sequence[float], metric: str = "l2") -> float:
    """The square of the Euclidean distance, 1 - cosine, or 1 - dot product.

    >>> vector_distance((0.0, 1.0), (3.0, 5.0)), vector_distance((0.0, 2.0), (3.0, 4.0), "cosine")
    (25.0, 0.19999999999999996)
    """
    if metric != "l2":
        product = math.fsum(one * other for one, other in zip(left, right, strict=True))
        lengths = math.hypot(*left) * math.hypot(*right)
        if metric == "dot":
            return 1 - product
        return 1 - product / lengths if lengths else math.nan
    return math.fsum((one - other) ** 2 for one, other in zip(left, right, strict=True))


def mock_embedding(text: str, dim: int) -> tuple[float, ...]:
    """The vector of the mock provider: FNV-1a of the bytes seeds xorshift64, its steps give a unit vector.

    >>> [round(number, 3) for number in mock_embedding("hello", 3)]
    [-0.423, 0.689, 0.589]
    """
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    numbers = []
    for _ in range(dim):
        state ^= state << 13 & (2**64 - 1)
        state ^= state >> 7
        state ^= state << 17 & (2**64 - 1)
        numbers.append(state / (2**64 - 1) * 2 - 1)
    length = math.hypot(*numbers)
    return tuple(number / length for number in numbers)
