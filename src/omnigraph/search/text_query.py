"""The query language of full-text search.

==================  =====================================================================
``red wine``        any of the words
``red AND wine``    both; binds tighter than OR, which binds tighter than words side by side
``red OR wine``     either
``red NOT wine``    the first without the second; ``NOT wine`` alone: every text without it
``"red wine"``      the words as a phrase, in this order
``gra*``            words that begin with these letters
``(a OR b) AND c``  grouping
``red^2 wine``      the first counts twice in a score; also on a phrase, a prefix or a group
==================  =====================================================================

The operators are upper-case words of their own. All other characters separate words as they do in a text. Words
without tokens, such as stop words, are left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from omnigraph.errors import InvalidInput
from omnigraph.search.analyzer import Analyzer
from omnigraph.search.words import UNSPACED, split_words

MAX_NESTING = 64
"""Parentheses inside each other, at most."""

_NUMBER = r"\d+(?:\.\d+)?"
_PIECE = re.compile(rf'\s+|"[^"]*"(?:\^{_NUMBER})?|"|\(|\)(?:\^{_NUMBER})?|[^\s"()]+')
_BOOST = re.compile(rf"\^({_NUMBER})$")
_MAX_BOOST = 1e6
_OPERATORS = ("AND", "OR", "NOT")


@dataclass(frozen=True, slots=True)
class Terms:
    """A word: a text matches if it has any of the tokens, or all of them if `needs_all`."""

    terms: tuple[str, ...]
    needs_all: bool = False


@dataclass(frozen=True, slots=True)
class Phrase:
    """Tokens at given distances from the first one."""

    terms: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """Tokens that begin with `prefix`, and those of the whole word, which a stemmer may have made shorter."""

    prefix: str
    terms: tuple[str, ...]


Part: TypeAlias = Terms | Phrase | Prefix


@dataclass(frozen=True, slots=True)
class Leaf:
    """A word, phrase or prefix, analyzed for each searched field. Matches if it matches in any field.

    A part is None where the analysis of the field leaves nothing, as for a stop word.
    """

    parts: tuple[Part | None, ...]
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one item matches."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """All items match."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Without:
    """The item does not match."""

    item: Node


Node: TypeAlias = Leaf | AnyOf | AllOf | Without


def parse_query(text: str, analyzers: Sequence[Analyzer]) -> Node | None:
    """Return the parsed query, analyzed for each field, or None if it has no token.

    Raises `InvalidInput` with the position of an error.

    >>> from omnigraph.search.analyzer import SIMPLE
    >>> parse_query("red AND gra*", [SIMPLE])  # doctest: +NORMALIZE_WHITESPACE
    AllOf(items=(Leaf(parts=(Terms(terms=('red',), needs_all=False),), boost=1.0),
                 Leaf(parts=(Prefix(prefix='gra', terms=('gra',)),), boost=1.0)))
    >>> parse_query('a "red wine', [SIMPLE])
    Traceback (most recent call last):
    omnigraph.errors.InvalidInput: search query, character 3: the phrase is not closed
    hint: AND, OR, NOT, quotes, parentheses and ^ are operators
    """
    return _Parser(text, analyzers).parse()


def plain_query(text: str, analyzers: Sequence[Analyzer]) -> Node | None:
    """Return the query for any of the words of a text without operators, or None if it has no token."""
    return _any_of([_word(units, analyzers) for units in split_words(text)])


def scored_leaves(node: Node | None) -> Iterator[Leaf]:
    """Yield the leaves of a query that add to a score, which are not those that must not match."""
    match node:
        case AnyOf() | AllOf():
            for item in node.items:
                yield from scored_leaves(item)
        case Leaf():
            yield node


def score_terms(node: Node | None, field: int) -> tuple[str, ...]:
    """Return the distinct tokens of a field whose statistics a score needs, in code point order."""
    found: set[str] = set()
    for leaf in scored_leaves(node):
        match leaf.parts[field]:
            case Terms(terms):
                found.update(terms)
            case Phrase(terms=placed):
                found.update(term for term, _ in placed)
    return tuple(sorted(found))


