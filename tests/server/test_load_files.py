"""Loads of files over HTTP with multipart bodies."""

from __future__ import annotations

import gzip
import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from omnigraph.protocol import responses
from omnigraph.server.limits import ServerLimits
from tests.server.running import PEOPLE, TOKENS, Running, error_body, host, names, rows, running, success_body
from tests.support.waiting import HANG, wait_until

CSV = b"name,age\nCid,7\nDee,\n"
BROKEN = b'--b\r\nContent-Disposition: form-data; name="records"; filename="a.ndjson"\r\n\r\n'
FORM = {"Content-Type": "multipart/form-data; boundary=b"}


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which the server, which is this process, keeps uploads."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def load(client: httpx.Client, *parts: tuple[str, Any], **params: Any) -> httpx.Response:
    return client.post("/load/files", files=list(parts), params=params)


def beginning(server: Running, path: str, size: int, headers: dict[str, str]) -> socket.socket:
    """Open a connection and send only the headers of a load."""
    host_, _, port = server.url.removeprefix("http://").partition(":")
    fields = {"Host": "x", **FORM, "Content-Length": str(size), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    connection = socket.create_connection((host_, int(port)), timeout=HANG)
    connection.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode())
    return connection


def test_load_files_of_several_types_is_one_commit(client: httpx.Client, spool: Path) -> None:
    knows = b'{"from": "Cid", "to": "Ann"}\n'
    response = load(
        client, ("Person", ("people.csv", CSV)), ("edge:Knows", ("knows.jsonl.gz", gzip.compress(knows)))
    )
    found = success_body(response, responses.GraphBatchLoadOutput)
    assert found["nodes"] == [{"name": "Person", "entities_loaded": 2}]
    assert found["edges"] == [{"name": "Knows", "entities_loaded": 1}]
    assert (found["mode"], found["commit"]) == ("merge", client.get("/commits").json()["commits"][0])
    assert names(client) == ["Ann", "Bob", "Cid", "Dee"]
    assert list(spool.iterdir()) == []


def test_load_records_from_many_files(client: httpx.Client) -> None:
    files = [
        ("records", (f"{n}.ndjson", json.dumps({"type": "Person", "data": {"name": f"P{n:03}"}})))
        for n in range(30)
    ]
    found = success_body(load(client, *files, mode="append", message="many"), responses.GraphBatchLoadOutput)
    assert found["total_entities"] == 30
    assert names(client)[2:] == [f"P{n:03}" for n in range(30)]


def test_load_files_with_mapping(client: httpx.Client) -> None:
    mapping = ("mapping", (None, json.dumps({"Person": {"columns": {"name": "who"}}})))
    success_body(load(client, mapping, ("Person", ("x.csv", b"who\nCid\n"))), responses.GraphBatchLoadOutput)
    assert names(client) == ["Ann", "Bob", "Cid"]
    wrong = ("mapping", ("my map.yaml", b"Person:\n  colums: {}\n"))
    found = error_body(load(client, wrong, ("Person", ("x.csv", b"who\nCid\n"))), 400)
    assert found["error"].startswith("my map.yaml: line 2: Person.colums: unknown field")


@pytest.mark.parametrize("source", ["/etc/passwd", "people.csv", "file:///etc/passwd", "s3://bucket/x.csv"])
def test_mapping_cannot_read_server_files(
    client: httpx.Client, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "people.csv").write_bytes(CSV)
    monkeypatch.chdir(tmp_path)
    mapping = {"Person": {"source": source, "format": "csv", "ignore": True}}
    refused = "a mapping of node:Person and no rows to load"
    for mode in ("merge", "overwrite"):
        response = load(client, ("mapping", (None, json.dumps(mapping))), mode=mode)
        assert error_body(response, 400)["error"] == refused
    assert names(client) == ["Ann", "Bob"]
    other = load(client, ("mapping", (None, json.dumps(mapping))), ("Person", ("x.csv", b"name\nCid\n")))
    assert success_body(other, responses.GraphBatchLoadOutput)["total_entities"] == 1
    assert names(client) == ["Ann", "Bob", "Cid"]


def test_empty_mapping_without_files_returns_400(client: httpx.Client) -> None:
    assert error_body(load(client, ("mapping", (None, "{}"))), 400)["error"].startswith(
        "a mapping of no type"
    )


