"""Limits of the server: fields, environment variables and defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from omnigraph.errors import InvalidInput

# Keys of the metadata of a field.
VARIABLE = "variable"
_MINIMUM = "minimum"


def _integer(variable: str, default: int, minimum: int = 1) -> int:
    declared: int = field(default=default, metadata={VARIABLE: f"OMNIGRAPH_{variable}", _MINIMUM: minimum})
    return declared


def _seconds(variable: str, default: float, minimum: float = 0.001) -> float:
    declared: float = field(default=default, metadata={VARIABLE: f"OMNIGRAPH_{variable}", _MINIMUM: minimum})
    return declared


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of one server process. Those named `actor_` hold for each actor, the others for all clients together.

    - `actor_requests`, `actor_bytes`: concurrent writes of one actor, and the bytes of their bodies
    - `actor_rate`: requests of one actor per second, 0 for no limit; `actor_burst`: requests that it sends at once
    - `actor_in_flight`: concurrent requests of one actor, from the headers to the response; reads of one actor use
      at most three quarters of the read threads
    - `read_threads`, `write_threads`: concurrent reads and writes; `streams`: concurrent streams
    - `connections`: open connections; `requests`: requests that run or wait for a thread
    - `body_bytes`: bytes of JSON bodies in memory; `load_bytes`: bytes of one load of files
    - `load_decoded_bytes`: bytes of one load of files when they are decompressed and decoded; `load_ratio`: how
      many times larger than the files these may be, if they exceed 1 GiB
    - `cache_bytes`: size of the read cache that all graphs share; 0 means a quarter of the machine's memory
    - `query_bytes`: memory of one query; `query_pool_bytes`: memory of all queries; `actor_query_bytes`: memory of
      the queries of one actor; 0 means a share of the machine's memory, see `memory_limits`
    - `query_spill_bytes`: disk space of a sort or a grouping that exceeds the memory of its query
    - `query_rows`: result rows of one query; `query_edges`: edges that it follows; 0 means no limit
    - `query_text_bytes`, `mutation_text_bytes`, `schema_text_bytes`: size of a text that is parsed
    - `slow_query_seconds`: queries that take at least this long are logged with their plan
    - `read_seconds`: time limit of a read
    - `header_seconds`: time limit for the headers of a request; `idle_seconds`: keep-alive timeout
    - `stall_seconds`: how far a client may fall behind `byte_rate`, sending a body or receiving a response
    - `shutdown_seconds`: time that running requests have at shutdown; `drain_seconds`: time before that, in which
      new requests are still accepted
    - `follow_seconds`: interval of the checks for a new token file or a new revision of a cluster
    """

    actor_requests: int = _integer("PER_ACTOR_INFLIGHT_MAX", 16)
    actor_rate: float = _seconds("PER_ACTOR_RATE_MAX", 0, 0)
    actor_burst: int = _integer("PER_ACTOR_BURST_MAX", 100)
    actor_in_flight: int = _integer("PER_ACTOR_REQUESTS_MAX", 128)
    actor_bytes: int = _integer("PER_ACTOR_BYTES_MAX", 4 << 30)
    read_threads: int = _integer("THREADS_MAX", 40)
    write_threads: int = _integer("WRITE_THREADS_MAX", 64)
    streams: int = _integer("EXPORTS_MAX", 8)
    connections: int = _integer("CONNECTIONS_MAX", 1000)
    requests: int = _integer("REQUESTS_MAX", 256)
    body_bytes: int = _integer("BODY_BYTES_MAX", 1 << 30)
    load_bytes: int = _integer("LOAD_BYTES_MAX", 64 << 30)
    load_decoded_bytes: int = _integer("LOAD_DECODED_BYTES_MAX", 64 << 30)
    load_ratio: int = _integer("LOAD_RATIO_MAX", 1000)
    cache_bytes: int = _integer("CACHE_BYTES", 0, 0)
    query_bytes: int = _integer("QUERY_BYTES_MAX", 0, 0)
    query_pool_bytes: int = _integer("QUERIES_BYTES_MAX", 0, 0)
    actor_query_bytes: int = _integer("PER_ACTOR_QUERY_BYTES_MAX", 0, 0)
    query_spill_bytes: int = _integer("QUERY_SPILL_BYTES_MAX", 8 << 30)
    query_rows: int = _integer("QUERY_ROWS_MAX", 0, 0)
    query_edges: int = _integer("QUERY_EDGES_MAX", 0, 0)
    query_text_bytes: int = _integer("QUERY_TEXT_BYTES_MAX", 256 << 10)
    mutation_text_bytes: int = _integer("MUTATION_TEXT_BYTES_MAX", 1 << 20)
    schema_text_bytes: int = _integer("SCHEMA_TEXT_BYTES_MAX", 1 << 20)
    slow_query_seconds: float = _seconds("SLOW_QUERY_SECONDS", 10)
    read_seconds: float = _seconds("READ_SECONDS_MAX", 300)
    header_seconds: float = _seconds("HEADER_SECONDS_MAX", 10)
    idle_seconds: float = _seconds("IDLE_SECONDS_MAX", 30)
    stall_seconds: float = _seconds("STALL_SECONDS_MAX", 30)
    byte_rate: int = _integer("BYTES_PER_SECOND_MIN", 1024)
    shutdown_seconds: float = _seconds("STOP_SECONDS_MAX", 30)
    drain_seconds: float = _seconds("DRAIN_SECONDS", 0, 0)
    follow_seconds: float = _seconds("FOLLOW_SECONDS", 2)


def read_limits(environment: Mapping[str, str]) -> ServerLimits:
    """Return the limits that environment variables set, with defaults for the others.

    Raises `InvalidInput` for a value that is not a number or is too small. A blank value counts as not set.

    >>> read_limits({"OMNIGRAPH_READ_SECONDS_MAX": "2.5"}).read_seconds
    2.5
    """
    values = {
        item.name: environment.get(item.metadata[VARIABLE], "").strip() for item in fields(ServerLimits)
    }
    return ServerLimits(
        **{item.name: _parse(item, values[item.name]) for item in fields(ServerLimits) if values[item.name]}
    )


def _parse(item: Field[Any], text: str) -> Any:
    variable, minimum = item.metadata[VARIABLE], item.metadata[_MINIMUM]
    is_integer = item.type == "int"
    kind = "an integer" if is_integer else "a number"
    try:
        # Python would also accept `1_000` and full-width digits.
        is_plain = text.isascii() and "_" not in text
        value = (int(text) if is_integer else float(text)) if is_plain else math.nan
    except ValueError:
        value = math.nan
    if not minimum <= value < math.inf:
        raise InvalidInput(f"{variable} must be {kind} of at least {minimum}, got {text!r}")
    return value
