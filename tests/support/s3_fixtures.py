"""Fixtures for tests against S3; a test module asks for them with `pytest_plugins`."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from tests.support.s3 import Bucket, S3Server, running_server
from tests.support.waiting import HANG


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """The server of this test process."""
    with running_server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server) -> Iterator[Bucket]:
    """An empty bucket of the test's own."""
    with s3_server.bucket() as bucket:
        yield bucket


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """A second, independent implementation of S3, to keep the first one honest."""
    # Its import takes longer than most tests that need only the other server.
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def moto_bucket(moto_endpoint: str) -> tuple[str, dict[str, str]]:
    """An empty bucket there: its address and the options to reach it."""
    name = f"bucket-{uuid4().hex[:12]}"
    httpx.put(f"{moto_endpoint}/{name}", timeout=HANG, verify=False).raise_for_status()
    return f"s3://{name}", {
        "endpoint": moto_endpoint,
        "access_key_id": "test-key",
        "secret_access_key": "test-secret",
        "region": "us-east-1",
        "allow_http": "true",
        "timeout": "20s",
        "max_retries": "2",
        "retry_backoff": "10ms",
    }
