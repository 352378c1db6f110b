"""Analysis of a text: the tokens that full-text search stores and asks for.

All engines use this module, so an index, rows that no index covers, and a search on Spark have the same tokens.

- The words of `words.py` are compared as they are, or without stop words, stemmed by Snowball, with accents folded
  to ASCII, or cut into n-grams, as the schema says.
- A run of a script without spaces is never stemmed or folded. It has a token for every character (with its marks)
  and for every pair of neighbours. A query uses its pairs, or its only character. A word is thus found inside a
  longer run, but not by its single characters.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from itertools import pairwise

from omnigraph.lang.schema import SIMPLE_TEXT, TextAnalysis
from omnigraph.search.words import UNSPACED, split_words

# Longer runs are no words, but encoded data.
_MAX_STEMMED = 64
_ACCENTS = re.compile("([a-z0-9])[\u0300-\u036f]+")
# Letters that Unicode does not decompose, after case folding.
_LETTERS = str.maketrans(
    {
        "æ": "ae",
        "œ": "oe",
        "ø": "o",
        "đ": "d",
        "ð": "d",
        "ħ": "h",
        "ı": "i",
        "ł": "l",
        "ŋ": "n",
        "ŧ": "t",
        "þ": "th",
    }
)


@dataclass(frozen=True, slots=True)
class Word:
    """The tokens of one word, each with its position behind the start of the word.

    A text stores `stored`. A query asks for `asked`: for all of them if `needs_all`, else for any.
    """

    stored: tuple[tuple[str, int], ...]
    asked: tuple[tuple[str, int], ...]
    width: int = 1
    needs_all: bool = False


@dataclass(frozen=True)
class Analyzer:
    """Splits texts into tokens as the schema declares.

    >>> SIMPLE.tokens("Don't PANIC: Straße 42"), SIMPLE.tokens("iPhone手机壳")
    (['don', 't', 'panic', 'strasse', '42'], ['iphone', '手', '机', '壳', '手机', '机壳'])
    >>> SIMPLE.query_terms("to be or not to be"), SIMPLE.query_terms("手机壳"), SIMPLE.query_terms("?!")
    (['be', 'not', 'or', 'to'], ['手机', '机壳'], [])
    >>> english = Analyzer(TextAnalysis("english", ("the", "of"), ascii_fold=True))
    >>> english.tokens("The databases of cafés")
    ['databas', 'cafe']
    >>> Analyzer(TextAnalysis(ngram=3)).tokens("graph db")
    ['gra', 'rap', 'aph', 'db']
    """

    analysis: TextAnalysis = SIMPLE_TEXT

    @property
    def is_simple(self) -> bool:
        """Whether a word is its own token."""
        return self.analysis == SIMPLE_TEXT

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a stored text, with repetitions."""
        if self.is_simple:
            return [token for units in split_words(text) for token in (*units, *_pairs(units))]
        return [token for word in self.words(text) for token, _ in word.stored]

    def placed_tokens(self, text: str) -> Iterator[tuple[str, int]]:
        """Yield the tokens of a stored text with their positions."""
        yield from self.measured_tokens(text)[0]

    def measured_tokens(self, text: str) -> tuple[list[tuple[str, int]], int]:
        """Return the tokens of a stored text with their positions, and the number of positions of the text."""
        found: list[tuple[str, int]] = []
        start = 0
        for word in self.words(text):
            found += [(token, start + offset) for token, offset in word.stored]
            start += word.width
        return found, start

    def query_terms(self, text: str) -> list[str]:
        """Return the distinct tokens of a query, in code point order."""
        return sorted({token for word in self.words(text) for token, _ in word.asked})

    def words(self, text: str) -> Iterator[Word]:
        """Return the words of a text. A stop word has no tokens, but a position."""
        return map(self.word, split_words(text))

    def word(self, units: list[str]) -> Word:
        """Return the tokens of one word, given as its units."""
        if UNSPACED.match(units[0]):
            pairs = _placed(_pairs(units))
            return Word((*_placed(units), *pairs), pairs or _placed(units), len(units))
        (word,) = units
        if word in self._stop_words:
            return Word((), ())
        if self.analysis.ngram:
            grams = _placed(_ngrams(self.fold(word), self.analysis.ngram))
            return Word(grams, grams, len(grams), needs_all=True)
        token = ((self._normalize(word), 0),)
        return Word(token, token)

    def fold(self, word: str) -> str:
        """Return the word without accents if the analysis folds them. Does not stem."""
        return _fold(word) if self.analysis.ascii_fold and not word.isascii() else word

    def _normalize(self, word: str) -> str:
        language = self.analysis.language
        if language is None:
            return self.fold(word)
        if language == "english":
            # The rules are about ASCII letters. Those of other languages need accents.
            return _stem(language, self.fold(word))
        return self.fold(_stem(language, word))

    @cached_property
    def _stop_words(self) -> frozenset[str]:
        return frozenset(
            unit for item in self.analysis.stop_words for word in split_words(item) for unit in word
        )


SIMPLE = Analyzer()


def _pairs(units: list[str]) -> list[str]:
    return [first + second for first, second in pairwise(units)]


def _placed(tokens: list[str]) -> tuple[tuple[str, int], ...]:
    return tuple((token, place) for place, token in enumerate(tokens))


def _ngrams(word: str, length: int) -> list[str]:
    return [word[start : start + length] for start in range(max(1, len(word) - length + 1))]


def _fold(word: str) -> str:
    """Return the word with ASCII letters in place of accented and joined Latin letters.

    >>> _fold("crème"), _fold("smørrebrød"), _fold("ή")
    ('creme', 'smorrebrod', 'ή')
    """
    bare = _ACCENTS.sub(r"\1", unicodedata.normalize("NFD", word.translate(_LETTERS)))
    return unicodedata.normalize("NFC", bare)


# --- stems -----------------------------------------------------------------------------------------------

_local = threading.local()


def _stem(language: str, word: str) -> str:
    return word if len(word) > _MAX_STEMMED else _cached_stem(language, word)


@lru_cache(maxsize=1 << 17)
def _cached_stem(language: str, word: str) -> str:
    return _stemmer(language)(word)


def _stemmer(language: str) -> Callable[[str], str]:
    """Return the stemmer of this thread. A stemmer of the library keeps the word in its state.

    The classes in Python are used directly: the factory of the library prefers a compiled package of another
    version, whose stems may differ between processes.
    """
    stemmers: dict[str, Callable[[str], str]] | None = getattr(_local, "stemmers", None)
    if stemmers is None:
        stemmers = _local.stemmers = {}
    if language not in stemmers:
        module = import_module(f"snowballstemmer.{language}_stemmer")
        stemmers[language] = getattr(module, f"{language.capitalize()}Stemmer")().stemWord
    return stemmers[language]
