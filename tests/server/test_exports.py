"""Streaming exports with back-pressure."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import IO

import httpx
import pytest

from omnigraph.errors import ResourceLimit, StorageError
from omnigraph.server.http.streaming import PipeResponse, StreamPool
from tests.server.running import Running, error_body
from tests.support.waiting import HANG, wait_until

LINE = "x" * 1023 + "\n"


def test_export_streams_every_record(client: httpx.Client) -> None:
    response = client.post("/export", json={"type_names": ["Person"]})
    assert response.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    assert response.headers["transfer-encoding"] == "chunked"
    assert [json.loads(line)["data"]["id"] for line in response.text.splitlines()] == ["Ann", "Bob"]
    assert client.post("/export", json={"type_names": ["Knows"]}).text == ""
    everything = client.post("/export").text
    bodies: list[dict[str, list[str]]] = [
        {"table_keys": []},
        {"type_names": []},
        {"table_keys": ["node:Person", "edge:Knows"]},
    ]
    for body in bodies:
        assert client.post("/export", json=body).text == everything
    assert client.post("/export", json={"table_keys": ["edge:Knows"]}).text == ""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"branch": "nowhere"}, 404),
        ({"type_names": ["Nobody"]}, 400),
        ({"types": ["Person"]}, 400),
        ({"type_names": "Person"}, 400),
    ],
)
def test_export_error_has_error_status(client: httpx.Client, body: dict[str, object], status: int) -> None:
    error_body(client.post("/export", json=body), status)


def test_export_requires_export_permission(guarded: Running) -> None:
    with guarded.client("bob") as client:
        error_body(client.post("/export"), 403)
        error_body(client.post("/changes/baseline"), 403)
    with guarded.client("ann") as client:
        assert client.post("/export").status_code == 200


def run(test: Callable[[StreamPool], object]) -> None:
    async def body() -> None:
        streams = StreamPool(1)
        try:
            await test(streams)  # type: ignore[misc]
        finally:
            streams.close()

    asyncio.run(body())


def test_stream_writer_waits_for_reader() -> None:
    written = 0

    def produce(file: IO[str]) -> None:
        nonlocal written
        for _ in range(10_000):
            file.write(LINE)
            written += 1

    async def test(streams: StreamPool) -> None:
        response = await streams.start(produce, "text/plain")
        await asyncio.to_thread(wait_until, lambda: written)
        # A writer without back-pressure would finish in this time.
        await asyncio.sleep(0.2)
        assert 0 < written < 1_000
        size = sum([len(chunk) async for chunk in response.body_iterator])
        assert (written, size) == (10_000, 10_000 * len(LINE))

    run(test)


def test_stream_writer_stops_when_reader_disconnects() -> None:
    ended = threading.Event()

    def produce(file: IO[str]) -> None:
        try:
            while True:
                file.write(LINE)
        finally:
            ended.set()

    async def leave(response: PipeResponse) -> None:
        async def receive() -> dict[str, str]:
            return {"type": "http.disconnect"}

        async def send(_: object) -> None:
            raise OSError

        scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
        with pytest.raises(Exception):  # noqa: B017, PT011 - whichever way the library says it
            await response(scope, receive, send)

    async def test(streams: StreamPool) -> None:
        response = await streams.start(produce, "text/plain")
        with pytest.raises(ResourceLimit):
            await streams.start(produce, "text/plain")
        await leave(response)
        assert await asyncio.to_thread(ended.wait, HANG)
        ended.clear()
        while True:
            try:
                await leave(await streams.start(produce, "text/plain"))
                break
            except ResourceLimit:
                await asyncio.sleep(0.01)
        assert await asyncio.to_thread(ended.wait, HANG)

    run(test)


def test_error_during_stream_breaks_connection() -> None:
    def produce(file: IO[str]) -> None:
        for _ in range(200):
            file.write(LINE)
        raise StorageError("the disk is gone")

    async def test(streams: StreamPool) -> None:
        response = await streams.start(produce, "text/plain")
        with pytest.raises(StorageError):
            _ = [chunk async for chunk in response.body_iterator]

    run(test)
