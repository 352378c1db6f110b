"""The arguments of dot commands."""

from __future__ import annotations

import json
import shlex
from typing import Any

from omnigraph.errors import InvalidInput


def read_words(usage: str, text: str, most: int, least: int = 0) -> list[str]:
    """Split arguments as a shell does. Raises `InvalidInput` with the usage unless there are `least` to `most`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidInput(f"{usage.split()[0]}: {error}".lower()) from error
    if not least <= len(words) <= most:
        raise InvalidInput(f"usage: {usage}")
    return words


def read_number(command: str, word: str) -> int:
    """Return a positive number."""
    if not (word.isascii() and word.isdigit()) or int(word) < 1:
        raise InvalidInput(f"{command}: expected a number of at least 1, got '{word}'")
    return int(word)


def read_json_object(text: str) -> dict[str, Any]:
    """Return parameters that are given as JSON.

    >>> read_json_object('{"name": "Ann"}')
    {'name': 'Ann'}
    """
    example = 'for example {"name": "Ann"}'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"parameters are not valid JSON: {error}", hint=example) from error
    if not isinstance(found, dict):
        raise InvalidInput("parameters must be a JSON object", hint=example)
    return found
