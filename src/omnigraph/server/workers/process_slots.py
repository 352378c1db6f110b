"""The processes of one server and their sockets, which the parent creates before it forks."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from zlib import crc32

from omnigraph.errors import InvalidInput
from omnigraph.server.workers.pushed_rows import RowChannel

Kind = Literal["worker", "writer"]
BACKLOG: Final = 512
# The kernel limits the path of a Unix socket to 107 bytes.
_PATH_BYTES: Final = 107
_IS_LINUX: Final = sys.platform == "linux"


@dataclass(frozen=True)
class ProcessSlot:
    """A process of the server, with the sockets that it and its successors inherit.

    The parent keeps the sockets open. A connection that arrives while the process is restarted waits in the queue
    of the socket instead of being refused.
    """

    index: int
    kind: Kind
    number: int
    listener: socket.socket = field(repr=False)
    control: socket.socket = field(repr=False)
    control_path: str
    # Address of the listener of a writer.
    path: str | None = None
    # The rows that writers push to a worker.
    rows: RowChannel | None = None

    @property
    def name(self) -> str:
        """The name in the log, such as ``worker-0``."""
        return f"{self.kind}-{self.number}"

    def close(self) -> None:
        """Close the sockets in this process, except for that of pushed rows, which every writer sends to."""
        self.listener.close()
        self.control.close()


@dataclass(frozen=True)
class ProcessSlots:
    """All processes of one server, writers first, and the writer of each graph."""

    slots: Sequence[ProcessSlot]
    graph_ids: Sequence[str]

    @property
    def workers(self) -> list[ProcessSlot]:
        """The processes that accept connections of clients."""
        return [slot for slot in self.slots if slot.kind == "worker"]

    @property
    def writers(self) -> list[ProcessSlot]:
        """The processes that commit."""
        return [slot for slot in self.slots if slot.kind == "writer"]

    def writer_of(self, graph_id: str) -> ProcessSlot:
        """Return the writer of a graph. A graph that was added after the start has one, too."""
        writers = self.writers
        known = graph_id in self.graph_ids
        number = self.graph_ids.index(graph_id) if known else crc32(graph_id.encode())
        return writers[number % len(writers)]

    def opens(self, slot: ProcessSlot, graph_id: str) -> bool:
        """Return whether a process opens a graph: a worker opens all, a writer its own."""
        return slot.kind == "worker" or self.writer_of(graph_id) is slot

    def graphs_of(self, slot: ProcessSlot) -> list[str]:
        """Return the graphs that a process opens at the start."""
        return [id_ for id_ in self.graph_ids if self.opens(slot, id_)]

    def close(self) -> None:
        """Close all sockets in this process."""
        for slot in self.slots:
            slot.close()
            if slot.rows is not None:
                slot.rows.close()


def create_slots(
    address: socket.socket, folder: Path, graph_ids: Sequence[str], workers: int, writers: int
) -> ProcessSlots:
    """Create the sockets of all processes. `address` is the first socket of the port.

    On Linux each worker has a socket of the same port, among which the kernel distributes connections evenly. On
    other systems the workers share one socket.
    """
    slots: list[ProcessSlot] = []
    for number in range(writers):
        path = folder / f"writer-{number}.sock"
        control = folder / f"writer-{number}.ctl"
        slots.append(
            ProcessSlot(
                len(slots), "writer", number, _listen(path), _listen(control), str(control), str(path)
            )
        )
    for number in range(workers):
        control = folder / f"worker-{number}.ctl"
        listener = address if number == 0 else _same_port(address)
        rows = RowChannel.create()
        slots.append(
            ProcessSlot(len(slots), "worker", number, listener, _listen(control), str(control), rows=rows)
        )
    return ProcessSlots(tuple(slots), tuple(sorted(graph_ids)))


def _same_port(address: socket.socket) -> socket.socket:
    if not _IS_LINUX:
        return address.dup()
    made = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if address.family == socket.AF_INET6:
            only = address.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.bind(address.getsockname())
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _listen(path: Path) -> socket.socket:
    if len(str(path).encode()) > _PATH_BYTES:
        raise InvalidInput(
            f"the path of the temporary folder is too long for a socket: {path}",
            hint="set TMPDIR to a folder with a shorter path, or serve with --workers 1",
        )
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(str(path))
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made
