"""Python values as lines of JSON that are read back to the same values, between a client and a server.

A load takes more than JSON has: dates, bytes, numpy. What stands for such a value is an object with a member
that is drawn anew for each stream and given in its first line, so that no value of the caller's is taken for one.
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

# The media types of what is sent that is no file: rows as lines, those of a table that Arrow cannot hold, tables
# and batches of Arrow, a stream of records.
ROWS: Final = "application/vnd.omnigraph.rows"
TYPED_ROWS: Final = "application/vnd.omnigraph.typed-rows"
TABLE: Final = ARROW
BATCHES: Final = "application/vnd.omnigraph.batches"
STREAM: Final = "application/vnd.omnigraph.stream"
FILE: Final = "application/octet-stream"

# One row is held in memory on both sides.
ROW_BYTES: Final = 1 << 28
# Texts are lists of texts: bytes that are none of Unicode break the interpreter when they are looked at.
_NUMPY_KINDS = "biufcmMS"

Render: TypeAlias = Callable[[Any], bytes]


def line_writer() -> tuple[bytes, Render]:
    """The first line of a stream, and what makes a line of a value; `InvalidInput` for one that has no JSON."""
    tag = secrets.token_hex(8)
    encoder = json.JSONEncoder(separators=(",", ":"), default=lambda value: _stand_in(tag, value))

    def render(value: Any) -> bytes:
        try:
            return encoder.encode(value).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"a {type(value).__name__} cannot be sent to a server: {error}") from error

    return encoder.encode(tag).encode() + b"\n", render


def write_lines(rows: Iterable[Any]) -> Iterator[bytes]:
    """Rows as lines, one by one.

    >>> list(read_lines(write_lines([{"since": date(2024, 1, 1), "raw": b"x"}])))
    [{'since': datetime.date(2024, 1, 1), 'raw': b'x'}]
    """
    head, render = line_writer()
    yield head
    for row in rows:
        yield render(row)


def read_lines(lines: Iterable[bytes | str]) -> Iterator[Any]:
    """The values of lines that were written; `InvalidInput` when they were not."""
    tag: Any = None
    decoder = json.JSONDecoder()
    for number, line in enumerate(lines):
        try:
            text = line if isinstance(line, str) else line.decode()
            found = decoder.decode(text)
        except (ValueError, TypeError, KeyError, RecursionError, ArithmeticError) as error:
            raise InvalidInput(f"row {number} of what was sent cannot be read") from error
        if number:
            yield found
            continue
        tag = found
        decoder = json.JSONDecoder(object_hook=_reading(tag))


def bounded_lines(file: Any, limit: int = ROW_BYTES) -> Iterator[bytes]:
    """The lines of a binary file, none of which is longer than the limit."""
    while line := file.readline(limit + 1):
        if len(line) > limit:
            raise ResourceLimit(
                f"a row is larger than {limit:,} bytes",
                details={"resource": "row_bytes", "limit": limit, "actual": len(line)},
            )
        yield line


def _stand_in(tag: str, value: Any) -> Any:
    match value:
        # What pandas has for a missing time differs from itself.
        case datetime() if value == value:
            return {tag: "datetime", "v": value.isoformat()}
        case date() if not isinstance(value, datetime):
            return {tag: "date", "v": value.isoformat()}
        case Decimal():
            return {tag: "decimal", "v": str(value)}
        case bytes():
            return {tag: "bytes", "v": base64.b64encode(value).decode("ascii")}
        case Mapping():
            return dict(value)
    return _numpy_stand_in(tag, value) or {tag: "other", "t": type(value).__name__, "v": str(value)}


def _numpy_stand_in(tag: str, value: Any) -> Any:
    import numpy as np

    if not isinstance(value, np.generic | np.ndarray):
        return None
    if value.dtype.kind not in _NUMPY_KINDS:
        return value.tolist()
    data = base64.b64encode(value.tobytes()).decode("ascii")
    return {tag: "numpy", "t": value.dtype.str, "s": list(value.shape), "v": data}


def _reading(tag: Any) -> Callable[[dict[str, Any]], Any]:
    def read(found: dict[str, Any]) -> Any:
        kind = found.get(tag)
        match kind:
            case None:
                return found
            case "datetime":
                return datetime.fromisoformat(found["v"])
            case "date":
                return date.fromisoformat(found["v"])
            case "decimal":
                return Decimal(found["v"])
            case "bytes":
                return base64.b64decode(found["v"], validate=True)
            case "numpy":
                return _numpy(found)
            case "other":
                return _other(str(found["t"]), str(found["v"]))
        raise ValueError(f"no stand-in '{kind}'")

    return read


def _numpy(found: Mapping[str, Any]) -> Any:
    import numpy as np

    dtype = np.dtype(found["t"])
    if dtype.kind not in _NUMPY_KINDS:
        raise ValueError(f"no values of {dtype}")
    values = np.frombuffer(base64.b64decode(found["v"], validate=True), dtype).reshape(found["s"])
    # Without a shape it is a value and no array.
    return values if found["s"] else values[()]


def _other(name: str, text: str) -> Any:
    """A value that no property takes: all that is known of it is what a refusal says."""
    return type(name, (), {"__str__": lambda _: text})()
