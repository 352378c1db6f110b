"""The parent process: it starts the other processes, restarts those that die, and stops them in order.

The parent opens no graph and starts no thread, so that a fork of it is safe at any time: the runtimes of Lance and
obstore start at their first use, which is in the children.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, NoReturn

from omnigraph.errors import OmnigraphError
from omnigraph.protocol.codec import decode_error, encode_error
from omnigraph.server.logs import LOGGER
from omnigraph.server.workers.child import DRAIN, READY
from omnigraph.server.workers.process_slots import ProcessSlot, ProcessSlots
from omnigraph.server.workers.shared_usage import SharedUsage

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# After so many failed starts in a row the server gives up.
MAX_FAILED_STARTS: Final = 4
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0
# A process that ran for so long is restarted without a delay.
_STABLE_SECONDS: Final = 10.0

Start = Callable[[ProcessSlot, socket.socket], None]


@dataclass
class _Child:
    """A running process. `channel` carries its start message, and ends when the parent ends."""

    slot: ProcessSlot
    pid: int
    channel: socket.socket
    started_at: float = field(default_factory=time.monotonic)
    received: bytes = b""

    @property
    def is_ready(self) -> bool:
        return self.received == READY

    def read(self) -> None:
        """Read what the process has sent."""
        with suppress(BlockingIOError, ConnectionError):
            while data := self.channel.recv(1 << 16):
                self.received += data

    def error(self) -> OmnigraphError | None:
        """Return the error that prevented the start, if the process sent one."""
        try:
            return decode_error(json.loads(self.received)["error"])
        except (ValueError, KeyError, TypeError):
            return None


class Supervisor:
    """Runs the processes of one server until a signal arrives. `start` is what a process does after the fork."""

    def __init__(
        self, slots: ProcessSlots, usage: SharedUsage, start: Start, announce: Callable[[], None]
    ) -> None:
        self._slots = slots
        self._usage = usage
        self._start = start
        self._announce = announce
        self._children: dict[int, _Child] = {}
        # Failed starts and early ends in a row, and the time of the next start, by the index of the slot.
        self._failures: dict[int, int] = {}
        self._crashes: dict[int, int] = {}
        self._restarts: dict[int, float] = {}
        self._signals: list[int] = []
        self._is_stopping = False
        self._has_failed_child = False
        self._failure: OmnigraphError | None = None

    def run(self) -> int:
        """Run until all processes have ended, and return the exit code. Raises the error of a failed start."""
        wakeup, wakes = os.pipe()
        os.set_blocking(wakeup, False)
        os.set_blocking(wakes, False)
        with selectors.DefaultSelector() as self._selector, _signal_handlers(wakes, self._signals.append):
            self._selector.register(wakeup, selectors.EVENT_READ)
            try:
                # Writers create graphs that are missing. Workers open them.
                for group in (self._slots.writers, self._slots.workers):
                    self._start_group(group)
                if not self._is_stopping:
                    self._announce()
                while self._children or self._restarts:
                    self._step()
            finally:
                self._kill_all()
                os.close(wakeup)
                os.close(wakes)
        if self._failure is not None:
            raise self._failure
        return 1 if self._has_failed_child else 0

    def _start_group(self, slots: Sequence[ProcessSlot]) -> None:
        """Start processes and wait until they are ready. Raises the error of the first that fails."""
        if self._is_stopping:
            return
        for slot in slots:
            self._fork(slot)
        wanted = {slot.index for slot in slots}
        while not self._is_stopping:
            if wanted <= {child.slot.index for child in self._children.values() if child.is_ready}:
                return
            self._step(is_starting=True)

    # --- events --------------------------------------------------------------------------------------------

    def _step(self, *, is_starting: bool = False) -> None:
        """Wait for an event, and handle signals, ended processes and due restarts."""
        for key, _ in self._selector.select(self._next_delay()):
            if isinstance(key.data, _Child):
                self._read(key.data)
            else:
                with suppress(BlockingIOError):
                    os.read(key.fd, 4096)
        self._handle_signals()
        self._reap(is_starting=is_starting)
        now = time.monotonic()
        for index in [index for index, due in self._restarts.items() if due <= now]:
            del self._restarts[index]
            self._fork(self._slots.slots[index])

    def _next_delay(self) -> float | None:
        return max(0.0, min(self._restarts.values()) - time.monotonic()) if self._restarts else None

    def _read(self, child: _Child) -> None:
        was_ready = child.is_ready
        child.read()
        if child.is_ready and not was_ready:
            self._failures.pop(child.slot.index, None)
            fields = {"process": child.slot.name, "pid": child.pid}
            LOGGER.info("process started", extra={"fields": fields})
            if self._is_stopping:
                self._send_drain()
        else:
            # The channel is readable for ever once the process has closed it. Its end is found by `_reap`.
            with suppress(KeyError):
                self._selector.unregister(child.channel)

    def _handle_signals(self) -> None:
        signals, self._signals[:] = list(self._signals), []
        for number in signals:
            if number == signal.SIGHUP:
                for child in self._children.values():
                    os.kill(child.pid, signal.SIGHUP)
            elif self._is_stopping:
                self._kill_all()
                os._exit(128 + number)
            else:
                self._stop()

    def _stop(self) -> None:
        """Begin the shutdown: workers finish their requests, then writers end."""
        self._is_stopping = True
        self._restarts.clear()
        for child in self._children.values():
            if not child.is_ready:
                os.kill(child.pid, signal.SIGKILL)
        self._send_drain()

    def _send_drain(self) -> None:
        running = list(self._children.values())
        has_workers = any(child.slot.kind == "worker" for child in running)
        for child in running:
            if child.slot.kind == "worker" or not has_workers:
                with suppress(OSError):
                    child.channel.send(DRAIN)

    def _reap(self, *, is_starting: bool) -> None:
        for pid in [*self._children]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._handle_end(self._children.pop(pid), os.waitstatus_to_exitcode(status), is_starting)

    def _handle_end(self, child: _Child, code: int, is_starting: bool) -> None:
        slot = child.slot
        child.read()
        with suppress(KeyError):
            self._selector.unregister(child.channel)
        child.channel.close()
        self._usage.clear(slot.index)
        if self._is_stopping:
            # Connections in the queue of the socket would otherwise wait for the end of the server.
            slot.listener.close()
            self._has_failed_child = self._has_failed_child or code != 0
            if not any(item.slot.kind == "worker" for item in self._children.values()):
                self._send_drain()
            return
        fields = {"process": slot.name, "pid": child.pid, "exit_code": code}
        if child.is_ready:
            LOGGER.error("process ended, restarting it", extra={"fields": fields})
            is_stable = time.monotonic() - child.started_at > _STABLE_SECONDS
            crashes = self._crashes[slot.index] = 0 if is_stable else self._crashes.get(slot.index, -1) + 1
            self._restarts[slot.index] = time.monotonic() + _delay(crashes)
            return
        error = child.error()
        reason = str(error) if error is not None else f"it exited with {code}"
        LOGGER.error("process did not start", extra={"fields": {**fields, "reason": reason}})
        failures = self._failures[slot.index] = self._failures.get(slot.index, 0) + 1
        if is_starting or failures >= MAX_FAILED_STARTS:
            self._failure = error or OmnigraphError(f"{slot.name} did not start: {reason}")
            self._stop()
        else:
            self._restarts[slot.index] = time.monotonic() + _delay(failures)

    # --- processes -----------------------------------------------------------------------------------------

    def _fork(self, slot: ProcessSlot) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._become_child(slot, theirs)
        theirs.close()
        ours.setblocking(False)
        child = self._children[pid] = _Child(slot, pid, ours)
        self._selector.register(ours, selectors.EVENT_READ, child)

    def _become_child(self, slot: ProcessSlot, channel: socket.socket) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in _STOP_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for child in self._children.values():
                child.channel.close()
            for other in self._slots.slots:
                if other is not slot:
                    other.close()
            self._usage.attach(slot.index)
            code = _run(lambda: self._start(slot, channel), channel)
        except BaseException:  # noqa: BLE001 - the process ends here
            traceback.print_exc()
        finally:
            # Exit handlers and threads of the parent are not of this process.
            os._exit(code)

    def _kill_all(self) -> None:
        for child in self._children.values():
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        for child in self._children.values():
            os.waitpid(child.pid, 0)
            child.channel.close()
        self._children.clear()


def ask_in_child(question: Callable[[], Any]) -> Any:
    """Return the JSON value of a function that runs in a short-lived child. Raises its error.

    Reading a configuration can start threads, which the parent must not have.
    """
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ours.close()
            code = _run(
                lambda: theirs.sendall(json.dumps({"answer": question()}).encode()),
                theirs,
            )
        except BaseException:  # noqa: BLE001 - the process ends here
            traceback.print_exc()
        finally:
            os._exit(code)
    theirs.close()
    with ours:
        received = b""
        while data := ours.recv(1 << 16):
            received += data
    os.waitpid(pid, 0)
    document = json.loads(received) if received else {}
    if "error" in document:
        raise decode_error(document["error"])
    if "answer" not in document:
        raise OmnigraphError("the configuration could not be read: the process that reads it ended")
    return document["answer"]


def _run(work: Callable[[], None], channel: socket.socket) -> int:
    """Run the work of a child and return its exit code. The parent gets an error of this library."""
    try:
        work()
    except OmnigraphError as error:
        channel.sendall(json.dumps({"error": encode_error(error)}).encode())
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _delay(failures: int) -> float:
    return 0.0 if failures == 0 else min(_LONGEST_DELAY, _FIRST_DELAY * 2.0**failures)


@contextmanager
def _signal_handlers(wakes: int, record: Callable[[int], None]) -> Iterator[None]:
    """Record signals, and wake up the selector at each."""

    def handle(number: int, _frame: FrameType | None) -> None:
        record(number)

    before = {number: signal.signal(number, handle) for number in (*_STOP_SIGNALS, signal.SIGHUP)}
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
    former = signal.set_wakeup_fd(wakes)
    try:
        yield
    finally:
        signal.set_wakeup_fd(former)
        for number, handler in before.items():
            signal.signal(number, handler)