@pytest.mark.parametrize(
    "mapping",
    [
        "\n".join(
            [
                "a0: &a0 {x: 1}",
                *(
                    f"a{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(10))}}}"
                    for n in range(1, 12)
                ),
            ]
        ),
        "Person: &p {columns: *p}",
        "{a: " * 5000 + "}" * 5000,
    ],
    ids=["grows", "holds itself", "is deep"],
)
def test_mapping_that_is_recursive_or_too_deep_returns_400(client: httpx.Client, mapping: str) -> None:
    response = load(client, ("mapping", ("m.yaml", mapping)), ("Person", ("people.csv", CSV)))
    assert error_body(response, 400)["error"].startswith("m.yaml")


def test_mapping_over_size_limit_returns_413(client: httpx.Client) -> None:
    for name in ("m.yaml", None):
        kind = "text/plain" if name else "application/vnd.omnigraph.rows"
        long = ("mapping", (name, b" " * (1 << 20) + b"\n{}", kind))
        found = error_body(load(client, long, ("Person", ("people.csv", CSV))), 413)
        assert found["resource_limit"]["resource"] == "load_mapping_bytes"


def test_file_names_over_total_size_return_413(client: httpx.Client, spool: Path) -> None:
    name = "a" * 12_000 + ".ndjson"
    parts = [("records", (name, b"\n")) for _ in range(700)]
    found = error_body(load(client, *parts), 413)
    assert found["resource_limit"]["resource"] == "load_name_bytes"
    assert list(spool.iterdir()) == []


def test_file_name_cannot_leave_upload_folder(client: httpx.Client, spool: Path) -> None:
    for name in (
        "../../out.csv",
        "/out.csv",
        "..\\out.csv",
        "a" * 3000 + ".csv",
        "sch\u00f6n\u2028*[x]?.csv",
    ):
        success_body(load(client, ("Person", (name, CSV))), responses.GraphBatchLoadOutput)
    assert list(spool.iterdir()) == []
    assert not (spool.parent / "out.csv").exists()


def test_load_error_names_client_file(client: httpx.Client, spool: Path) -> None:
    found = error_body(load(client, ("Person", ("data/people.csv", b"name,age\nAnn,old\n"))), 400)
    assert "old" in found["error"]
    assert str(spool) not in json.dumps(found)
    found = error_body(load(client, ("records", ("people.csv", CSV))), 400)
    assert found["error"] == "the type of the rows of `people.csv` is unknown"
    found = error_body(load(client, ("Person", ("people.csv.gz", b"not packed"))), 400)
    assert found["error"].startswith("cannot read `people.csv.gz`")
    error_body(load(client, ("Nobody", ("people.csv", CSV))), 404)
    assert names(client) == ["Ann", "Bob"]
    assert list(spool.iterdir()) == []


def test_load_files_with_rejects_returns_lines_and_receipt(client: httpx.Client, spool: Path) -> None:
    response = load(client, ("Person", ("people.csv", b"name,age\nCid,x\nDee,1\n")), rejects="true")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("application/x-ndjson")
    reject, last = map(json.loads, response.text.splitlines())
    assert (reject["source"], reject["line"]) == ("people.csv", 1)
    responses.GraphBatchLoadOutput.model_validate(last["receipt"])
    assert names(client) == ["Ann", "Bob", "Dee"]
    wrong = ("Knows", ("knows.csv", b"from,to\nAnn,Zoe\n,Ann\n"))
    error_body(load(client, wrong, rejects="true", max_rejects="1"), 400)
    assert list(spool.iterdir()) == []


