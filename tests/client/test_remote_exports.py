"""Exports over HTTP write what exports write where the graph is."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import omnigraph as og
from omnigraph.api.files.export_files import ExportOptions
from omnigraph.client.exports import fetch_export
from omnigraph.client.transport import Transport
from omnigraph.errors import InvalidInput, StorageError
from omnigraph.store.objects.object_store import ObjectStore
from tests.client.twins import SCHEMA, Twins, make_twins, refusal_of, told
from tests.server.running import TOKENS, Running
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]

RECORDS = [
    {"type": "Person", "data": {"name": "Zoë", "photo": "base64:AAH/", "tags": ["ä", "b"], "v": [1, 2, 3.5]}},
    {"type": "Person", "data": {"name": "Ann", "born": "1990-05-01"}},
    {"type": "City", "data": {"name": "Bern", "size": 1.5}},
    {"edge": "Lives", "from": "Ann", "to": "Bern", "data": {"id": "l1"}},
]


@pytest.fixture(scope="module")
def twins(server: Running) -> Iterator[Twins]:
    """A graph over HTTP and, as its twin, the same one at hand."""
    found = make_twins(server)
    hosted = server.hosted.graphs[found.remote.uri.rpartition("/")[2]].graph.acting_as("ann")
    with found.remote, found.local:
        hosted.load(RECORDS)
        hosted.load([{"type": "City", "data": {"name": "Rome"}}], branch="more", create_from="main")
        yield Twins(found.remote, hosted)


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("options", [{}, {"branch": "more"}, {"types": ["City"]}, {"types": []}])
def test_export_to_stream_and_file_are_equal(twins: Twins, tmp_path: Path, options: dict[str, Any]) -> None:
    ours, theirs = io.StringIO(), io.StringIO()
    count = twins.local.export(ours, **options)
    assert twins.remote.export(theirs, **options) == count
    assert theirs.getvalue() == ours.getvalue()
    assert twins.remote.export(tmp_path / "all.ndjson", **options) == count
    assert (tmp_path / "all.ndjson").read_text() == ours.getvalue()


def test_export_to_gz_name_is_compressed(twins: Twins, tmp_path: Path) -> None:
    plain = io.StringIO()
    twins.local.export(plain)
    names = ("here.ndjson.gz", "there.ndjson.GZ")
    for graph, name in zip((twins.local, twins.remote), names, strict=True):
        graph.export(tmp_path / name)
    here, there = (gzip.decompress((tmp_path / name).read_bytes()).decode() for name in names)
    assert here == there == plain.getvalue()
    twins.remote.export(address := f"memory://{uuid4().hex}/all.ndjson.gz")
    store, key = ObjectStore.split_uri(address, {})
    assert gzip.decompress(store.get(key).data).decode() == plain.getvalue()
    copy = og.init(f"memory://{uuid4().hex}", schema=twins.local.schema.source())
    assert copy.load(tmp_path / "here.ndjson.gz").total == plain.getvalue().count("\n")
    with pytest.raises(InvalidInput, match="is the name of one"):
        twins.local.export(tmp_path / "all.parquet.gz", format="parquet")


def test_export_at_commit_writes_that_state(twins: Twins, tmp_path: Path) -> None:
    first = twins.remote.commits()[0]
    for at in (first.id, first.created_at, twins.remote.snapshot(at=first.id)):
        assert twins.remote.export(tmp_path / "all.ndjson", branch="more", at=at) == 4
        assert twins.remote.export(f"{tmp_path}/files/", branch="more", at=at, overwrite=True) == 4


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_export_folder_equals_that_of_a_local_graph(twins: Twins, tmp_path: Path, form: Any) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    count = twins.local.export(f"{ours}/", format=form)
    assert twins.remote.export(f"{theirs}/", format=form) == count == 4
    assert files_of(theirs) == files_of(ours)
    assert len(files_of(ours)) == 5
    with og.init("memory://exported-" + uuid4().hex, SCHEMA) as copy:
        source: Any = str(theirs)
        if form == "parquet":
            source = {path.parent.name: str(path) for path in theirs.rglob("*.parquet")}
        assert copy.load(source).total == 4


def test_export_to_object_store(twins: Twins) -> None:
    name = uuid4().hex
    twins.remote.export(f"memory://{name}/all.ndjson")
    twins.remote.export(f"memory://{name}/files/")
    twins.remote.export(f"memory://{name}/files/", overwrite=True)
    found = {info.key for info in ObjectStore.open(f"memory://{name}").list()}
    assert {"all.ndjson", "files/_SUCCESS", "files/node-City-00000.ndjson"} <= found


def test_export_and_load_with_s3_options(twins: Twins, s3: Bucket) -> None:
    url, _, id_ = twins.remote.uri.rpartition("/graphs/")
    with og.connect(url, id_, token=TOKENS["ann"], storage_options=s3.options) as graph:
        for target, form in (("all.ndjson", "ndjson"), ("files/", "ndjson"), ("tables/", "parquet")):
            for overwrite in (False, True):
                assert graph.export(f"{s3.uri}/{target}", format=form, overwrite=overwrite) == 4  # type: ignore[arg-type]
        assert graph.baseline(f"{s3.uri}/baseline.ndjson").snapshot_commit_id == graph.commits()[0].id
        again = pickle.loads(pickle.dumps(graph))
    sources = (f"{s3.uri}/all.ndjson", f"{s3.uri}/files/", {"City": f"{s3.uri}/tables/nodes/City/*.parquet"})
    with again:
        for source, count in zip(sources, (4, 4, 1), strict=True):
            assert again.load(source, "merge", dry_run=True).total == count


def test_export_to_folder_with_other_files_is_refused(twins: Twins, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    for overwrite in (False, True):
        ours = refusal_of(partial(twins.local.export, folder, overwrite=overwrite))
        theirs = refusal_of(partial(twins.remote.export, folder, overwrite=overwrite))
        assert told(theirs) == told(ours)
    assert files_of(folder) == {"mine.txt": b"mine"}
    (folder / "mine.txt").unlink()
    twins.remote.export(folder)
    before = files_of(folder)
    twins.remote.export(folder, types=["City"], overwrite=True)
    assert {"_SUCCESS", "node-City-00000.ndjson"} == set(files_of(folder)) < set(before)


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("all.ndjson", {"format": "parquet"}),
        ("all.ndjson", {"format": "csv"}),
        ("all.ndjson", {"engine": "quick"}),
        ("all.ndjson", {"types": ["Nobody"]}),
        ("all.ndjson", {"branch": "nowhere"}),
        ("all.ndjson", {"at": "01NOWHERE"}),
        ("folder/", {"types": ["Nobody"]}),
        ("folder/", {"branch": "nowhere"}),
    ],
)
def test_export_with_invalid_options_raises_the_error_of_a_local_graph(
    twins: Twins, tmp_path: Path, target: str, options: dict[str, Any]
) -> None:
    ours = refusal_of(lambda: twins.local.export(f"{tmp_path}/{target}", **options))
    theirs = refusal_of(lambda: twins.remote.export(f"{tmp_path}/{target}", **options))
    assert told(theirs) == told(ours)
    assert files_of(tmp_path) == {}


def test_export_on_spark_is_refused_with_a_hint(twins: Twins, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="Spark") as caught:
        twins.remote.export(f"{tmp_path}/folder/", engine="spark")
    assert "storage" in str(caught.value.hint)


def test_export_progress_counts_received_bytes(twins: Twins, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    twins.remote.export(tmp_path / "all.ndjson", progress=lambda stage, size: seen.append((stage, size)))
    assert sum(size for _, size in seen) == (tmp_path / "all.ndjson").stat().st_size
    assert {stage for stage, _ in seen} == {"receive"}


# --- servers that are not ours, or broken -----------------------------------------------------------------


@contextmanager
def answering(body: bytes, length: int | None = None) -> Iterator[Transport]:
    """A transport to a server that gives one answer, of which it may promise more than it sends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        transport = Transport(f"http://127.0.0.1:{found.server_address[1]}/graphs/g")
        try:
            yield transport
        finally:
            transport.close()
            found.shutdown()
            thread.join()


