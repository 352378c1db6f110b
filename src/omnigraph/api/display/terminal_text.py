"""Text in a terminal: escaped control characters, and width in columns."""

from __future__ import annotations

import unicodedata

# Unicode categories that a terminal acts upon: control and format characters, lone surrogates, line and paragraph
# separators.
_CONTROL_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Format characters that are part of the spelling of some scripts and of emoji.
_JOINERS = "\u200c\u200d"


def escape_controls(text: str, kept: str = "\n\t") -> str:
    """Return text that is safe to print: characters that a terminal would act upon are escaped, except `kept`.

    >>> escape_controls("two\\nlines\\x1b[2J"), escape_controls("two\\nlines", kept="")
    ('two\\nlines\\\\x1b[2J', 'two\\\\nlines')
    """
    if text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode()
        if letter not in kept
        and unicodedata.category(letter) in _CONTROL_CATEGORIES
        and not (letter in _JOINERS and before > "\x7f")
        else letter
        for before, letter in zip(f"\0{text}", text, strict=False)
    )


def display_width(text: str) -> int:
    """Return the number of terminal columns of a text. Wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fitting_length(text: str, width: int) -> int:
    """Return how many characters of the text fit into `width` terminal columns."""
    if text.isascii():
        return width
    used = 0
    for place, letter in enumerate(text):
        used += display_width(letter)
        if used > width:
            return place
    return len(text)
