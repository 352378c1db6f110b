"""Rows of Python values as lines of JSON, between the Python client and the server. Values arrive unchanged.

A load accepts values that JSON does not have: dates, bytes, numpy. Such a value is written as an object with a
marker member. The name of the marker is random and is the first line of the stream, so that no object of the
caller is mistaken for one.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

from omnigraph.errors import InvalidInput, ResourceLimit
from omnigraph.protocol.codec import ARROW

# Media types of parts that are not files: rows as lines, rows of a table that Arrow cannot represent, an Arrow
# table, Arrow batches, and a stream of graph records.
ROWS: Final = "application/vnd.omnigraph.rows"
TYPED_ROWS: Final = "application/vnd.omnigraph.typed-rows"
TABLE: Final = ARROW
BATCHES: Final = "application/vnd.omnigraph.batches"
STREAM: Final = "application/vnd.omnigraph.stream"
FILE: Final = "application/octet-stream"

# The client and the server hold one row in memory.
ROW_BYTES: Final = 1 << 28
# Other dtypes are sent as lists. Reading a fixed-width Unicode array from invalid bytes would crash the
# interpreter.
_NUMPY_KINDS = "biufcmMS"

LineRenderer: TypeAlias = Callable[[Any], bytes]


def line_writer() -> tuple[bytes, LineRenderer]:
    """Return the first line of a stream, and a function that renders a value as a line.

    The function raises `InvalidInput` for a value that cannot be encoded.
    """
    marker = secrets.token_hex(8)
    encoder = json.JSONEncoder(separators=(",", ":"), default=lambda value: _encode(marker, value))

    def render(value: Any) -> bytes:
        try:
            return encoder.encode(value).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"a {type(value).__name__} cannot be sent to a server: {error}") from error

    return encoder.encode(marker).encode() + b"\n", render


def write_lines(rows: Iterable[Any]) -> Iterator[bytes]:
    """Yield the lines of rows.

    >>> list(read_lines(write_lines([{"since": date(2024, 1, 1), "raw": b"x"}])))
    [{'since': datetime.date(2024, 1, 1), 'raw': b'x'}]
    """
    header, render = line_writer()
    yield header
    for row in rows:
        yield render(row)


def read_lines(lines: Iterable[bytes | str]) -> Iterator[Any]:
    """Yield the values of lines that `write_lines` has written. Raises `InvalidInput` for other lines."""
    decoder = json.JSONDecoder()
    for number, line in enumerate(lines):
        try:
            text = line if isinstance(line, str) else line.decode()
            value = decoder.decode(text)
        except (ValueError, TypeError, KeyError, RecursionError, ArithmeticError) as error:
            raise InvalidInput(f"row {number} of the upload cannot be decoded") from error
        if number:
            yield value
        else:
            decoder = json.JSONDecoder(object_hook=_decoder_hook(marker=value))


def bounded_lines(file: Any, limit: int = ROW_BYTES) -> Iterator[bytes]:
    """Yield the lines of a binary file. Raises `ResourceLimit` for a line that is longer than the limit."""
    while line := file.readline(limit + 1):
        if len(line) > limit:
            raise ResourceLimit(
                f"a row is larger than {limit:,} bytes",
                details={"resource": "row_bytes", "limit": limit, "actual": len(line)},
            )
        yield line


def _encode(marker: str, value: Any) -> Any:
    match value:
        # pandas.NaT is a datetime that is not equal to itself.
        case datetime() if value == value:
            return {marker: "datetime", "v": value.isoformat()}
        case date() if not isinstance(value, datetime):
            return {marker: "date", "v": value.isoformat()}
        case Decimal():
            return {marker: "decimal", "v": str(value)}
        case bytes():
            return {marker: "bytes", "v": base64.b64encode(value).decode("ascii")}
        case Mapping():
            return dict(value)
    return _encode_numpy(marker, value) or {marker: "other", "t": type(value).__name__, "v": str(value)}


def _encode_numpy(marker: str, value: Any) -> Any:
    import numpy as np

    if not isinstance(value, np.generic | np.ndarray):
        return None
    if value.dtype.kind not in _NUMPY_KINDS:
        return value.tolist()
    data = base64.b64encode(value.tobytes()).decode("ascii")
    return {marker: "numpy", "t": value.dtype.str, "s": list(value.shape), "v": data}


def _decoder_hook(marker: Any) -> Callable[[dict[str, Any]], Any]:
    def decode(members: dict[str, Any]) -> Any:
        kind = members.get(marker)
        match kind:
            case None:
                return members
            case "datetime":
                return datetime.fromisoformat(members["v"])
            case "date":
                return date.fromisoformat(members["v"])
            case "decimal":
                return Decimal(members["v"])
            case "bytes":
                return base64.b64decode(members["v"], validate=True)
            case "numpy":
                return _decode_numpy(members)
            case "other":
                return _placeholder(str(members["t"]), str(members["v"]))
        raise ValueError(f"unknown kind '{kind}'")

    return decode


def _decode_numpy(members: Mapping[str, Any]) -> Any:
    import numpy as np

    dtype = np.dtype(members["t"])
    if dtype.kind not in _NUMPY_KINDS:
        raise ValueError(f"unsupported dtype {dtype}")
    values = np.frombuffer(base64.b64decode(members["v"], validate=True), dtype).reshape(members["s"])
    # An empty shape is that of a scalar.
    return values if members["s"] else values[()]


def _placeholder(name: str, text: str) -> Any:
    """Return an object of a class of that name. No property accepts it, and the error names its class and text."""
    return type(name, (), {"__str__": lambda _: text})()