def archive(*names: str, report: Any = None, kind: bytes = tarfile.REGTYPE) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as file:
        for name in names:
            member = tarfile.TarInfo(name)
            member.type = kind
            member.linkname = "/etc/passwd"
            data = json.dumps(report).encode() if name == "_SUCCESS" else b"{}\n"
            member.size = len(data) if kind == tarfile.REGTYPE else 0
            file.addfile(member, io.BytesIO(data))
    return found.getvalue()


WHOLE = ("node-City-00000.ndjson", "_SUCCESS")
REPORT = {"commit": "01J", "format": "ndjson", "rows": {"node:City": 1}}


@pytest.mark.parametrize(
    "body",
    [
        archive("../escaped.ndjson", "_SUCCESS", report=REPORT),
        archive("/tmp/escaped.ndjson", "_SUCCESS", report=REPORT),
        archive("nodes/../../City/part-00000.parquet", report=REPORT),
        archive(*WHOLE, report=REPORT, kind=tarfile.SYMTYPE),
        archive(*WHOLE, report=REPORT, kind=tarfile.LNKTYPE),
        archive(*WHOLE[:1]),
        archive(*WHOLE, "node-City-00001.ndjson", report=REPORT),
        archive(*WHOLE, report=[]),
        archive(*WHOLE, report=REPORT)[:700],
        b"no archive",
    ],
)
def test_export_with_incomplete_archive_keeps_the_folder(tmp_path: Path, body: bytes) -> None:
    folder = tmp_path / "folder"
    with answering(archive(*WHOLE, report=REPORT)) as transport:
        assert fetch_export(transport, f"{folder}/", ExportOptions()) == 1
    before = files_of(tmp_path)
    with answering(body) as transport, pytest.raises(StorageError):
        fetch_export(transport, f"{folder}/", ExportOptions(overwrite=True))
    assert files_of(tmp_path) == before


def test_export_with_truncated_stream_keeps_the_previous_file(tmp_path: Path) -> None:
    target = tmp_path / "all.ndjson"
    target.write_text("before")
    for length in (1000, None):
        # Without its last line it is incomplete also where the one in between says that it is not.
        with answering(b'{"type":"City"}\n', length) as transport, pytest.raises(StorageError) as caught:
            fetch_export(transport, target, ExportOptions())
        assert caught.value.transient
    with answering(archive(*WHOLE, report=REPORT), 1 << 20) as transport, pytest.raises(StorageError):
        fetch_export(transport, f"{tmp_path}/folder/", ExportOptions())
    assert files_of(tmp_path) == {"all.ndjson": b"before"}


def test_export_without_permission_is_denied(server: Running, tmp_path: Path) -> None:
    with og.connect(server.url, "team", token=TOKENS["bob"]) as bob:
        for target in ("all.ndjson", "folder/"):
            with pytest.raises(og.errors.PermissionDenied):
                bob.export(f"{tmp_path}/{target}")
            with pytest.raises(og.errors.PermissionDenied):
                bob.export(f"{tmp_path}/{target}", at=bob.commits()[0].id)
    assert files_of(tmp_path) == {}
