"""Worker processes that start at once: forked from a server that has imported everything.

A worker is a process of its own, and can be killed or traced as any other.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.waiting import HANG

_ROOT = Path(__file__).parents[2]


class Worker:
    """A running worker, with the part of `subprocess.Popen` that tests use. Its stderr is read at the end."""

    def __init__(self, pid: int, stdin: int, stdout: int, stderr: Any, exit_code: int) -> None:
        self.pid = pid
        self.stdin = os.fdopen(stdin, "w", encoding="utf-8")
        self.stdout = os.fdopen(stdout, encoding="utf-8")
        self.returncode: int | None = None
        self._stderr = stderr
        self._exit_code = exit_code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.wait()
        self._close_streams()

    def close(self) -> None:
        """Kill the worker, unless it has ended, and close its streams."""
        self.kill()
        self.wait()
        self._close_streams()

    def poll(self) -> int | None:
        """Return the exit code if the worker has ended; negative for a signal."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            # Unlike `select`, it takes descriptors of any number.
            waiting = select.poll()
            waiting.register(self._exit_code, select.POLLIN | select.POLLHUP)
            if not waiting.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout or 0)
            text = os.read(self._exit_code, 16)
            os.close(self._exit_code)
            assert text, "the fork server ended"
            self.returncode = int(text)
        return self.returncode

    def kill(self) -> None:
        """Kill the worker, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the worker has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def errors_so_far(self) -> str:
        """Return what the worker has written to stderr until now."""
        # Unlike `read`, it does not move the position at which the worker writes.
        return os.pread(self._stderr.fileno(), 1 << 24, 0).decode()

    def communicate(self, text: str = "", timeout: float = HANG) -> tuple[str, str]:
        """Send a text, and return stdout and stderr at the end. A worker that takes longer is killed."""
        output, errors = self.communicate_bytes(text.encode(), timeout)
        return output.decode(), errors.decode()

    def communicate_bytes(self, data: bytes = b"", timeout: float = HANG) -> tuple[bytes, bytes]:
        """Send bytes, and return stdout and stderr at the end. A worker that takes longer is killed."""
        watchdog = threading.Timer(timeout, self.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            with suppress(BrokenPipeError):
                self.stdin.buffer.write(data)
                self.stdin.close()
            output = bytes(self.stdout.buffer.read())
            self.wait()
        finally:
            watchdog.cancel()
        self._stderr.seek(0)
        errors: bytes = self._stderr.buffer.read()
        self._close_streams()
        return output, errors

    def _close_streams(self) -> None:
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self._stderr.close()


class _Server:
    """The fork server of this test process."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [
            sys.executable,
            "-m",
            "tests.support.lean",
            "tests.support.fork_server",
            str(theirs.fileno()),
        ]
        self._process = subprocess.Popen(command, cwd=_ROOT, pass_fds=[theirs.fileno()])
        theirs.close()
        self._lock = threading.Lock()
        atexit.register(self._stop)

    def start(self, request: dict[str, Any], given_stdin: int | None) -> Worker:
        """Fork a worker. Its stdin is a pipe, unless one is given."""
        their_stdin, stdin = os.pipe()
        stdout, their_stdout = os.pipe()
        exit_code, their_exit_code = os.pipe()
        stderr = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - read by the worker's owner
        worker_stdin = their_stdin if given_stdin is None else given_stdin
        theirs = [worker_stdin, their_stdout, stderr.fileno(), their_exit_code]
        with self._lock:
            socket.send_fds(self._connection, [json.dumps(request).encode()], theirs)
            pid = int(self._connection.recv(32))
        for descriptor in (their_stdin, their_stdout, their_exit_code):
            os.close(descriptor)
        return Worker(pid, stdin, stdout, stderr, exit_code)

    def _stop(self) -> None:
        self._connection.close()
        self._process.wait(timeout=HANG)


@cache
def _server() -> _Server:
    return _Server()


def start_worker(
    program: str,
    *arguments: str,
    trace: dict[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path = _ROOT,
    stdin: int | None = None,
    imports: Sequence[str] = (),
    finalizes: bool = False,
) -> Worker:
    """Start a module, or a program text, with arguments.

    `trace` are the options of `tracer.trace`, `stdin` is a descriptor that replaces the pipe, `imports` are modules
    that the server imports before it forks. A worker that `finalizes` waits for its threads and calls its exit
    handlers; others end at once.
    """
    request = {
        "program": program,
        "arguments": list(arguments),
        "environment": dict(os.environ if environment is None else environment),
        "trace": trace,
        "folder": str(folder),
        "imports": list(imports),
        "finalizes": finalizes,
    }
    return _server().start(request, stdin)
