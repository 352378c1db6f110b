"""Conversion of parameter values from a JSON document to the declared types."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from omnigraph.errors import InvalidInput
from omnigraph.lang.ir import Param, Value
from omnigraph.lang.literal_syntax import quote, shorten
from omnigraph.lang.temporal import days_of, millis_of, parse_date, parse_datetime
from omnigraph.lang.types import F32_MAX, FLOATS, INT_RANGES, PropType, Scalar

_INTEGER = re.compile(r"[+-]?\d+\Z", re.ASCII)
# Longer texts are out of range for every integer type.
_MAX_DIGITS = 40
# Longer integers are not written out in messages.
_MAX_BITS = 128


def bind_params(params: Sequence[Param], document: Mapping[str, Any] | None) -> dict[str, Value]:
    """Return the value of every declared parameter.

    Undeclared keys are ignored. An omitted nullable parameter is null. Raises `InvalidInput` for a missing
    required parameter and for a value that does not match its declared type.

    >>> from omnigraph.lang.types import I64, STRING
    >>> bind_params([Param("n", I64), Param("s", STRING.optional)], {"n": "7"})
    {'n': 7, 's': None}
    """
    if document is not None and not isinstance(document, Mapping):
        raise InvalidInput(f"parameters must be an object or null, got {_kind(document)}")
    values = document or {}
    bound: dict[str, Value] = {}
    for param in params:
        if param.name in values:
            bound[param.name] = convert_param(param, values[param.name])
        elif param.type.nullable:
            bound[param.name] = None
        else:
            raise InvalidInput(
                f"parameter '{param.name}' not provided",
                details={"parameter": param.name, "type": str(param.type)},
                hint=f"pass a value of type {param.type} for `${param.name}`",
            )
    return bound


def convert_param(param: Param, value: object) -> Value:
    """Convert a value to the type of the parameter; raise `InvalidInput` when it does not match.

    Besides JSON values, `date`, `datetime`, numpy scalars and numpy arrays are accepted.
    """
    value = _plain(value)
    if value is None:
        if param.type.nullable:
            return None
        raise _mismatch(param, "null is not accepted for non-nullable parameter")
    if param.type.scalar is Scalar.VECTOR:
        return _vector(param, value)
    if param.type.is_list:
        return tuple(_scalar(param, param.type.item, item) for item in _items(param, value))
    return _scalar(param, param.type, value)


def _plain(value: object) -> object:
    """Return the Python value of a numpy scalar or array, without importing numpy."""
    return value.tolist() if hasattr(value, "tolist") else value


def _expected(param: Param, expected: str, value: object) -> InvalidInput:
    return _mismatch(param, f"expected {expected}, got {_display(value)}")


def _mismatch(param: Param, message: str) -> InvalidInput:
    return InvalidInput(
        f"param '{param.name}': {message}",
        details={"parameter": param.name, "type": str(param.type)},
    )


def _kind(value: object) -> str:
    names: dict[type, str] = {bool: "a boolean", str: "a string", int: "an integer", float: "a number"}
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "an object"
    return names.get(type(value), "an array" if isinstance(value, list | tuple) else type(value).__name__)


def _display(value: object) -> str:
    """Return a value as messages show it: text and numbers literally, other values by their JSON kind."""
    if isinstance(value, str):
        return quote(shorten(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _integer_text(value) if value.bit_length() <= _MAX_BITS else "an integer"
    return str(value) if isinstance(value, float) else _kind(value)


def _integer_text(value: int) -> str:
    # Python refuses to format very long integers.
    return str(value) if value.bit_length() <= _MAX_BITS else f"of {value.bit_length()} bits"


def _items(param: Param, value: object) -> Sequence[object]:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    raise _expected(param, str(param.type.core), value)


def _vector(param: Param, value: object) -> Value:
    items = _items(param, value)
    if len(items) != param.type.dim:
        numbers = "1 number" if len(items) == 1 else f"{len(items)} numbers"
        raise _mismatch(param, f"expected {param.type.core}, got {numbers}")
    return tuple(_float(param, Scalar.F32, item) for item in items)


def _scalar(param: Param, kind: PropType, value: object) -> Value:
    if isinstance(value, str) and not _is_unicode(value):
        raise _mismatch(param, "not valid Unicode text")
    scalar = kind.scalar
    converted: Value = None
    if scalar in INT_RANGES:
        return _integer(param, scalar, value)
    if scalar in FLOATS:
        return _float(param, scalar, value)
    if scalar is Scalar.BOOL:
        converted = value if isinstance(value, bool) else None
    elif scalar is Scalar.DATE:
        converted = _date(value)
    elif scalar is Scalar.DATETIME:
        try:
            converted = _datetime(value)
        except InvalidInput as error:
            raise _mismatch(param, error.reason) from error
    else:
        converted = value if isinstance(value, str) else None
    if converted is None:
        raise _expected(param, str(kind.core), value)
    return converted


def _is_unicode(text: str) -> bool:
    """Return whether the text has no unpaired surrogate, which UTF-8 cannot encode."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def _integer(param: Param, scalar: Scalar, value: object) -> int:
    if isinstance(value, str) and _INTEGER.match(value) and len(value) <= _MAX_DIGITS:
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise _expected(param, scalar.value, value)
    low, high = INT_RANGES[scalar]
    if not low <= number <= high:
        raise _mismatch(param, f"value {_integer_text(number)} exceeds {scalar.value}")
    return number


def _float(param: Param, scalar: Scalar, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        expected = f"a number in {param.type.core}" if scalar is not param.type.scalar else scalar.value
        raise _expected(param, expected, value)
    limit = F32_MAX if scalar is Scalar.F32 else math.inf
    try:
        number = float(value)
    except OverflowError:
        raise _mismatch(param, f"value {_integer_text(int(value))} exceeds {scalar.value}") from None
    if not math.isfinite(number):
        raise _mismatch(param, f"value {number} is not a finite number")
    if abs(number) > limit:
        raise _mismatch(param, f"value {number} exceeds {scalar.value}")
    return number


def _date(value: object) -> int | None:
    if isinstance(value, datetime):
        return None
    if isinstance(value, date):
        return days_of(value)
    return parse_date(value) if isinstance(value, str) else None


def _datetime(value: object) -> int | None:
    if isinstance(value, datetime):
        # NaT of pandas, a missing time, is a datetime that does not equal itself.
        return millis_of(value) if value == value else None
    if isinstance(value, date):
        return parse_datetime(value.isoformat())
    return parse_datetime(value) if isinstance(value, str) else None
