"""`omnigraph blob`, in storage and on a server: equal output and errors."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.rules.external_blobs import ExternalBlobPolicy
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.cli.running import Outcome, run, run_process
from tests.server.running import running
from tests.support.external_objects import web_objects

SCHEMA = "node Photo { name: String @key  data: Blob? }\nedge Seen: Photo -> Photo { proof: Blob? }\n"
DATA = bytes(range(256))
ELSEWHERE = "/k/a%20b.png"
RECORDS = [
    {"type": "Photo", "data": {"name": "a/ä", "data": "base64:" + base64.b64encode(DATA).decode()}},
    {"type": "Photo", "data": {"name": "empty", "data": "base64:"}},
    {"type": "Photo", "data": {"name": "far", "data": "{web}" + ELSEWHERE}},
    {"type": "Photo", "data": {"name": "none"}},
    {"edge": "Seen", "from": "far", "to": "none", "data": {"id": "e", "proof": "base64:AAE="}},
]
pytestmark = pytest.mark.usefixtures("home")

PHOTO = ["node", "Photo", "a/ä", "data"]


@dataclass(frozen=True)
class Place:
    """Where the graph is that a test is about."""

    address: list[str]
    commit: str
    external: str

    def run(self, *args: str) -> Outcome:
        return run("blob", *args, *self.address)

    def stdout(self, *args: str) -> bytes:
        found = run_process("blob", "get", *args, *self.address)
        assert (found.returncode, found.stderr) == (0, b"")
        return found.stdout

    def out(self, path: Path, *args: str) -> bytes:
        outcome = self.run("get", *args, "--out", str(path))
        assert (outcome.code, outcome.output) == (0, "")
        return path.read_bytes()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    uri = str(tmp_path_factory.mktemp("blobs") / "g.omni")
    with web_objects({ELSEWHERE: 200}) as web:
        yield from _places(uri, web.url)


def _places(uri: str, web: str) -> Iterator[dict[str, Place]]:
    records = json.loads(json.dumps(RECORDS).replace("{web}", web))
    policy = ExternalBlobPolicy.of([f"{web}/k/"])
    with og.init(uri, SCHEMA, durability="os", external_blobs=policy) as graph:
        graph.load(records)
        commit = graph.snapshot().commit_id
        graph.load({"Photo": [{"name": "late", "data": "base64:AA=="}]})
        graph.branches.create("文 5%")
    with running(
        open_graphs(Hosting((GraphSource("g", uri, external_blobs=policy),)), TokenRegistry())
    ) as server:
        yield {
            "direct": Place(["--store", uri], commit, web + ELSEWHERE),
            "served": Place(["--server", server.url, "--graph", "g"], commit, web + ELSEWHERE),
        }


@pytest.fixture(params=["direct", "served"])
def place(request: pytest.FixtureRequest, places: dict[str, Place]) -> Place:
    return places[request.param]


def test_blob_get_writes_the_exact_bytes(places: dict[str, Place]) -> None:
    assert places["served"].stdout(*PHOTO) == DATA


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], DATA),
        (["--offset", "250"], DATA[250:]),
        (["--length", "3"], DATA[:3]),
        (["--offset", "10", "--length", "5"], DATA[10:15]),
        (["--offset", "250", "--length", "100"], DATA[250:]),
        (["--offset", "255"], DATA[255:]),
        (["--range", "10:15"], DATA[10:15]),
        (["--range", ":3"], DATA[:3]),
        (["--range", "250:999"], DATA[250:]),
        (["--range", "255:"], DATA[255:]),
    ],
)
def test_blob_get_range_ends_at_the_end_of_the_value(
    place: Place, folder: Path, options: list[str], expected: bytes
) -> None:
    assert place.out(folder / "out", *PHOTO, *options) == expected


@pytest.mark.parametrize("options", [[], ["--offset", "5"], ["--length", "5"]], ids=" ".join)
def test_blob_get_of_empty_value_writes_nothing(place: Place, folder: Path, options: list[str]) -> None:
    assert place.out(folder / "out", "node", "Photo", "empty", "data", *options) == b""


def test_blob_get_of_edge_property(place: Place, folder: Path) -> None:
    assert place.out(folder / "out", "edge", "Seen", "e", "proof") == b"\x00\x01"


@pytest.mark.parametrize("offset", ["256", "1000"])
def test_blob_get_with_offset_beyond_the_end_is_refused(place: Place, folder: Path, offset: str) -> None:
    outcome = place.run("get", *PHOTO, "--offset", offset, "--out", "out")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert (
        outcome.stderr == f"error: offset {offset} is at or past the end of the value, which has 256 bytes\n"
    )
    assert not (folder / "out").exists()


@pytest.mark.parametrize("length", ["0", "-1"])
def test_blob_get_with_length_below_one_is_refused(place: Place, length: str) -> None:
    outcome = place.run("get", *PHOTO, "--length", length)
    assert (outcome.code, outcome.stderr) == (1, f"error: --length must be at least 1, got {length}\n")


def test_blob_get_of_external_value_is_refused_with_its_uri(place: Place) -> None:
    for options in ([], ["--length", "1"]):
        outcome = place.run("get", "node", "Photo", "far", "data", *options)
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == f"error: the value is external: it is stored at {place.external}\n"


@pytest.mark.parametrize("command", ["get", "stat"])
@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        (["node", "Photo", "none", "data"], "node type 'Photo' has no blob for id 'none'"),
        (["node", "Photo", "zed", "data"], "node type 'Photo' has no blob for id 'zed'"),
        (["node", "Phto", "a", "data"], "unknown node type 'Phto'"),
        (["node", "Photo", "a", "name"], "node type 'Photo' has no Blob property 'name'"),
        ([*PHOTO, "--branch", "mian"], "branch 'mian' not found"),
    ],
)
def test_blob_get_of_missing_value_names_it(
    place: Place, command: str, selector: list[str], problem: str
) -> None:
    outcome = place.run(command, *selector)
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(f"error: {problem}")


class TestStat:
    def test_blob_stat_prints_size_and_etag(self, place: Place) -> None:
        found = json.loads(place.run("stat", *PHOTO, "--json").stdout)
        assert found["selector"] == {"entity": "node", "type": "Photo", "id": "a/ä", "property": "data"}
        assert (found["kind"], found["size"], "uri" in found) == ("managed", 256, False)
        assert found["etag"].startswith('"')
        assert found["target"] == {"branch": "main", "resolved_snapshot": "manifest:main:v3"}

    def test_blob_stat_at_snapshot(self, place: Place) -> None:
        found = json.loads(place.run("stat", *PHOTO, "--json", "--snapshot", place.commit).stdout)
        assert found["target"] == {"snapshot": place.commit, "resolved_snapshot": "manifest:main:v2"}

    def test_blob_stat_on_branch_with_special_characters(self, place: Place) -> None:
        found = json.loads(place.run("stat", *PHOTO, "--json", "--branch", "文 5%").stdout)
        assert found["target"] == {"branch": "文 5%", "resolved_snapshot": "manifest:文 5%:v3"}

    def test_blob_stat_of_external_value_has_its_uri(self, place: Place) -> None:
        found = json.loads(place.run("stat", "node", "Photo", "far", "data", "--json").stdout)
        assert (found["kind"], found["uri"]) == ("external", place.external)
        assert "size" not in found
        assert "etag" not in found

    def test_blob_stat_without_json_prints_lines(self, place: Place) -> None:
        lines = place.run("stat", *PHOTO).stdout.splitlines()
        assert lines[:2] == ["kind: managed", "size: 256"]
        assert lines[-1] == "resolved_snapshot: manifest:main:v3"


def test_blob_stat_prints_the_same_on_a_server(places: dict[str, Place]) -> None:
    for args in (PHOTO, ["node", "Photo", "far", "data"], ["edge", "Seen", "e", "proof"]):
        direct, served = (places[name].run("stat", *args, "--json") for name in ("direct", "served"))
        assert direct == served


@pytest.mark.parametrize(
    "args",
    [
        ["get", "thing", "Photo", "a", "data"],
        ["get", *PHOTO, "--branch", "a", "--snapshot", "b"],
        ["get", *PHOTO, "--range", "3"],
        ["get", *PHOTO, "--range", "5:5"],
        ["get", *PHOTO, "--range", "0:5", "--length", "3"],
    ],
)
def test_blob_with_invalid_arguments_is_a_usage_error(place: Place, args: list[str]) -> None:
    assert place.run(*args).code == 2


def test_load_and_mutate_accept_external_uris_below_given_bases(tmp_path: Path) -> None:
    uri, base = str(tmp_path / "g.omni"), f"{tmp_path.as_uri()}/"
    og.init(uri, SCHEMA, durability="os").close()
    record = {"type": "Photo", "data": {"name": "a", "data": f"{base}d.jsonl"}}
    (tmp_path / "d.jsonl").write_text(json.dumps(record))
    load = ["load", "--data", str(tmp_path / "d.jsonl"), "--mode", "merge", uri]
    mutate = [
        "mutate",
        "-e",
        f'query q() {{ insert Photo {{ name: "b", data: "{base}d.jsonl" }} }}',
        "--store",
        uri,
    ]
    for command in (load, mutate):
        refused = run(*command)
        assert refused.code == 1
        assert "not allowed" in refused.stderr
        accepted = run(*command, "--external-blobs", base)
        assert accepted.code == 0, accepted.stderr
        invalid = run(*command, "--external-blobs", "s3://bucket")
        assert "does not end with '/'" in invalid.stderr or "expected" in invalid.stderr
