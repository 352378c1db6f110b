"""Parameter values: from a JSON document to the exact values a query runs with."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from omnigraph.errors import InvalidInput
from omnigraph.lang.ir import Param, Value
from omnigraph.lang.temporal import days_of, millis_of, parse_date, parse_datetime
from omnigraph.lang.types import F32_MAX, FLOATS, INT_RANGES, PropType, Scalar

_INTEGER = re.compile(r"[+-]?\d+\Z", re.ASCII)
_MAX_SHOWN = 40


def bind_params(params: Sequence[Param], document: Mapping[str, Any] | None) -> dict[str, Value]:
    """The value of every declared parameter.

    Keys that are not declared are ignored; an omitted nullable parameter is null. Anything that does not fit
    is `InvalidInput` and nothing has run.

    >>> from omnigraph.lang.types import I64, STRING
    >>> bind_params([Param("n", I64), Param("s", STRING.optional)], {"n": "7"})
    {'n': 7, 's': None}
    """
    if document is not None and not isinstance(document, Mapping):
        raise InvalidInput(f"parameters must be an object or null, got {_name(document)}")
    given = document or {}
    bound: dict[str, Value] = {}
    for param in params:
        if param.name in given:
            bound[param.name] = fit_param(param, given[param.name])
        elif param.type.nullable:
            bound[param.name] = None
        else:
            raise InvalidInput(
                f"parameter '{param.name}' not provided",
                details={"parameter": param.name, "type": str(param.type)},
                hint=f"pass a value of type {param.type} for `${param.name}`",
            )
    return bound


def fit_param(param: Param, value: object) -> Value:
    """One value in the exact form of the parameter's type, or `InvalidInput`.

    Besides what JSON has, a `date`, a `datetime` and numpy's scalars and arrays are taken for what they mean.
    """
    value = _plain(value)
    if value is None:
        if param.type.nullable:
            return None
        raise _misfit(param, "null is not accepted for non-nullable parameter")
    if param.type.scalar is Scalar.VECTOR:
        return _vector(param, value)
    if param.type.is_list:
        return tuple(_scalar(param, param.type.item, item) for item in _items(param, value))
    return _scalar(param, param.type, value)


def _plain(value: object) -> object:
    """The Python value of a numpy scalar or array, without importing numpy to ask."""
    return value.tolist() if hasattr(value, "tolist") else value


def _misfit(param: Param, message: str) -> InvalidInput:
    return InvalidInput(
        f"param '{param.name}': {message}",
        details={"parameter": param.name, "type": str(param.type)},
    )


def _name(value: object) -> str:
    names: dict[type, str] = {bool: "a boolean", str: "a string", int: "an integer", float: "a number"}
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "an object"
    return names.get(type(value), "an array" if isinstance(value, list | tuple) else type(value).__name__)


def _shown(value: object) -> str:
    """A value for a message: short ones as they are, anything else by what it is."""
    if isinstance(value, str):
        return f"'{value}'" if len(value) <= _MAX_SHOWN else f"'{value[:_MAX_SHOWN]}…'"
    return str(value) if isinstance(value, float) else _name(value)


def _number(value: int) -> str:
    # Python refuses to write very long integers, and nobody would read them.
    return str(value) if value.bit_length() <= 128 else f"of {value.bit_length()} bits"


def _items(param: Param, value: object) -> Sequence[object]:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    raise _misfit(param, f"expected an array for {param.type.core}, got {_name(value)}")


def _vector(param: Param, value: object) -> Value:
    items = _items(param, value)
    if len(items) != param.type.dim:
        raise _misfit(param, f"expected {param.type.dim} numbers for {param.type.core}, got {len(items)}")
    return tuple(_float(param, Scalar.F32, item) for item in items)


def _scalar(param: Param, kind: PropType, value: object) -> Value:
    if isinstance(value, str) and not _is_unicode(value):
        raise _misfit(param, "not valid Unicode text")
    scalar = kind.scalar
    found: Value = None
    if scalar in INT_RANGES:
        return _integer(param, scalar, value)
    if scalar in FLOATS:
        return _float(param, scalar, value)
    if scalar is Scalar.BOOL:
        found = value if isinstance(value, bool) else None
    elif scalar is Scalar.DATE:
        found = _date(value)
    elif scalar is Scalar.DATETIME:
        found = _datetime(value)
    else:
        found = value if isinstance(value, str) else None
    if found is None:
        raise _misfit(param, f"expected {kind.core}, got {_shown(value)}")
    return found


def _is_unicode(text: str) -> bool:
    """Whether it has no half of a surrogate pair, which nothing could store or even write."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def _integer(param: Param, scalar: Scalar, value: object) -> int:
    if isinstance(value, str) and _INTEGER.match(value) and len(value) <= _MAX_SHOWN:
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise _misfit(param, f"expected an integer for {scalar.value}, got {_shown(value)}")
    low, high = INT_RANGES[scalar]
    if not low <= number <= high:
        raise _misfit(param, f"value {_number(number)} exceeds {scalar.value}")
    return number


def _float(param: Param, scalar: Scalar, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _misfit(param, f"expected a number for {param.type.core}, got {_shown(value)}")
    limit = F32_MAX if scalar is Scalar.F32 else math.inf
    try:
        number = float(value)
    except OverflowError:
        raise _misfit(param, f"value {_number(int(value))} exceeds {scalar.value}") from None
    if not math.isfinite(number):
        raise _misfit(param, f"value {number} is not a finite number")
    if abs(number) > limit:
        raise _misfit(param, f"value {number} exceeds {scalar.value}")
    return number


def _date(value: object) -> int | None:
    if isinstance(value, datetime):
        return None
    if isinstance(value, date):
        return days_of(value)
    return parse_date(value) if isinstance(value, str) else None


def _datetime(value: object) -> int | None:
    if isinstance(value, datetime):
        # What pandas has for a missing time is a datetime that does not equal itself.
        return millis_of(value) if value == value else None
    if isinstance(value, date):
        return parse_datetime(value.isoformat())
    return parse_datetime(value) if isinstance(value, str) else None
