"""Conversion of the values of input rows to values of strict JSON."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any


def valid_json(value: Any) -> Any:
    """Return a value that strict JSON can represent: non-finite floats as text, bytes as ``base64:`` text.

    Any other value without a JSON form, such as a date or a decimal, is its text.

    >>> valid_json({"share": float("inf"), "data": b"ab", "list": (1, None)})
    {'share': 'Infinity', 'data': 'base64:YWI=', 'list': [1, None]}
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if math.isfinite(value):
                return value
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Mapping():
            return {str(name): valid_json(item) for name, item in value.items()}
        case list() | tuple():
            return [valid_json(item) for item in value]
        case bytes() | bytearray():
            return "base64:" + base64.b64encode(value).decode("ascii")
        case _:
            return str(value)