@pytest.mark.parametrize(
    "parts",
    [
        [("records", ("a.ndjson", PEOPLE)), ("Person", ("a.csv", CSV))],
        [("mapping", (None, "{}")), ("mapping", (None, "{}"))],
        [("Person", ("a.csv", CSV)), ("Person", (None, b"x", "application/vnd.omnigraph.rows"))],
        [("Person", (None, b"{]\n", "application/vnd.omnigraph.rows"))],
        [("Person", (None, b'"t"\n{"t": "numpy", "t2": 1}\n', "application/vnd.omnigraph.rows"))],
        [
            (
                "Person",
                (None, b'"t"\n{"t":"numpy","t2":"O","s":[],"v":""}\n', "application/vnd.omnigraph.rows"),
            )
        ],
        [("Person", (None, b'["t"]\n{"a": 1}\n', "application/vnd.omnigraph.rows"))],
        [("Person", (None, b"no arrow", "application/vnd.apache.arrow.stream"))],
        [("Person", (None, b"no arrow", "application/vnd.omnigraph.batches"))],
        [("records", (None, b"{", "application/vnd.omnigraph.stream"))],
    ],
)
def test_invalid_upload_parts_return_400(client: httpx.Client, parts: list[Any]) -> None:
    error_body(load(client, *parts), 400)
    assert names(client) == ["Ann", "Bob"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no form",
        BROKEN + PEOPLE.encode(),
        BROKEN + PEOPLE.encode() + b"\r\n--b",
        b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n",
        b'--b\r\nContent-Disposition: form-data; name="\xff"\r\n\r\nx\r\n--b--\r\n',
        b"--b\r\n" + b"X-Long: " + b"a" * 20_000 + b"\r\n\r\nx\r\n--b--\r\n",
    ],
)
def test_incomplete_multipart_body_returns_400(client: httpx.Client, body: bytes, spool: Path) -> None:
    error_body(client.post("/load/files", content=body, headers=FORM), 400)
    assert names(client) == ["Ann", "Bob"]
    assert list(spool.iterdir()) == []


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "multipart/form-data",
        "multipart/mixed; boundary=b",
        f"multipart/form-data; boundary={'b' * 1000}",
        "",
    ],
)
def test_load_files_requires_multipart_media_type(client: httpx.Client, kind: str) -> None:
    error_body(client.post("/load/files", content=b"--b--\r\n", headers={"Content-Type": kind}), 415)


def test_arrow_batches_with_invalid_offsets_return_400(client: httpx.Client) -> None:
    offsets, data = pa.array([0, 1 << 20, 3], pa.int32()).buffers()[1], pa.py_buffer(b"Cid")
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([column], ["name"])
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    content = sink.getvalue().to_pybytes()
    for part in ((None, content, "application/vnd.apache.arrow.stream"), ("people.arrow", content)):
        error_body(load(client, ("Person", part)), 400)
    assert names(client) == ["Ann", "Bob"]


@pytest.mark.parametrize(
    ("actor", "path", "status"),
    [
        (None, "/graphs/team/load/files", 401),
        ("eve", "/graphs/team/load/files", 403),
        ("bob", "/graphs/team/load/files", 403),
        ("bob", "/graphs/team/load/files?branch=new&from=main", 403),
        ("ann", "/graphs/nowhere/load/files", 404),
    ],
)
def test_load_files_without_permission_does_not_read_body(
    guarded: Running, actor: str | None, path: str, status: int
) -> None:
    token = {} if actor is None else {"Authorization": f"Bearer {TOKENS[actor]}"}
    with beginning(guarded, path, 1 << 20, token) as connection:
        assert connection.recv(64).startswith(f"HTTP/1.1 {status} ".encode())


def test_disconnect_during_upload_removes_files(
    open_server: Running, client: httpx.Client, spool: Path
) -> None:
    def endless() -> Iterator[bytes]:
        yield BROKEN
        for _ in range(64):
            yield b" " * (1 << 16)
        wait_until(lambda: any(spool.iterdir()))
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        client.post("/load/files", content=endless(), headers=FORM)
    wait_until(lambda: not any(spool.iterdir()))
    wait_until(lambda: open_server.app.state.admission.in_flight == 0)
    assert names(client) == ["Ann", "Bob"]


def test_load_files_size_limit_and_actor_limit(spool: Path) -> None:
    with (
        running(host(limits=ServerLimits(load_bytes=10_000, actor_requests=1))) as server,
        server.client() as client,
    ):
        found = error_body(load(client, ("Person", ("a.csv", CSV * 1000))), 413)
        assert (found["resource_limit"]["resource"], found["resource_limit"]["limit"]) == (
            "load_bytes",
            10_000,
        )
        big = iter([BROKEN, *(b" " * 1000 for _ in range(20))])
        error_body(client.post("/load/files", content=big, headers=FORM), 413)
        assert list(spool.iterdir()) == []
        with server.app.state.admission.admit(None, 1):
            error_body(load(client, ("Person", ("a.csv", CSV))), 429)
        success_body(load(client, ("Person", ("a.csv", CSV))), responses.GraphBatchLoadOutput)
        assert len(rows(client)) == 4


def test_load_files_counts_at_most_a_large_body(open_server: Running, client: httpx.Client) -> None:
    path = client.base_url.path.rstrip("/") + "/load/files"
    with beginning(open_server, path, 40 << 30, {}) as connection:
        connection.sendall(b"--b--\r\n")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(64)
