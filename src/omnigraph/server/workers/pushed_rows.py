"""Rows of new fragments, pushed from writers to workers, so that workers need not read them from storage.

A writer sends the rows of each small fragment that it writes to all workers. The rows of a fragment never change,
and its file names are unique, so rows may arrive before their commit, after a read, or not at all. A worker finds
commits in storage as before, and uses pushed rows only for a fragment that a committed version names.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from omnigraph.server.hosted_graphs import HostedGraph
    from omnigraph.store.tables.table_fragments import TableFragment

# Rows of more bytes are read from storage, which takes less time for each byte.
MAX_BYTES: Final = 32 << 10
# A message also has the schema and the names of the fragment.
_MAX_MESSAGE: Final = 64 << 10
# Messages that wait while a worker is busy. The kernel may allow less.
_QUEUED_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class RowChannel:
    """The two ends of a queue of messages to one worker. All processes inherit both from the parent.

    Messages that wait for a worker that ended are received by its successor. A full queue rejects messages.
    """

    sender: socket.socket = field(repr=False)
    receiver: socket.socket = field(repr=False)

    @classmethod
    def create(cls) -> RowChannel:
        """Create a channel."""
        sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _QUEUED_BYTES)
        sender.setblocking(False)
        receiver.setblocking(False)
        return cls(sender, receiver)

    def close(self) -> None:
        """Close both ends in this process."""
        self.sender.close()
        self.receiver.close()


class RowSender:
    """Sends the rows that the graphs of a writer write. Safe to share between threads."""

    def __init__(self, channels: Sequence[RowChannel]) -> None:
        self._sockets = [channel.sender for channel in channels]

    def follow(self, hosted: HostedGraph) -> None:
        """Send the rows that a graph writes from now on."""

        def send(path: str, fragment: TableFragment, rows: pa.Table) -> None:
            self.send(hosted.id, path, fragment.files, rows)

        hosted.reader.ids.on_written = send

    def send(self, graph_id: str, path: str, files: str, rows: pa.Table) -> None:
        """Send all rows of a fragment, given its data files. A worker whose queue is full does not get them."""
        if rows.nbytes > MAX_BYTES:
            return
        message = _encode(graph_id, path, files, rows)
        if len(message) > _MAX_MESSAGE:
            return
        for target in self._sockets:
            with suppress(OSError):
                target.send(message)


class RowReceiver:
    """Adds received rows to the caches of the graphs of a worker."""

    def __init__(self, channel: RowChannel, graphs: Mapping[str, HostedGraph]) -> None:
        self.socket = channel.receiver
        self._graphs = graphs

    def receive(self) -> None:
        """Receive the messages that wait."""
        while True:
            try:
                message = self.socket.recv(_MAX_MESSAGE)
            except BlockingIOError:
                return
            header, _, data = message.partition(b"\n")
            graph_id, path, files = json.loads(header)
            hosted = self._graphs.get(graph_id)
            if hosted is not None:
                hosted.reader.ids.add_written(path, files, pa.ipc.open_stream(data).read_all())


def _encode(graph_id: str, path: str, files: str, rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    sink.write(json.dumps([graph_id, path, files]).encode() + b"\n")
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    message: bytes = sink.getvalue().to_pybytes()
    return message
