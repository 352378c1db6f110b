"""Questions that the processes of a server ask each other: metrics, damaged graphs and running requests."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

from anyio import to_thread

from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.protocol.codec import decode_error, encode_error
from omnigraph.server.logs import LOGGER
from omnigraph.server.metrics import Metrics
from omnigraph.server.readiness import Readiness
from omnigraph.server.running_queries import RunningQueries
from omnigraph.server.workers.metric_history import history_path, read_counters
from omnigraph.server.workers.metric_sums import sum_metrics
from omnigraph.server.workers.process_slots import ProcessSlot, ProcessSlots

_METRICS: Final = b"metrics\n"
_PROBLEMS: Final = b"problems\n"
_QUERIES: Final = b"queries "
_CANCEL: Final = b"cancel "
# A process that does not answer in time is left out. It may be starting.
_ANSWER_SECONDS: Final = 2.0


class ControlServer:
    """Answers the questions of other processes."""

    def __init__(self, metrics: Metrics, readiness: Readiness, queries: RunningQueries) -> None:
        self._metrics = metrics
        self._queries = queries
        self._readiness = readiness
        self._server: asyncio.Server | None = None

    async def start(self, bound: socket.socket) -> None:
        """Listen on the control socket of this process."""
        self._server = await asyncio.start_unix_server(self._answer, sock=bound)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            question = await reader.readline()
            if question == _METRICS:
                writer.write(self._metrics.render())
            elif question == _PROBLEMS:
                found = await to_thread.run_sync(self._readiness.find_problems)
                writer.write(json.dumps({id_: encode_error(item) for id_, item in found.items()}).encode())
            elif question.startswith(_QUERIES):
                asked = json.loads(question.removeprefix(_QUERIES))
                writer.write(json.dumps(self._queries.list(asked["graph_id"])).encode())
            elif question.startswith(_CANCEL):
                asked = json.loads(question.removeprefix(_CANCEL))
                try:
                    cancelled = self._queries.cancel(asked["graph_id"], asked["id"], asked["actor"])
                except NotFound:
                    # Another process runs it.
                    cancelled = {}
                writer.write(json.dumps(cancelled).encode())
            await writer.drain()
        except ConnectionError:
            # The process that asked has ended.
            pass
        finally:
            writer.close()


class Peers:
    """The other processes of the server, as one of them sees them."""

    def __init__(self, slots: ProcessSlots, own: ProcessSlot) -> None:
        self._slots = slots
        self._others = [slot for slot in slots.slots if slot.index != own.index]

    async def sum_metrics(self, own: bytes) -> bytes:
        """Return the metrics of all processes. `own` are those of this process."""
        answers = await self._ask(self._others, _METRICS)
        texts = [own.decode()]
        for slot in self._others:
            answer = answers.get(slot.name)
            # A process that is being restarted still counts with what it last reported.
            texts.append(
                read_counters(history_path(slot.control_path)) if answer is None else answer.decode()
            )
        return sum_metrics(texts).encode()

    async def find_problems(self, own: Mapping[str, OmnigraphError]) -> Mapping[str, OmnigraphError]:
        """Return the problems that any process has found. A graph whose writer does not answer is one."""
        answers = await self._ask(self._others, _PROBLEMS)
        problems: dict[str, OmnigraphError] = {}
        for slot in self._others:
            answer = answers.get(slot.name)
            if answer is not None:
                problems |= {id_: decode_error(item) for id_, item in json.loads(answer).items()}
            elif slot.kind == "writer":
                error = StorageError("the writer process is not running", transient=True)
                problems |= dict.fromkeys(self._slots.graphs_of(slot), error)
        return {**problems, **own}

    async def list_queries(self, graph_id: str) -> list[dict[str, Any]]:
        """Return the running requests of a graph in the other processes."""
        answers = await self._ask(self._others, _QUERIES + _line({"graph_id": graph_id}))
        return [item for answer in answers.values() for item in json.loads(answer)]

    async def cancel_query(self, graph_id: str, id_: str, actor: str | None) -> dict[str, Any] | None:
        """Cancel a request in the process that runs it; None if there is none."""
        question = _CANCEL + _line({"graph_id": graph_id, "id": id_, "actor": actor})
        answers = await self._ask(self._others, question)
        return next((found for answer in answers.values() if (found := json.loads(answer))), None)

    async def _ask(self, slots: Sequence[ProcessSlot], question: bytes) -> dict[str, bytes]:
        answers = await asyncio.gather(*(self._ask_one(slot, question) for slot in slots))
        return {slot.name: text for slot, text in zip(slots, answers, strict=True) if text is not None}

    async def _ask_one(self, slot: ProcessSlot, question: bytes) -> bytes | None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                reader, writer = await asyncio.open_unix_connection(slot.control_path)
                try:
                    writer.write(question)
                    return await reader.read() or None
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            LOGGER.warning("a process does not answer", extra={"fields": {"peer": slot.name}})
            return None


def _line(members: Mapping[str, Any]) -> bytes:
    return json.dumps(members).encode() + b"\n"
