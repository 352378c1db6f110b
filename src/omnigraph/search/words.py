"""Words of a text, by the Unicode data of the running Python.

- A word is a run of letters, digits and other numbers with the marks that follow them. Every other character
  separates words, including the apostrophe, the underscore and invisible format characters. Variation selectors,
  and marks that follow no letter, are ignored.
- Words are compared after NFKC normalization and case folding: ``STRASSE`` matches ``straße``, full-width letters
  match plain ones, and the encoding of an accent does not matter.
- Chinese, Japanese, Korean, Thai, Lao, Khmer and Burmese words may be part of a run without spaces. Such a run is
  a list of units: characters with their marks.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3021-\u3029\u3031-\u303c"  # ideographic iteration marks and numbers
    "\u3041-\u30ff\u31f0-\u31ff\U0001aff0-\U0001b16f"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"  # Hangul
    "]"
)


class _Spacing(dict[int, str]):
    """A table for `str.translate` that replaces separators with blanks and removes variation selectors."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if unicodedata.category(char)[0] not in "LNM":
            char = " "
        elif 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF or 0x180B <= code <= 0x180F:
            char = ""
        self[code] = char
        return char


class _Kinds(dict[int, str]):
    """A table for `str.translate` that maps marks to m, unspaced scripts to u and all other characters to s."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        kind = "u" if UNSPACED.match(char) else "s"
        self[code] = "m" if unicodedata.category(char)[0] == "M" else kind
        return self[code]


# The tables fill up as characters occur, because looking up a category is slow.
_SPACING = _Spacing()
_KINDS = _Kinds()
_SAME_KIND = re.compile("(?:um*)+|(?:sm*)+")
_ONE_UNIT = re.compile("um*")


def split_words(text: str) -> Iterator[list[str]]:
    """Yield the units of each word: the word itself, or its characters if its script has no spaces.

    >>> list(split_words("Don't PANIC: Straße 手机壳"))
    [['don'], ['t'], ['panic'], ['strasse'], ['手', '机', '壳']]
    """
    for run in text.translate(_SPACING).split():
        if run.isascii():
            yield [run.lower()]
        else:
            folded = _fold(run)
            # NFKC may decompose a character into others and separators, such as ½ into 1⁄2.
            for word in [run] if folded == run else folded.translate(_SPACING).split():
                yield from _split_scripts(word)


def _fold(run: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", run).casefold())


def _split_scripts(word: str) -> Iterator[list[str]]:
    kinds = word.translate(_KINDS)
    for same in _SAME_KIND.finditer(kinds):
        start, stop = same.span()
        if kinds[start] == "s":
            yield [word[start:stop]]
        else:
            units = _ONE_UNIT.finditer(kinds, start, stop)
            yield (
                [word[unit.start() : unit.end()] for unit in units] if "m" in same[0] else [*word[start:stop]]
            )
