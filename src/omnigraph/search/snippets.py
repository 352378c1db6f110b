"""Snippets of a text: the part with most words of a query, which are highlighted."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.budget.deadline import check_deadline
from omnigraph.lang import ir
from omnigraph.search.analyzer import Analyzer
from omnigraph.search.text_query import Phrase, Prefix, Terms, parse_query, scored_leaves
from omnigraph.search.words import UNSPACED

WORDS = 24
"""The words of a snippet, at most. A character of a script without spaces counts as a word."""
MARK = "**"
ELLIPSIS = "…"

# Texts between two checks of the deadline.
_TEXTS = 256


@dataclass(frozen=True, slots=True)
class Highlighter:
    """Finds the words of one query in texts.

    >>> from omnigraph.search.analyzer import SIMPLE
    >>> Highlighter.of("gra* wine", SIMPLE).snippet("White wine, from white grapes.")
    'White **wine**, from white **grapes**.'
    """

    analyzer: Analyzer
    terms: frozenset[str]
    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, query: str, analyzer: Analyzer) -> Highlighter:
        """Return the highlighter of the words that a query looks for, which are not those behind NOT."""
        terms: set[str] = set()
        prefixes: set[str] = set()
        for leaf in scored_leaves(parse_query(query, [analyzer])):
            match leaf.parts[0]:
                case Terms(found):
                    terms.update(found)
                case Phrase(terms=placed):
                    terms.update(term for term, _ in placed)
                case Prefix(prefix, found):
                    terms.update(found)
                    prefixes.add(prefix)
        return cls(analyzer, frozenset(terms), tuple(sorted(prefixes)))

    def snippets(self, texts: Iterable[str | None]) -> pa.Array:
        """Return the snippet of each text, null where there is no text."""
        found: list[str | None] = []
        for number, text in enumerate(texts):
            if number % _TEXTS == 0:
                check_deadline()
            found.append(None if text is None else self.snippet(text))
        return pa.array(found, pa.string())

    def snippet(self, text: str) -> str:
        """Return the first part of the text with the most different words of the query, then with most of them."""
        spans = _word_spans(text)
        hits = self._hits(text, spans)
        first = _best_window(hits)
        last = min(first + WORDS, len(spans))
        start = spans[first][0] if first else 0
        stop = spans[last - 1][1] if last < len(spans) else len(text)
        parts = [ELLIPSIS if start else ""]
        done = start
        for (begin, end), hit in zip(spans[first:last], hits[first:last], strict=True):
            if hit:
                parts += [text[done:begin], MARK, text[begin:end], MARK]
                done = end
        parts += [text[done:stop], ELLIPSIS if stop < len(text) else ""]
        # Neighbours in a run without spaces are one highlight.
        return "".join(parts).replace(MARK + MARK, "")

    def _hits(self, text: str, spans: Sequence[tuple[int, int]]) -> list[frozenset[str]]:
        """Return the terms of the query that each word has; a character has those of the pairs around it."""
        hits: list[frozenset[str]] = []
        for place, (begin, end) in enumerate(spans):
            found = self._terms_of(text[begin:end])
            if UNSPACED.match(text[begin]):
                if place and spans[place - 1][1] == begin:
                    found |= self._terms_of(text[spans[place - 1][0] : end])
                if place + 1 < len(spans) and spans[place + 1][0] == end:
                    found |= self._terms_of(text[begin : spans[place + 1][1]])
            hits.append(found)
        return hits

    def _terms_of(self, word: str) -> frozenset[str]:
        tokens = set(self.analyzer.tokens(word))
        found = tokens & self.terms
        for prefix in self.prefixes:
            found |= {prefix for token in tokens if token.startswith(prefix)}
        return frozenset(found)


def _word_spans(text: str) -> list[tuple[int, int]]:
    """Return where the words of a text are; those of scripts without spaces are single characters."""
    spans: list[tuple[int, int]] = []
    begin: int | None = None
    for place, char in enumerate(text):
        kind = unicodedata.category(char)[0]
        if kind == "M" and begin is not None:
            continue
        unspaced = kind in "LN" and UNSPACED.match(char) is not None
        if begin is not None and (kind not in "LN" or unspaced or UNSPACED.match(text[begin])):
            spans.append((begin, place))
            begin = None
        if begin is None and kind in "LN":
            begin = place
    if begin is not None:
        spans.append((begin, len(text)))
    return spans


def _best_window(hits: Sequence[frozenset[str]]) -> int:
    """Return where the window with most different hits, then most hits, starts; a window starts before its hits."""
    counts: dict[str, int] = {}
    best, score, total = 0, (0, 0), 0
    for place, hit in enumerate(hits):
        for term in hit:
            counts[term] = counts.get(term, 0) + 1
        total += len(hit)
        if place >= WORDS:
            for term in hits[place - WORDS]:
                counts[term] -= 1
                if not counts[term]:
                    del counts[term]
            total -= len(hits[place - WORDS])
        if (len(counts), total) > score:
            score, best = (len(counts), total), max(0, place - WORDS + 1)
    return best


def text_snippets(call: ir.Snippet, texts: pa.Array | pa.ChunkedArray, query: str | None) -> pa.Array:
    """Return the value of ``snippet`` for each text, null where text or query is null."""
    if query is None:
        return pa.nulls(len(texts), pa.string())
    return Highlighter.of(query, Analyzer(call.analysis)).snippets(texts.to_pylist())
