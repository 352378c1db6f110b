"""Stop words: frequent words of a language that full-text search leaves out.

The English list is the one of Lucene, Tantivy and Lance. The others are those of the Snowball project as PostgreSQL
and Spark distribute them, one word a line in `stop_words`, with their licence.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

_ENGLISH = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
    "this to was will with"
)
_FOLDER = Path(__file__).with_name("stop_words")

STOP_WORD_LANGUAGES = (
    *("danish", "dutch", "english", "finnish", "french", "german", "hungarian", "italian", "norwegian"),
    *("portuguese", "russian", "spanish", "swedish", "turkish"),
)
"""The languages that have a list."""


@lru_cache(maxsize=len(STOP_WORD_LANGUAGES))
def stop_words(language: str) -> tuple[str, ...]:
    """Return the stop words of a language in code point order; none if it has no list.

    >>> stop_words("german")[:3], stop_words("tamil")
    (('aber', 'alle', 'allem'), ())
    """
    if language not in STOP_WORD_LANGUAGES:
        return ()
    if language == "english":
        return tuple(_ENGLISH.split())
    return tuple((_FOLDER / f"{language}.txt").read_text("utf-8").split())
