"""Loads from buckets and exports to them: every form of source, few requests, all or nothing."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, NotFound, StorageError
from omnigraph.store.objects import object_reader
from omnigraph.store.objects.object_store import ObjectStore
from tests.support.places import fresh_memory
from tests.support.s3 import Bucket
from tests.support.s3_seam import How, Log

pytest_plugins = ["tests.support.s3_fixtures"]

SCHEMA = "node Person { name: String @key  bio: String? }  edge Knows: Person -> Person"
ALL = "query all() { match { $p: Person } return { $p.name as name } order { name } }"
MIB = 1024 * 1024


@pytest.fixture
def graph(s3: Bucket) -> og.Graph:
    """A graph in memory that knows how to reach the bucket."""
    return og.init(fresh_memory(), schema=SCHEMA, storage_options=s3.options)


def put(bucket: Bucket, key: str, data: bytes) -> str:
    bucket.server.objects.put(bucket.name, key, data)
    return f"{bucket.uri}/{key}"


def names(graph: og.Graph) -> list[str]:
    return [row["name"] for row in graph.query(ALL)]


def methods(log: Log, bucket: Bucket) -> list[str]:
    """The requests for a bucket: those that another test gave up may still arrive."""
    return [item.method for item in log.requests if item.bucket == bucket.name]


def records(*people: str, bio: str = "") -> bytes:
    return b"".join(
        json.dumps({"type": "Person", "data": {"name": name, "bio": bio}}).encode() + b"\n" for name in people
    )


def table(*people: str, bio: str = "") -> pa.Table:
    return pa.table({"name": list(people), "bio": [bio] * len(people)})


def parquet(*people: str, bio: str = "") -> bytes:
    file = io.BytesIO()
    pq.write_table(
        table(*people, bio=bio), file, row_group_size=100, compression="none", use_dictionary=False
    )
    return file.getvalue()


def csv(*people: str, bio: str = "") -> bytes:
    file = io.BytesIO()
    pv.write_csv(table(*people, bio=bio), file)
    return file.getvalue()


# --- forms of sources ---------------------------------------------------------------------------------------


def test_one_object_of_records_plain_or_packed(s3: Bucket, graph: og.Graph) -> None:
    graph.load(put(s3, "in/a.ndjson", records("Ana")))
    graph.load(put(s3, "in/b.jsonl.gz", gzip.compress(records("Bo"))))
    graph.load(put(s3, "any name", records("Cy")))
    assert names(graph) == ["Ana", "Bo", "Cy"]


def test_a_prefix_is_all_record_files_below_it_in_order(s3: Bucket, graph: og.Graph) -> None:
    put(s3, "in/2.ndjson", records("Cy", bio="second"))
    put(s3, "in/1.json", records("Ana", bio="first"))
    put(s3, "in/deep/3.jsonl.gz", gzip.compress(records("Bo", "Di", bio="third")))
    put(s3, "in/notes.txt", b"no records")
    put(s3, "input/other.ndjson", records("Zoe"))
    for source in (f"{s3.uri}/in/", f"{s3.uri}/in"):
        receipt = graph.load(source, mode="merge")
        assert (receipt.total, receipt.superseded) == (4, 0)
        assert names(graph) == ["Ana", "Bo", "Cy", "Di"]
        bo = graph.get("Person", "Bo")
        assert bo is not None
        assert bo["bio"] == "third"
    assert graph.load(s3.uri, mode="merge").total == 5, "the whole bucket is a folder too"


def test_patterns_name_objects(s3: Bucket, graph: og.Graph) -> None:
    for key, name in (("in/a-1.ndjson", "Ana"), ("in/a-2.ndjson", "Bo"), ("in/b-1.ndjson", "Cy")):
        put(s3, key, records(name))
    put(s3, "on/deep/a-3.ndjson", records("Dee"))
    assert graph.load(f"{s3.uri}/in/a-?.ndjson", mode="overwrite").total == 2
    assert names(graph) == ["Ana", "Bo"]
    assert graph.load(f"{s3.uri}/**/a-[13].*", mode="overwrite").total == 2
    assert names(graph) == ["Ana", "Dee"]


def test_tables_per_type_as_parquet_and_as_csv(s3: Bucket, graph: og.Graph) -> None:
    people = put(s3, "people.parquet", parquet("Ana", "Bo"))
    knows = put(s3, "knows.csv.gz", gzip.compress(b"from,to\nAna,Bo\n"))
    receipt = graph.load({"Person": people, "Knows": knows})
    assert (receipt.nodes, receipt.edges) == ({"Person": 2}, {"Knows": 1})
    put(s3, "more/1.csv", csv("Cy"))
    put(s3, "more/2.parquet", parquet("Dee"))
    graph.load({"Person": f"{s3.uri}/more/"})
    assert names(graph) == ["Ana", "Bo", "Cy", "Dee"]


def test_addresses_of_memory_and_of_local_files(tmp_path: Path, graph: og.Graph) -> None:
    memory = fresh_memory()
    ObjectStore.open(memory).put("in/a.ndjson", records("Ana"))
    graph.load(f"{memory}/in/a.ndjson")
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "b.ndjson").write_bytes(records("Bo"))
    (folder / "c.csv").write_bytes(csv("Cy"))
    graph.load((folder / "b.ndjson").as_uri())
    graph.load({"Person": (folder / "c.csv").as_uri()})
    assert names(graph) == ["Ana", "Bo", "Cy"]


# --- what is wrong ------------------------------------------------------------------------------------------


def test_what_is_not_there_is_not_found_with_a_hint(s3: Bucket, graph: og.Graph) -> None:
    put(s3, "in/people.ndjson", records("Ana"))
    with pytest.raises(NotFound, match=r"file `s3://.*/in/poeple.ndjson` not found") as caught:
        graph.load(f"{s3.uri}/in/poeple.ndjson")
    assert "in/people.ndjson" in str(caught.value.hint)
    with pytest.raises(NotFound, match="no file matches"):
        graph.load(f"{s3.uri}/in/*.json")
    put(s3, "notes/a.txt", b"")
    with pytest.raises(NotFound, match=r"has no file with \.csv"):
        graph.load({"Person": f"{s3.uri}/notes/"})
    with pytest.raises(NotFound, match=r"folder `.*/on/` has no file with \.ndjson"):
        graph.load(f"{s3.uri}/on/")


@pytest.mark.parametrize("key", ["a.ndjson", "in/", "*.ndjson", ""])
def test_a_missing_bucket_is_an_error_of_storage(graph: og.Graph, key: str) -> None:
    with pytest.raises(StorageError, match="NoSuchBucket") as caught:
        graph.load(f"s3://no-such-bucket/{key}")
    assert not caught.value.transient


def test_refused_credentials_are_an_error_of_storage(s3: Bucket) -> None:
    stranger = og.init(
        fresh_memory(), schema=SCHEMA, storage_options={**s3.options, "access_key_id": "stranger"}
    )
    with pytest.raises(StorageError, match="403") as caught:
        stranger.load(put(s3, "a.ndjson", records("Ana")))
    assert not caught.value.transient


def test_what_does_not_fit_its_place_is_refused(s3: Bucket, graph: og.Graph) -> None:
    with pytest.raises(InvalidInput, match=r"the type of the rows of .* is unknown"):
        graph.load(put(s3, "people.parquet", parquet("Ana")))
    with pytest.raises(InvalidInput, match="the row is a graph record"):
        graph.load({"Person": put(s3, "people.ndjson", records("Ana"))})
    with pytest.raises(InvalidInput, match="is not a storage scheme"):
        graph.load("https://host/a.ndjson")
    address = put(s3, "bad.ndjson", records("Ana") + b"{}\n")
    with pytest.raises(InvalidInput, match="line 2") as caught:
        graph.load(address)
    assert caught.value.details == {"line": 2, "source": address, "violations": 1, "limit": 100}
    assert [(item["source"], item["line"]) for item in caught.value.violations] == [(address, 2)]
    with pytest.raises(InvalidInput, match=r"broken\.parquet"):
        graph.load({"Person": put(s3, "broken.parquet", b"PAR1 and no more")})
    with pytest.raises(StorageError, match="cannot read"):
        graph.load(put(s3, "torn.ndjson.gz", gzip.compress(records("Ana"))[:-6]))
    assert names(graph) == []


PEOPLE = [f"p{number:04}" for number in range(600)]
BIO = "x" * 400
SOURCES: dict[str, Callable[[str], Any]] = {
    "in.ndjson": lambda uri: uri,
    "in.ndjson.gz": lambda uri: uri,
    "in.csv": lambda uri: {"Person": uri},
    "in.parquet": lambda uri: {"Person": uri},
}


def content(key: str) -> bytes:
    if key.endswith(".gz"):
        return gzip.compress(records(*PEOPLE, bio=BIO), compresslevel=0)
    made: dict[str, Callable[..., bytes]] = {"in.ndjson": records, "in.csv": csv, "in.parquet": parquet}
    return made[key](*PEOPLE, bio=BIO)


@pytest.mark.parametrize("key", SOURCES)
@pytest.mark.parametrize("how", ["drop", 503])
def test_a_transfer_that_fails_half_way_loads_nothing(
    s3: Bucket, graph: og.Graph, key: str, how: How | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_reader, "BLOCK_BYTES", 64 * 1024)
    source = SOURCES[key](put(s3, key, content(key)))
    commits = len(graph.commits())
    with (
        s3.seam.fail(how, method="GET", key=key, nth=3, times=None) as fault,
        pytest.raises(StorageError) as caught,
    ):
        graph.load(source)
    assert fault.hits, "the fault came after some of it had been read"
    assert caught.value.transient
    assert names(graph) == []
    assert len(graph.commits()) == commits
    assert graph.load(source).total == len(PEOPLE)


@pytest.mark.parametrize("key", SOURCES)
def test_a_single_fault_on_the_way_is_not_noticed(
    s3: Bucket, graph: og.Graph, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_reader, "BLOCK_BYTES", 64 * 1024)
    source = SOURCES[key](put(s3, key, content(key)))
    with s3.seam.fail("drop", method="GET", key=key, nth=2) as fault:
        assert graph.load(source).total == len(PEOPLE)
    assert fault.hits == 1
    assert names(graph) == PEOPLE


def test_an_object_that_is_replaced_while_it_is_read_loads_nothing(
    s3: Bucket, graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_reader, "BLOCK_BYTES", 64 * 1024)
    address = put(s3, "in.ndjson", content("in.ndjson"))

    def replace() -> None:
        put(s3, "in.ndjson", records("Zoe"))

    with (
        s3.seam.cut(replace, nth=2, applied=False, method="GET", key="in.ndjson"),
        pytest.raises(StorageError, match="was replaced while it was read") as caught,
    ):
        graph.load(address)
    assert caught.value.kind == "precondition"
    assert names(graph) == []


# --- what it costs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["in.ndjson", "in.csv", "in.parquet"])
def test_twenty_megabytes_are_loaded_with_four_requests(s3: Bucket, graph: og.Graph, key: str) -> None:
    made: dict[str, Callable[..., bytes]] = {"in.ndjson": records, "in.csv": csv, "in.parquet": parquet}
    data = made[key](*PEOPLE, bio="x" * 36_000)
    assert 20 * MIB < len(data) < 24 * MIB
    source = SOURCES[key](put(s3, key, data))
    with s3.seam.recording() as log:
        assert graph.load(source).total == len(PEOPLE)
    assert methods(log, s3) == ["HEAD", "GET", "GET", "GET"], str(log)


def test_a_folder_takes_one_listing_and_a_request_for_each_small_file(s3: Bucket, graph: og.Graph) -> None:
    for number in range(5):
        put(s3, f"in/{number}.ndjson", records(f"p{number}"))
    with s3.seam.recording() as log:
        assert graph.load(f"{s3.uri}/in/").total == 5
    assert len(methods(log, s3)) == 6, str(log)


# --- exports ------------------------------------------------------------------------------------------------


def test_an_export_to_a_bucket_is_the_one_to_a_file_and_loads_back(
    s3: Bucket, graph: og.Graph, tmp_path: Path
) -> None:
    graph.load({"Person": table("Ana", "Bo"), "Knows": pa.table({"from": ["Ana"], "to": ["Bo"]})})
    assert graph.export(f"{s3.uri}/dumps/all.ndjson") == 3
    graph.export((tmp_path / "all.ndjson").as_uri())
    stored = ObjectStore.open(s3.uri, s3.options).get("dumps/all.ndjson").data
    assert stored == (tmp_path / "all.ndjson").read_bytes()
    copy = og.init(fresh_memory(), schema=SCHEMA, storage_options=s3.options)
    assert copy.load(f"{s3.uri}/dumps/all.ndjson").total == 3
    assert names(copy) == ["Ana", "Bo"]


def test_an_export_that_fails_leaves_the_one_before(s3: Bucket, graph: og.Graph) -> None:
    graph.load({"Person": table(*PEOPLE, bio="x" * 36_000)})
    address = put(s3, "all.ndjson", b"before")
    with s3.seam.fail(503, method="PUT", key="all.ndjson", times=None), pytest.raises(StorageError) as caught:
        graph.export(address)
    assert caught.value.transient
    with pytest.raises(InvalidInput, match="unknown export type"):
        graph.export(address, types=["Nobody"])
    assert ObjectStore.open(s3.uri, s3.options).get("all.ndjson").data == b"before"
    assert not s3.server.objects._uploads
    with pytest.raises(StorageError, match="NoSuchBucket"):
        graph.export("s3://no-such-bucket/all.ndjson", types=["Knows"])


def test_an_export_of_twenty_megabytes_takes_four_requests(s3: Bucket, graph: og.Graph) -> None:
    graph.load({"Person": table(*PEOPLE, bio="x" * 36_000)})
    with s3.seam.recording() as log:
        assert graph.export(f"{s3.uri}/all.ndjson") == len(PEOPLE)
    assert sorted(methods(log, s3)) == ["POST", "POST", "PUT", "PUT"], str(log)
