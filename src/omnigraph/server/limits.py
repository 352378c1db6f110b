"""How much one server takes on: every limit, its variable in the environment, and its default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from omnigraph.errors import InvalidInput

_VARIABLE = "variable"
_LEAST = "least"


def _whole(variable: str, default: int) -> int:
    found: int = field(default=default, metadata={_VARIABLE: f"OMNIGRAPH_{variable}", _LEAST: 1})
    return found


def _seconds(variable: str, default: float, least: float = 0.001) -> float:
    found: float = field(default=default, metadata={_VARIABLE: f"OMNIGRAPH_{variable}", _LEAST: least})
    return found


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server, which hold for everybody together unless they are said to be an actor's.

    - `requests`, `bytes`: what one actor may have in flight of writes, and of the bytes of their bodies
    - `threads`: how many reads run at a time, `write_threads` how many writes, of which those of one branch take
      turns; `exports`: how many streams are written at a time
    - `connections`: how many are open; `waiting`: how many requests are answered or wait for a thread
    - `bodies`: how many bytes of JSON bodies are held in memory
    - `load_bytes`: how many bytes one load of files may send
    - `cache`: how many bytes reads of all graphs keep in memory; 0 stands for a quarter of the machine's
    - `read_seconds`: how long a read may take
    - `header_seconds`: how long the head of a request may take to arrive, `idle_seconds` how long none need come
    - `stall_seconds`: how far a client may fall behind `byte_rate`, sending a body or taking an answer
    - `stop_seconds`: how long requests that are running at the end may take; `drain_seconds`: how long new ones
      are still answered then
    """

    requests: int = _whole("PER_ACTOR_INFLIGHT_MAX", 16)
    bytes: int = _whole("PER_ACTOR_BYTES_MAX", 4 << 30)
    threads: int = _whole("THREADS_MAX", 40)
    write_threads: int = _whole("WRITE_THREADS_MAX", 64)
    exports: int = _whole("EXPORTS_MAX", 8)
    connections: int = _whole("CONNECTIONS_MAX", 1000)
    waiting: int = _whole("REQUESTS_MAX", 256)
    bodies: int = _whole("BODY_BYTES_MAX", 1 << 30)
    load_bytes: int = _whole("LOAD_BYTES_MAX", 64 << 30)
    cache: int = _whole("CACHE_BYTES", 0)
    read_seconds: float = _seconds("READ_SECONDS_MAX", 300)
    header_seconds: float = _seconds("HEADER_SECONDS_MAX", 10)
    idle_seconds: float = _seconds("IDLE_SECONDS_MAX", 30)
    stall_seconds: float = _seconds("STALL_SECONDS_MAX", 30)
    byte_rate: int = _whole("BYTES_PER_SECOND_MIN", 1024)
    stop_seconds: float = _seconds("STOP_SECONDS_MAX", 30)
    drain_seconds: float = _seconds("DRAIN_SECONDS", 0, 0)


def variables() -> dict[str, int | float]:
    """The variable of every limit, with what holds when it is not set."""
    default = Limits()
    return {item.metadata[_VARIABLE]: getattr(default, item.name) for item in fields(Limits)}


def read_limits(environment: Mapping[str, str]) -> Limits:
    """The limits that the environment sets, and the defaults for the rest; `InvalidInput` for what is no limit.

    >>> read_limits({"OMNIGRAPH_READ_SECONDS_MAX": "2.5"}).read_seconds
    2.5
    """
    given = {item.name: environment.get(item.metadata[_VARIABLE], "").strip() for item in fields(Limits)}
    return Limits(
        **{item.name: _parse(item, given[item.name]) for item in fields(Limits) if given[item.name]}
    )


def _parse(item: Field[Any], text: str) -> Any:
    variable, least = item.metadata[_VARIABLE], item.metadata[_LEAST]
    whole = item.type == "int"
    kind = "a whole number" if whole else "a number of seconds"
    try:
        # Python would also read `1_000` and `１０`, which nobody means.
        value = (int(text) if whole else float(text)) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not least <= value < math.inf:
        raise InvalidInput(f"{variable} must be {kind} of at least {least}, not {text!r}")
    return value
