"""A server process that can be killed and restarted on the same port."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_MAIN = "from omnigraph.cli.main import main; main()"
_GRACE = 60


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and its threads; 0 after it has ended."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class ServerProcess:
    """`omnigraph serve` on one port while the context is active. Its log goes to a file."""

    def __init__(self, config: Path, tokens: Path, log: Path, workers: int = 1) -> None:
        self._config = config
        self._tokens = tokens
        self._log = log
        self._workers = workers
        self._process: subprocess.Popen[str] | None = None
        # Bound but not listening: it reserves the port while the server is down. Otherwise a client that connects
        # could be assigned the port as its source port, and connect to itself.
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port: int = self._held.getsockname()[1]

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> ServerProcess:
        try:
            self.start()
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._held.close()

    def start(self) -> None:
        """Start the server, and wait until it accepts requests."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OMNIGRAPH")}
        bind = f"127.0.0.1:{self.port}"
        arguments = ["serve", str(self._config), "--bind", bind, "--workers", str(self._workers)]
        with self._log.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**kept, "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(self._tokens)},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("OMNIGRAPH_LISTEN_ADDR="):
            self.kill()
            last = self._log.read_text(encoding="utf-8").splitlines()[-5:]
            raise RuntimeError("the server did not start: " + "\n".join(last))

    def kill(self) -> None:
        """Kill the server (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            # Reap the process and close its output.
            self._process.communicate()
            self._process = None

    def kill_child(self, name: str) -> None:
        """Kill a process of the server by its name, such as ``writer-0``. The server restarts it."""
        with suppress(ProcessLookupError):
            os.kill(self._children()[name], signal.SIGKILL)

    def processor_seconds(self) -> dict[str, float]:
        """Return the processor time so far by kind of process: worker, writer, and server for a single process."""
        started = {"server": self._process.pid} if self._process is not None else {}
        if children := self._children():
            started = children
        found: dict[str, float] = {}
        for name, pid in started.items():
            kind = name.partition("-")[0]
            found[kind] = found.get(kind, 0.0) + processor_seconds(pid)
        return found

    def _children(self) -> dict[str, int]:
        """Return the process ids by name, as the log has them. A later line replaces an earlier one."""
        lines = self._log.read_text(encoding="utf-8").splitlines()
        read = [json.loads(line) for line in lines if line[:1] == "{"]
        return {line["process"]: line["pid"] for line in read if line["message"] == "process started"}

    def stop(self) -> int:
        """Stop the server (SIGTERM) and return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=_GRACE)
        code, self._process = self._process.returncode, None
        return code
