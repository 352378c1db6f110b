"""A process that has imported everything and forks a worker for each request.

    python -m tests.support.lean tests.support.fork_server 5

The argument is the number of a connected socket. `forked` starts the server and sends the requests. A short worker
process spends most of its time importing Lance and Arrow; a forked one does not. The server only imports: Lance and
obstore start their threads at the first use, which is in the worker.

A request is a JSON object with the descriptors of stdin, stdout and stderr of the worker, and of a pipe for its
exit code. The server first imports the modules that the request names. The reply is the process id of the worker.
The server kills all workers and ends when the connection is closed.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import traceback
import warnings
from contextlib import suppress
from typing import Any, Final, NoReturn

# What workers need. They import the rest themselves.
import tests.support.workload  # noqa: F401
from tests.support.tracer import trace

_STREAMS: Final = 3
_LAST_DESCRIPTOR: Final = 4_096
REQUEST_BYTES: Final = 1 << 17


class Server:
    """Forks workers and reports how each of them ends."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._exits: dict[int, int] = {}

    def run(self) -> None:
        """Serve until the connection is closed."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        ended, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup)
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            selector.register(ended, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fd == ended:
                        os.read(ended, 4_096)
                        self._collect()
                    elif not self._serve():
                        self._kill_all()
                        return

    def _serve(self) -> bool:
        message, descriptors, *_ = socket.recv_fds(self._connection, REQUEST_BYTES, _STREAMS + 1)
        if not message:
            return False
        request = json.loads(message)
        for module in request["imports"]:
            importlib.import_module(module)
        pid = os.fork()
        if pid == 0:
            _become_worker(request, descriptors)
        for descriptor in descriptors[:_STREAMS]:
            os.close(descriptor)
        self._exits[pid] = descriptors[_STREAMS]
        self._connection.sendall(str(pid).encode())
        return True

    def _collect(self) -> None:
        while self._exits:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            descriptor = self._exits.pop(pid)
            with suppress(BrokenPipeError):
                os.write(descriptor, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(descriptor)

    def _kill_all(self) -> None:
        for pid in self._exits:
            os.kill(pid, signal.SIGKILL)


def _become_worker(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, descriptor in enumerate(descriptors[:_STREAMS]):
        os.dup2(descriptor, target)
    os.closerange(_STREAMS, _LAST_DESCRIPTOR)
    _open_streams()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])

    def work() -> NoReturn:
        _end(lambda: _run(request["program"], request["arguments"]), finalizes=request["finalizes"])

    if request["trace"] is None:
        work()
    _end(lambda: trace(request["trace"], work))


def _open_streams() -> None:
    """Make the streams anew: those of the server know its own files, for example whether they are seekable."""
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - descriptors
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )


def _run(program: str, arguments: list[str]) -> None:
    """Run a module by its name, or a program by its text, as `python -m` and `python -c` do."""
    sys.argv = [program, *arguments]
    if program.replace(".", "").replace("_", "").isalnum():
        sys.modules.pop(program, None)
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})


def _finalize() -> None:
    """Wait for threads and call exit handlers, as the interpreter does at the end of a program."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def _end(work: Any, *, finalizes: bool = False) -> NoReturn:
    """Do the work of a process and end it, without returning to the server."""
    code = 0
    try:
        work()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - the last frame of the process
        traceback.print_exc()
        code = 1
    finally:
        if finalizes:
            _finalize()
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    # Lance warns of every fork. Its threads do not run in the server.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    Server(socket.socket(fileno=int(sys.argv[1]))).run()
