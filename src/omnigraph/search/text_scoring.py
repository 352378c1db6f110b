"""Evaluate a full-text query over the indexes of one or more fields: which rows match, and their BM25 scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.budget.deadline import check_deadline
from omnigraph.search.analyzer import Analyzer
from omnigraph.search.text_index import K1, B, Mask, Ordinals, Scores, Statistics, TextIndex
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
# What adds to a score: the kind of part, its tokens, and the number of the field. Scores add up in this order.
_Key: TypeAlias = tuple[int, str | tuple[tuple[str, int], ...], int]


class SearchedField(Protocol):
    """A text column with its index."""

    @property
    def index(self) -> TextIndex:
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
        self._phrases: dict[tuple[int, Phrase], tuple[Ordinals, Scores]] = {}

    def matches(self) -> Mask:
        """Return for each row whether it matches."""
        if self._query is None:
            return np.zeros(self._rows, np.bool_)
        return self._mask(self._query)

    def statistics(self) -> list[Statistics]:
        """Return the statistics of the tokens in the indexes of the fields."""
        return [
            field.index.statistics(score_terms(self._query, number))
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
        scores = np.zeros(self._rows)
        for key in sorted(boosts):
            check_deadline()
            self._add(scores, key, boosts[key], statistics[key[2]])
        if not is_any_of_terms(self._query):
            scores[~self.matches()] = 0.0
        ordinals = np.flatnonzero(scores).astype(np.int64)
        return ordinals, scores[ordinals]

    def _add(self, scores: Scores, key: _Key, boost: float, statistics: Statistics) -> None:
        kind, tokens, number = key
        field = self._fields[number]
        boost *= field.boost
        if kind == _PREFIX:
            scores[field.index.matches_prefix(str(tokens))] += boost
            return
        if isinstance(tokens, str):
            rows, counts = field.index.occurrences(tokens)
            rarity = _rarity(statistics, tokens)
        else:
            rows, counts = self._phrase(number, Phrase(tokens))
            rarity = sum(_rarity(statistics, term) for term, _ in tokens)
        lengths = field.index.lengths(rows)
        norms = K1 * (1 - B + B * (lengths * statistics.texts / statistics.tokens)) if len(rows) else lengths
        scores[rows] += rarity * (K1 + 1) * boost * counts / (counts + norms)

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
        index = self._fields[number].index
        match part:
            case Terms(terms, needs_all):
                return index.matches_all(terms) if needs_all else index.matches_terms(terms)
            case Prefix(prefix, terms):
                return index.matches_prefix(prefix) | index.matches_terms(terms)
            case Phrase():
                found = np.zeros(self._rows, np.bool_)
                found[self._phrase(number, part)[0]] = True
                return found

    def _phrase(self, number: int, phrase: Phrase) -> tuple[Ordinals, Scores]:
        """Return the rows with a phrase and how often it occurs. The texts with all its tokens are read again."""
        known = self._phrases.get((number, phrase))
        if known is None:
            field = self._fields[number]
            candidates = np.flatnonzero(field.index.matches_all([term for term, _ in phrase.terms]))
            counts = np.zeros(len(candidates))
            for start in range(0, len(candidates), _TEXTS):
                check_deadline()
                some = candidates[start : start + _TEXTS]
                for place, text in enumerate(field.texts(some).to_pylist(), start):
                    counts[place] = count_phrase(text, phrase, field.analyzer)
            known = self._phrases[number, phrase] = (candidates[counts > 0], counts[counts > 0])
        return known


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
