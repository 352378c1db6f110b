"""Evaluate a full-text query over the indexes of one or more fields: which rows match, and their BM25 scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.budget.deadline import check_deadline
from omnigraph.search.analyzer import Analyzer
from omnigraph.search.text_index import (
    K1,
    B,
    Mask,
    Occurrences,
    Ordinals,
    Scores,
    SearchedIndex,
    Statistics,
)
from omnigraph.search.text_query import (
    AllOf,
    AnyOf,
    Leaf,
    Node,
    Part,
    Phrase,
    Prefix,
    Terms,
    Without,
    is_any_of_terms,
    score_terms,
    scored_leaves,
)

# Texts that are read and tokenized at a time to verify a phrase.
_TEXTS = 1 << 12
# Scores are summed over all rows of a table if a query finds more than this part of them.
_DENSE_SHARE = 16
# What adds to a score: the kind of part, its tokens, and the number of the field. Scores add up in this order.
_Key: TypeAlias = tuple[int, str | tuple[tuple[str, int], ...], int]


class SearchedField(Protocol):
    """A text column with its index."""

    @property
    def index(self) -> SearchedIndex:
        """The index of all rows."""

    @property
    def analyzer(self) -> Analyzer:
        """The analysis of the texts."""

    @property
    def boost(self) -> float:
        """The factor of the scores of this field."""

    def texts(self, ordinals: Ordinals) -> pa.Array | pa.ChunkedArray:
        """Return the texts of some rows."""


class TextEvaluation:
    """One query over some fields of the same rows. Rows without any text match nothing."""

    def __init__(self, query: Node | None, fields: Sequence[SearchedField]) -> None:
        self._query = query
        self._fields = fields
        self._rows = len(fields[0].index)
        # A token is read from the index once: for its rows, their number and their scores.
        self._tokens: dict[tuple[int, str], Occurrences] = {}
        self._phrases: dict[tuple[int, Phrase], Occurrences] = {}

    def matches(self) -> Mask:
        """Return for each row whether it matches."""
        if self._query is None:
            return np.zeros(self._rows, np.bool_)
        return self._mask(self._query)

    def statistics(self) -> list[Statistics]:
        """Return the statistics of the tokens in the indexes of the fields."""
        return [
            Statistics(
                *field.index.totals(),
                {
                    term: len(self._occurrences(number, term).rows)
                    for term in score_terms(self._query, number)
                },
            )
            for number, field in enumerate(self._fields)
        ]

    def scores(self, statistics: Sequence[Statistics]) -> tuple[Ordinals, Scores]:
        """Return the matching rows with a word of the query, ascending, and their BM25 scores.

        The score of a phrase is that of a token which is as rare as its tokens together. Every word that a prefix
        finds counts its boost. The scores of fields are added.
        """
        boosts: dict[_Key, float] = {}
        for leaf in scored_leaves(self._query):
            for number, part in enumerate(leaf.parts):
                for key in _keys(part, number):
                    boosts[key] = max(leaf.boost, boosts.get(key, 0.0))
        added = []
        for key in sorted(boosts):
            check_deadline()
            added.append(self._contribution(key, boosts[key], statistics[key[2]]))
        ordinals, scores = _sum_by_row(added, self._rows)
        if not is_any_of_terms(self._query):
            matched = self.matches()[ordinals]
            ordinals, scores = ordinals[matched], scores[matched]
        return ordinals[scores != 0], scores[scores != 0]

    def _contribution(
        self, key: _Key, boost: float, statistics: Statistics
    ) -> tuple[Ordinals, Scores | float]:
        """Return rows, and what a word adds to the score of each, or of all of them."""
        kind, tokens, number = key
        field = self._fields[number]
        boost *= field.boost
        if kind == _PREFIX:
            return field.index.rows_with_prefix(str(tokens)), boost
        if isinstance(tokens, str):
            found = self._occurrences(number, tokens)
            rarity = _rarity(statistics, tokens)
        else:
            found = self._phrase(number, Phrase(tokens))
            rarity = sum(_rarity(statistics, term) for term, _ in tokens)
        counts, lengths = found.counts, found.lengths
        norms = (
            K1 * (1 - B + B * (lengths * statistics.texts / statistics.tokens)) if len(counts) else lengths
        )
        return found.rows, rarity * (K1 + 1) * boost * counts / (counts + norms)

    def _occurrences(self, number: int, term: str) -> Occurrences:
        found = self._tokens.get((number, term))
        if found is None:
            found = self._tokens[number, term] = self._fields[number].index.occurrences(term)
        return found

    def _mask(self, node: Node) -> Mask:
        check_deadline()
        match node:
            case Leaf():
                found = np.zeros(self._rows, np.bool_)
                for number, part in enumerate(node.parts):
                    if part is not None:
                        found |= self._part(number, part)
                return found
            case AnyOf():
                found = self._mask(node.items[0])
                for item in node.items[1:]:
                    found |= self._mask(item)
                return found
            case AllOf():
                found = self._mask(node.items[0])
                for item in node.items[1:]:
                    found &= self._mask(item)
                return found
            case Without():
                return ~self._mask(node.item)

    def _part(self, number: int, part: Part) -> Mask:
        found = np.zeros(self._rows, np.bool_)
        match part:
            case Terms(terms, needs_all):
                rows = [self._occurrences(number, term).rows for term in terms]
                if needs_all:
                    found[reduce(_intersect, rows)] = True
                else:
                    for some in rows:
                        found[some] = True
            case Prefix(prefix, terms):
                found[self._fields[number].index.rows_with_prefix(prefix)] = True
                for term in terms:
                    found[self._occurrences(number, term).rows] = True
            case Phrase():
                found[self._phrase(number, part).rows] = True
        return found

    def _phrase(self, number: int, phrase: Phrase) -> Occurrences:
        """Return the rows with a phrase. Without positions in the index, the texts with all tokens are read."""
        known = self._phrases.get((number, phrase))
        if known is None:
            found, undecided = self._fields[number].index.phrase_occurrences(phrase.terms)
            if len(undecided):
                found = _joined(found, self._verified(number, phrase, undecided))
            known = self._phrases[number, phrase] = found
        return known

    def _verified(self, number: int, phrase: Phrase, candidates: Ordinals) -> Occurrences:
        field = self._fields[number]
        counts = np.zeros(len(candidates))
        for start in range(0, len(candidates), _TEXTS):
            check_deadline()
            some = candidates[start : start + _TEXTS]
            for place, text in enumerate(field.texts(some).to_pylist(), start):
                counts[place] = count_phrase(text, phrase, field.analyzer)
        rows = candidates[counts > 0]
        having = self._occurrences(number, phrase.terms[0][0])
        return Occurrences(rows, counts[counts > 0], having.lengths[np.searchsorted(having.rows, rows)])


def _intersect(first: Ordinals, second: Ordinals) -> Ordinals:
    return np.intersect1d(first, second, assume_unique=True)


def _joined(first: Occurrences, second: Occurrences) -> Occurrences:
    """Return the occurrences in different rows together, in the order of the rows."""
    rows = np.concatenate([first.rows, second.rows])
    order = np.argsort(rows)
    counts = np.concatenate([first.counts, second.counts])
    lengths = np.concatenate([first.lengths, second.lengths])
    return Occurrences(rows[order], counts[order], lengths[order])


def _sum_by_row(added: Sequence[tuple[Ordinals, Scores | float]], size: int) -> tuple[Ordinals, Scores]:
    """Return the rows of all parts, ascending, and the sum of what the parts add to each, in their order."""
    if sum(len(rows) for rows, _ in added) * _DENSE_SHARE < size:
        # Few rows of a large table: no array over all of its rows.
        ordinals = np.unique(np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in added)]))
        scores = np.zeros(len(ordinals))
        for rows, values in added:
            scores[np.searchsorted(ordinals, rows)] += values
        return ordinals, scores
    dense = np.zeros(size)
    for rows, values in added:
        dense[rows] += values
    ordinals = np.flatnonzero(dense).astype(np.int64)
    return ordinals, dense[ordinals]


_TERM, _PHRASE, _PREFIX = range(3)


def _keys(part: Part | None, field: int) -> list[_Key]:
    match part:
        case Terms(terms):
            return [(_TERM, term, field) for term in terms]
        case Phrase(terms=placed):
            return [(_PHRASE, placed, field)]
        case Prefix(prefix):
            return [(_PREFIX, prefix, field)]
        case None:
            return []


def _rarity(statistics: Statistics, term: str) -> float:
    having = statistics.having[term]
    return math.log1p((statistics.texts - having + 0.5) / (having + 0.5))


def count_phrase(text: str, phrase: Phrase, analyzer: Analyzer) -> int:
    """Return how often a phrase occurs in a text.

    >>> from omnigraph.search.analyzer import SIMPLE
    >>> count_phrase("red wine, red red wine", Phrase((("red", 0), ("wine", 1))), SIMPLE)
    2
    """
    places: dict[str, set[int]] = {term: set() for term, _ in phrase.terms}
    for token, place in analyzer.placed_tokens(text):
        if token in places:
            places[token].add(place)
    first, *others = phrase.terms
    return sum(
        all(start + distance in places[term] for term, distance in others) for start in places[first[0]]
    )
