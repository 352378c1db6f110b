"""The kind and the reason of storage errors, against a real S3 server and a real disk."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import get_args

import pytest

from omnigraph.errors import OmnigraphError, StorageError, StorageErrorKind
from omnigraph.protocol.codec import decode_error, encode_error
from omnigraph.store.lance.lance_errors import storage_error_from_lance
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.objects.object_store import ObjectStore
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]

Options = dict[str, str]
Access = Callable[[str, Options], object]


def get_object(uri: str, options: Options) -> object:
    return ObjectStore.open(uri, options).get("a")


def list_objects(uri: str, options: Options) -> object:
    return list(ObjectStore.open(uri, options).list(""))


def open_table(uri: str, options: Options) -> object:
    return LanceRoot.from_uri(uri, options, "full").open("t")


# Lance repeats a failed listing for two seconds, so only some tests open a table.
OBJECTS: list[Access] = [get_object, list_objects]
ALL: list[Access] = [*OBJECTS, open_table]


def unused_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def fail(
    access: Access, uri: str, options: Options, fault: AbstractContextManager[object] | None = None
) -> StorageError:
    with fault or nullcontext(), pytest.raises(OmnigraphError) as caught:
        access(uri, {**options, "max_retries": "0", "retry_timeout": "1s"})
    assert type(caught.value) is StorageError, caught.value
    assert caught.value.details["kind"] == caught.value.kind
    return caught.value


@pytest.mark.parametrize("access", ALL)
def test_access_with_wrong_key_is_a_configuration_error(s3: Bucket, access: Access) -> None:
    error = fail(access, s3.uri, {**s3.options, "access_key_id": "other"})
    assert error.kind == "configuration"
    assert "403 InvalidAccessKeyId" in error.message
    assert "AWS_ACCESS_KEY_ID" in str(error.hint)


@pytest.mark.parametrize("access", OBJECTS)
def test_access_to_wrong_bucket_is_not_found_and_names_the_cause(s3: Bucket, access: Access) -> None:
    error = fail(access, "s3://no-such-bucket/graph", s3.options)
    assert error.kind == "not_found"
    assert "NoSuchBucket" in error.message


@pytest.mark.parametrize("access", OBJECTS)
def test_access_without_server_is_transient_and_names_the_endpoint(s3: Bucket, access: Access) -> None:
    endpoint = f"http://127.0.0.1:{unused_port()}"
    error = fail(access, s3.uri, {**s3.options, "endpoint": endpoint})
    assert error.kind == "transient"
    assert error.transient
    assert endpoint in error.message


@pytest.mark.parametrize("access", ALL)
def test_http_endpoint_that_is_not_allowed_reports_the_url_scheme(s3: Bucket, access: Access) -> None:
    error = fail(access, s3.uri, {**s3.options, "allow_http": "false"})
    assert error.kind == "configuration"
    assert "the URL scheme of http://127.0.0.1" in error.message
    assert "allow_http" in str(error.hint)


@pytest.mark.parametrize("access", ALL)
def test_request_that_times_out_is_transient(s3: Bucket, access: Access) -> None:
    options = {**s3.options, "timeout": "200ms"}
    error = fail(access, s3.uri, options, s3.seam.fail("hang", times=None))
    assert error.kind == "transient"
    assert "the connection failed" in error.message


@pytest.mark.parametrize("access", OBJECTS)
@pytest.mark.parametrize(
    ("status", "kind"),
    [(403, "configuration"), (500, "transient"), (503, "transient"), (501, "permanent"), (429, "transient")],
)
def test_status_of_the_store_decides_the_kind(s3: Bucket, access: Access, status: int, kind: str) -> None:
    error = fail(access, s3.uri, {**s3.options}, s3.seam.fail(status, times=None))
    assert error.kind == kind
    assert f"status {status}" in error.message
    assert error.details["status"] == status


def test_put_with_forbidden_http_endpoint_was_not_sent(s3: Bucket) -> None:
    """A request that the client refuses to send leaves no doubt about its outcome."""
    store = ObjectStore.open(s3.uri, {**s3.options, "allow_http": "false"})
    with pytest.raises(StorageError) as caught:
        store.put("a", b"1")
    assert caught.value.kind == "configuration"


def test_file_in_the_place_of_a_directory_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "graph").write_text("")
    with pytest.raises(StorageError) as caught:
        ObjectStore.open(str(tmp_path / "graph")).put("a/b", b"1")
    assert caught.value.kind == "configuration"


@pytest.mark.parametrize("kind", get_args(StorageErrorKind))
def test_kind_survives_the_encoding_for_remote_clients(kind: StorageErrorKind) -> None:
    error = decode_error(encode_error(StorageError("failed", kind=kind)))
    assert isinstance(error, StorageError)
    assert (error.kind, error.transient) == (kind, kind == "transient")


def test_kind_that_this_client_does_not_know_is_unknown() -> None:
    document = encode_error(StorageError("failed"))
    document["details"]["kind"] = "invented"
    error = decode_error(document)
    assert isinstance(error, StorageError)
    assert error.kind == "unknown"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "LanceError(IO): Error performing GET http://127.0.0.1:9/b in 1ms - HTTP error: error sending request",
            "transient",
            "the connection failed (request, http://127.0.0.1:9)",
        ),
        (
            "Generic S3 error: Server returned non-2xx status code: 404 Not Found: <Code>NoSuchBucket</Code>",
            "not_found",
            "the store returned status 404 NoSuchBucket",
        ),
        (
            "Error performing PUT http://169.254.169.254/latest/api/token - HTTP error: error sending request",
            "configuration",
            "no credentials were found",
        ),
        ("LanceError(IO): No space left on device (os error 28)", "permanent", "No space left on device"),
        ("LanceError(IO): Permission denied (os error 13)", "configuration", "Permission denied"),
        ("LanceError(IO): Read-only file system (os error 30)", "permanent", "Read-only file system"),
    ],
)
def test_message_of_lance_decides_the_kind(text: str, kind: str, message: str) -> None:
    error = storage_error_from_lance(OSError(text), "open t")
    assert isinstance(error, StorageError)
    assert error.kind == kind
    assert message in error.message
