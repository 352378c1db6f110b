"""Search and ranking by the book: tokens, edits, BM25 and distances, one row at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, TypeAlias
from unicodedata import normalize

import snowballstemmer

from omnigraph.lang.schema import SIMPLE_TEXT, TextAnalysis

K1 = 1.2
B = 0.75

# The analysis and the boost of a searched property.
Field: TypeAlias = tuple[TextAnalysis, float]
# ("any", trees), ("all", trees), ("not", [tree]), or ("word" or "prefix" or "phrase", words, boost).
Tree: TypeAlias = Any

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


def bm25(
    texts: Sequence[str | None], query: str, columns: Sequence[Sequence[str]], fields: Sequence[Field]
) -> float:
    """The score of a row with these texts, one for each field, among all texts of each column; no word is 0.

    What a query says twice counts once.

    >>> column = ["a b", "c"]
    >>> bm25(["a b"], "z", [column], [(SIMPLE_TEXT, 1.0)])
    0.0
    >>> bm25(["c"], "c", [column], [(SIMPLE_TEXT, 2.0)]) == 2 * bm25(["c"], "c c", [column], [(SIMPLE_TEXT, 1.0)])
    True
    """
    tree = parse(query)
    if not matches_query(texts, tree, [analysis for analysis, _ in fields]):
        return 0.0
    score = 0.0
    for text, column, (analysis, field_boost) in zip(texts, columns, fields, strict=True):
        if text is None:
            continue
        documents = [analyzed(item, analysis) for item in column]
        average = sum(map(len, documents)) / len(documents)
        document = analyzed(text, analysis)
        boosts: dict[tuple[str, ...], float] = {}
        for kind, words, boost in _wanted(tree):
            found = analyzed(words, analysis)
            if kind == "prefix":
                boosts["*", analyzed_prefix(words, analysis)] = boost
            elif kind == "phrase" and len(found) > 1:
                boosts[tuple(found)] = max(boost, boosts.get(tuple(found), 0))
            else:
                for term in found:
                    boosts[term,] = max(boost, boosts.get((term,), 0))
        for key, boost in boosts.items():
            if key[0] == "*":
                score += boost * field_boost * any(token.startswith(key[1]) for token in document)
                continue
            frequency = _runs(document, key)
            if frequency:
                rarity = 0.0
                for term in key:
                    holding = sum(term in item for item in documents)
                    rarity += math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
                length = 1 - B + B * len(document) / average
                score += boost * field_boost * rarity * frequency * (K1 + 1) / (frequency + K1 * length)
    return score


def _runs(document: Sequence[str], words: Sequence[str]) -> int:
    """How often words stand behind each other. The generated phrases have no stop words."""
    return sum(tuple(document[place : place + len(words)]) == tuple(words) for place in range(len(document)))


def analyzed_prefix(word: str, analysis: TextAnalysis) -> str:
    """The beginning of a word as its tokens have it: never a stem."""
    return "".join(analyzed(word, TextAnalysis(ascii_fold=analysis.ascii_fold)))


def parse(query: str) -> Tree:
    """A query as a tree: precedence by splitting at the loosest operator first.

    >>> parse('a OR b AND "c d"')
    ('any', [('any', [('word', 'a', 1.0), ('all', [('word', 'b', 1.0), ('phrase', 'c d', 1.0)])])])
    """
    return _list(re.findall(r'"[^"]*"(?:\^[\d.]+)?|\(|\)|[^\s"()]+', query))


def _list(pieces: list[str]) -> Tree:
    items: list[list[str]] = []
    depth, joined = 0, False
    for piece in pieces:
        if not items or (depth == 0 and piece not in ("AND", "OR") and not joined):
            items.append([])
        items[-1].append(piece)
        depth += (piece == "(") - (piece == ")")
        joined = piece in ("AND", "OR", "NOT")
    trees = [_operators(item, ["OR", "AND"]) for item in items]
    unwanted = [tree for tree in trees if tree[0] == "not"]
    wanted = ("any", [tree for tree in trees if tree[0] != "not"])
    return ("all", [wanted, *unwanted] if wanted[1] else unwanted) if unwanted else wanted


def _operators(pieces: list[str], operators: list[str]) -> Tree:
    if operators:
        parts: list[list[str]] = [[]]
        depth = 0
        for piece in pieces:
            depth += (piece == "(") - (piece == ")")
            if piece == operators[0] and not depth:
                parts.append([])
            else:
                parts[-1].append(piece)
        trees = [_operators(part, operators[1:]) for part in parts]
        return trees[0] if len(trees) == 1 else ("any" if operators[0] == "OR" else "all", trees)
    if pieces[0] == "NOT":
        return ("not", [_operators(pieces[1:], [])])
    if pieces[0] == "(":
        return _list(pieces[1:-1])
    word, _, boost = pieces[0].partition("^")
    if word.startswith('"'):
        return ("phrase", word.strip('"'), float(boost or 1))
    return ("prefix" if word.endswith("*") else "word", word.rstrip("*"), float(boost or 1))


def _wanted(tree: Tree) -> list[tuple[str, str, float]]:
    if tree[0] == "not":
        return []
    if tree[0] in ("any", "all"):
        return [leaf for item in tree[1] for leaf in _wanted(item)]
    return [tree]


def matches_query(texts: Sequence[str | None], tree: Tree, analyses: Sequence[TextAnalysis]) -> bool:
    """Whether a row with these texts, one for each field, matches a query."""
    return bool(_truth(texts, tree, analyses))


def _truth(texts: Sequence[str | None], tree: Tree, analyses: Sequence[TextAnalysis]) -> bool | None:
    """None is for a part of the query without tokens, which does not count."""
    if tree[0] in ("any", "all"):
        found = [_truth(texts, item, analyses) for item in tree[1]]
        known = [item for item in found if item is not None]
        return (any(known) if tree[0] == "any" else all(known)) if known else None
    if tree[0] == "not":
        inner = _truth(texts, tree[1][0], analyses)
        return None if inner is None else not inner
    kind, words, _ = tree
    found = [
        None if not analyzed(words, analysis) else text is not None and _has(kind, words, text, analysis)
        for text, analysis in zip(texts, analyses, strict=True)
    ]
    return None if all(item is None for item in found) else any(found)


def _has(kind: str, words: str, text: str, analysis: TextAnalysis) -> bool:
    document, wanted = analyzed(text, analysis), analyzed(words, analysis)
    if kind == "phrase":
        return _runs(document, wanted) > 0
    prefix = analyzed_prefix(words, analysis)
    return any(token in wanted or (kind == "prefix" and token.startswith(prefix)) for token in document)


def any_word(texts: Sequence[str | None], query: str, analyses: Sequence[TextAnalysis]) -> bool:
    """Whether a text has any token of the query, which has no operators."""
    return matches_query(texts, ("word", query, 1.0), analyses)


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