def is_any_of_terms(node: Node | None) -> bool:
    """Return whether exactly the texts with a positive score match, because the query asks for any token."""
    items = node.items if isinstance(node, AnyOf) else (node,)
    return all(
        isinstance(item, Leaf)
        and all(part is None or (isinstance(part, Terms) and not part.needs_all) for part in item.parts)
        for item in items
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str
    at: int


class _Parser:
    """Recursive descent over the pieces of a query: parentheses, operators, phrases and other runs."""

    def __init__(self, text: str, analyzers: Sequence[Analyzer]) -> None:
        found = (_Piece(match[0], match.start() + 1) for match in _PIECE.finditer(text))
        self._pieces = [piece for piece in found if not piece.text.isspace()]
        self._end = len(text) + 1
        self._analyzers = analyzers
        self._next = 0
        self._depth = 0

    def parse(self) -> Node | None:
        node = self._list()
        if self._peek() is not None:
            raise self._error("`)` without `(`")
        return node

    def _peek(self) -> str | None:
        return self._pieces[self._next].text if self._next < len(self._pieces) else None

    def _error(self, message: str, at: int | None = None) -> InvalidInput:
        if at is None:
            at = self._pieces[self._next].at if self._next < len(self._pieces) else self._end
        hint = "AND, OR, NOT, quotes, parentheses and ^ are operators"
        return InvalidInput(f"search query, character {at}: {message}", hint=hint)

    def _list(self) -> Node | None:
        wanted: list[Node | None] = []
        unwanted: list[Node | None] = []
        while (piece := self._peek()) is not None and not piece.startswith(")"):
            node = self._alternatives()
            (unwanted if isinstance(node, Without) else wanted).append(node)
        return _all_of([_any_of(wanted), *unwanted])

    def _alternatives(self) -> Node | None:
        items = [self._conjunction()]
        while self._peek() == "OR":
            self._next += 1
            items.append(self._conjunction())
        return _any_of(items)

    def _conjunction(self) -> Node | None:
        items = [self._negatable()]
        while self._peek() == "AND":
            self._next += 1
            items.append(self._negatable())
        return _all_of(items)

    def _negatable(self) -> Node | None:
        negated = False
        while self._peek() == "NOT":
            self._next += 1
            negated = not negated
        item = self._item()
        return Without(item) if negated and item is not None else item

    def _item(self) -> Node | None:
        piece = self._peek()
        if piece is None or piece in _OPERATORS or piece.startswith(")"):
            before = self._pieces[self._next - 1].text if self._next else ""
            if before in _OPERATORS:
                raise self._error(f"`{before}` needs words behind it")
            raise self._error(f"`{piece}` needs words before it")
        at = self._pieces[self._next].at
        self._next += 1
        if piece == '"':
            raise self._error("the phrase is not closed", at)
        if piece == "(":
            return self._group(at)
        boost = self._boost(piece, at)
        bare = _BOOST.sub("", piece)
        if bare.startswith('"'):
            return _leaf([_phrase(bare, analyzer) for analyzer in self._analyzers], boost)
        return self._words(bare, boost)

    def _group(self, at: int) -> Node | None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self._error(f"more than {MAX_NESTING} parentheses inside each other", at)
        node = self._list()
        closing = self._peek()
        if closing is None:
            raise self._error("the parenthesis is not closed", at)
        boost = self._boost(closing, self._pieces[self._next].at)
        self._next += 1
        self._depth -= 1
        return node if node is None else _boosted(node, boost)

    def _boost(self, piece: str, at: int) -> float:
        found = _BOOST.search(piece)
        if found is None:
            return 1.0
        boost = float(found[1])
        if not 0 < boost <= _MAX_BOOST:
            message = f"a boost must be above 0 and at most {_MAX_BOOST:.0f}, got {found[1]}"
            raise self._error(message, at + found.start())
        return boost

    def _words(self, text: str, boost: float) -> Node | None:
        words = list(split_words(text))
        items: list[Node | None] = [_word(units, self._analyzers, boost) for units in words]
        stem = text.rstrip("*")
        if words and stem != text and unicodedata.category(stem[-1])[0] in "LNM":
            items[-1] = _leaf([_prefix(words[-1], analyzer) for analyzer in self._analyzers], boost)
        return _any_of(items)


def _word(units: list[str], analyzers: Sequence[Analyzer], boost: float = 1.0) -> Leaf | None:
    return _leaf([_terms(units, analyzer) for analyzer in analyzers], boost)


def _terms(units: list[str], analyzer: Analyzer) -> Terms | None:
    word = analyzer.word(units)
    terms = tuple(dict.fromkeys(term for term, _ in word.asked))
    return Terms(terms, word.needs_all and len(terms) > 1) if terms else None


def _prefix(units: list[str], analyzer: Analyzer) -> Part | None:
    """Return the prefix. Parts of a run without spaces, and of a word in n-grams, are found as words."""
    prefix = analyzer.fold(units[0])
    if UNSPACED.match(units[0]) or 0 < analyzer.analysis.ngram <= len(prefix):
        return _terms(units, analyzer)
    return Prefix(prefix, tuple(term for term, _ in analyzer.word(units).asked))


def _phrase(text: str, analyzer: Analyzer) -> Part | None:
    placed: list[tuple[str, int]] = []
    start = 0
    for word in analyzer.words(text):
        placed += [(term, start + offset) for term, offset in word.asked]
        start += word.width
    if len(placed) > 1:
        return Phrase(tuple((term, place - placed[0][1]) for term, place in placed))
    return Terms((placed[0][0],)) if placed else None


def _leaf(parts: Sequence[Part | None], boost: float = 1.0) -> Leaf | None:
    return None if all(part is None for part in parts) else Leaf(tuple(parts), boost)


def _boosted(node: Node, boost: float) -> Node:
    match node:
        case AnyOf() | AllOf():
            return replace(node, items=tuple(_boosted(item, boost) for item in node.items))
        case Leaf():
            return replace(node, boost=node.boost * boost)
        case Without():
            return node


def _any_of(items: Sequence[Node | None]) -> Node | None:
    known = tuple(item for item in items if item is not None)
    return known[0] if len(known) == 1 else AnyOf(known) if known else None


def _all_of(items: Sequence[Node | None]) -> Node | None:
    known = tuple(item for item in items if item is not None)
    return known[0] if len(known) == 1 else AllOf(known) if known else None
