"""The seam in the S3 server where tests count requests and make them go wrong.

Faults are installed from the test process and hit the requests of any client process. A fault counts the
requests that match it from its installation on, so the same test meets the same request every time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from tests.support.s3_objects import Request

How = Literal[
    "refuse", "reset", "hang", "late", "drop", "applied_500", "delay", "hold", "cut_before", "cut_after"
]
"""What happens to a request:

- `refuse`: answered with an error status, nothing done
- `reset`: connection reset, nothing done
- `hang`: never answered, nothing done; ends when the client gives up
- `late`: done after the client gave up
- `drop`: done, then the connection is closed without a reply
- `applied_500`: done, but answered with status 500
- `delay`: done and answered, later
- `hold`: done, and answered when the test says so
- `cut_before`, `cut_after`: a callback runs, typically killing the client, before or after it is done
"""

CODES = {
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    429: "TooManyRequests",
    500: "InternalError",
    501: "NotImplemented",
    503: "SlowDown",
}


@dataclass
class Fault:
    """A fault in place.

    `seen` counts the requests that it looked at, `hits` those that it struck, and `ended` those of them that will
    have no further effect.
    """

    how: How
    nth: int
    times: int | None
    method: str | None
    key: str | None
    status: int = 503
    seconds: float = 0.0
    callback: Callable[[], None] | None = None
    seen: int = 0
    hits: int = 0
    ended: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    def strikes(self, request: Request) -> bool:
        """Whether this request is one to spoil; counts it if it matches."""
        if self.method is not None and request.method != self.method:
            return False
        if self.key is not None and self.key not in request.key:
            return False
        self.seen += 1
        strikes = self.seen >= self.nth and (self.times is None or self.seen < self.nth + self.times)
        self.hits += strikes
        return strikes


@dataclass(frozen=True)
class Recorded:
    """One request as the server saw it. It ended when its effect was complete, before the reply was sent."""

    method: str
    bucket: str
    key: str
    query: str
    status: int
    started: float
    ended: float
    # How many bytes the reply had.
    size: int = 0
    # How many bytes the request had.
    sent: int = 0

    def __str__(self) -> str:
        return f"{self.method} {self.key}{'?' + self.query if self.query else ''} -> {self.status}"


@dataclass
class Log:
    """The requests of one recording, in the order in which they started."""

    requests: list[Recorded] = field(default_factory=list)

    def count(self, method: str | None = None, key: str = "") -> int:
        return sum((method is None or r.method == method) and key in r.key for r in self.requests)

    @property
    def serial(self) -> int:
        """The longest chain of requests of which none began before the last one's end.

        Concurrent requests only overlap here if they take longer than the time between their arrivals: record
        with a latency to see it reliably.
        """
        length, free_at = 0, float("-inf")
        for request in sorted(self.requests, key=lambda r: r.ended):
            if request.started >= free_at:
                length, free_at = length + 1, request.ended
        return length

    def __str__(self) -> str:
        return "\n".join(str(request) for request in self.requests)


class Seam:
    """Everything that is currently recorded and currently going wrong."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._logs: list[Log] = []
        self._latency = 0.0

    @property
    def latency(self) -> float:
        return self._latency

    def fault_for(self, request: Request) -> Fault | None:
        with self._lock:
            # Every fault counts every request that matches it, whichever of them strikes.
            struck = [fault for fault in self._faults if fault.strikes(request)]
        return struck[0] if struck else None

    def record(self, request: Request, status: int, started: float, size: int) -> None:
        recorded = Recorded(
            method=request.method,
            bucket=request.bucket,
            key=request.key,
            query="&".join(f"{name}={value}" if value else name for name, value in request.query.items()),
            status=status,
            started=started,
            ended=time.monotonic(),
            size=size,
            sent=len(request.body),
        )
        with self._lock:
            for log in self._logs:
                log.requests.append(recorded)

    @contextmanager
    def recording(self, latency: float = 0.0) -> Iterator[Log]:
        """Record all requests; `latency` seconds are added to each, so that concurrent ones overlap."""
        log = Log()
        with self._lock:
            self._logs.append(log)
            self._latency = latency
        try:
            yield log
        finally:
            with self._lock:
                self._logs.remove(log)
                self._latency = 0.0
            log.requests.sort(key=lambda r: r.started)

    @contextmanager
    def installed(self, fault: Fault) -> Iterator[Fault]:
        with self._lock:
            self._faults.append(fault)
        try:
            yield fault
        finally:
            with self._lock:
                self._faults.remove(fault)

    @contextmanager
    def fail(
        self,
        how: How | int,
        *,
        nth: int = 1,
        times: int | None = 1,
        method: str | None = None,
        key: str | None = None,
    ) -> Iterator[Fault]:
        """Spoil the `nth` request that matches, and `times` in all; None for all from there on.

        A number for `how` refuses with that status. `key` matches any part of the object's key.
        """
        status = how if isinstance(how, int) else 500
        kind: How = "refuse" if isinstance(how, int) else how
        with self.installed(Fault(kind, nth, times, method, key, status=status)) as fault:
            yield fault

    @contextmanager
    def delay(
        self, seconds: float, *, nth: int = 1, times: int | None = None, method: str | None = None
    ) -> Iterator[Fault]:
        """Answer later, from the `nth` request on."""
        with self.installed(Fault("delay", nth, times, method, None, seconds=seconds)) as fault:
            yield fault

    @contextmanager
    def hold(self, *, nth: int = 1, method: str | None = None, key: str | None = None) -> Iterator[Fault]:
        """Carry out the `nth` matching request, and answer it when `Fault.released` is set or the context ends."""
        with self.installed(Fault("hold", nth, 1, method, key)) as fault:
            try:
                yield fault
            finally:
                fault.released.set()

    @contextmanager
    def cut(
        self,
        callback: Callable[[], None],
        *,
        nth: int,
        applied: bool,
        method: str | None = None,
        key: str | None = None,
    ) -> Iterator[Fault]:
        """Run `callback` at the `nth` matching request, typically to kill its client, and answer nothing.

        With `applied` the request has taken effect by then, without it never does. `hits` is 0 afterwards
        when the client needed fewer requests: the enumeration of cuts is complete.
        """
        how: How = "cut_after" if applied else "cut_before"
        with self.installed(Fault(how, nth, 1, method, key, callback=callback)) as fault:
            yield fault
