"""Exports of files in a tar archive."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from tests.server.running import Running, error_body
from tests.support.waiting import wait_until


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which the server, which is this process, keeps temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def unpacked(response: httpx.Response) -> dict[str, bytes]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-tar"
    found = {}
    with tarfile.open(fileobj=io.BytesIO(response.content)) as archive:
        for member in archive:
            assert (member.isreg(), member.uid, member.uname, member.mode) == (True, 0, "", 0o644)
            file = archive.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
    return found


def test_export_files_returns_archive_with_success_marker_last(client: httpx.Client, spool: Path) -> None:
    found = unpacked(client.post("/export/files"))
    assert list(found) == ["edge-Knows-00000.ndjson", "node-Person-00000.ndjson", "_SUCCESS"]
    assert len(found["node-Person-00000.ndjson"].splitlines()) == 2
    assert json.loads(found["_SUCCESS"])["rows"] == {"edge:Knows": 0, "node:Person": 2}
    wait_until(lambda: not any(spool.iterdir()), "the spooled files to go")


def test_export_files_parquet_of_types_at_commit(client: httpx.Client) -> None:
    before = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    client.post("/load", json={"data": '{"type":"Person","data":{"name":"Cid"}}'}).raise_for_status()
    for body, count in (({}, 3), ({"snapshot": before}, 2)):
        wanted = {"format": "parquet", "type_names": ["Person"], **body}
        found = unpacked(client.post("/export/files", json=wanted))
        assert list(found) == ["nodes/Person/part-00000.parquet", "_SUCCESS"]
        assert pq.read_table(io.BytesIO(found["nodes/Person/part-00000.parquet"])).num_rows == count


@pytest.mark.parametrize("route", ["/export", "/export/files"])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"branch": "nowhere"}, 404),
        ({"snapshot": "01NOWHERE"}, 404),
        ({"type_names": ["Nobody"]}, 400),
        ({"format": "csv"}, 400),
        ({"at": "yesterday"}, 400),
        ({"at": "2030-01-01T00:00:00Z", "snapshot": "01J"}, 400),
        ({"at": "1990-01-01T00:00:00Z"}, 404),
    ],
)
def test_export_files_error_has_error_status(
    client: httpx.Client, route: str, body: dict[str, Any], status: int, spool: Path
) -> None:
    error_body(client.post(route, json=body), status)
    assert list(spool.iterdir()) == []


def test_export_files_requires_export_permission(guarded: Running) -> None:
    with guarded.client("bob") as client:
        commit = client.get("/commits").json()["commits"][0]["graph_commit_id"]
        for body in ({}, {"snapshot": commit}, {"at": "2099-01-01T00:00:00Z"}):
            error_body(client.post("/export/files", json=body), 403)
            error_body(client.post("/export", json=body), 403)
    with guarded.client("ann") as client:
        assert len(unpacked(client.post("/export/files", json={"snapshot": commit}))) == 3
