"""Loads over HTTP do what loads do where the graph is."""

from __future__ import annotations

import gzip
import io
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.errors import (
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    StorageError,
)
from omnigraph.store.objects.object_store import ObjectStore
from tests.client.talking import reply, scripted
from tests.client.twins import Twins, make_twins, records, told
from tests.server.running import TOKENS, Running

ANN = {"type": "Person", "data": {"name": "Ann", "age": 30}}
BOB = {"type": "Person", "data": {"name": "Bob"}}
KNOWS = {"edge": "Knows", "from": "Ann", "to": "Bob", "data": {"id": "k1", "since": "2020-01-31"}}


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@pytest.fixture
def twins(server: Running) -> Iterator[Twins]:
    """Two graphs without records."""
    found = make_twins(server)
    with found.remote, found.local:
        yield found


@pytest.fixture(scope="module")
def empty(server: Running) -> Iterator[Twins]:
    """Two graphs that stay without records."""
    found = make_twins(server)
    with found.remote, found.local:
        yield found
        assert records(found.remote) == records(found.local) == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of people, cities and records, in all formats."""
    table = pa.table({"name": ["Ann", "Bob"], "age": pa.array([30, None], pa.int64())})
    (tmp_path / "records.ndjson").write_bytes(lines(ANN, BOB, KNOWS))
    (tmp_path / "some people.csv").write_text("name,age\nAnn,30\nBob,\n")
    (tmp_path / "people.csv.gz").write_bytes(gzip.compress(b"name,age\nAnn,30\nBob,\n"))
    (tmp_path / "people.jsonl").write_bytes(lines({"name": "Ann"}, {"name": "Bob"}))
    (tmp_path / "some others.jsonl").write_bytes(lines({"name": "Cy"}, {"name": "Di"}))
    pq.write_table(table, tmp_path / "people.parquet")
    with pa.ipc.new_file(tmp_path / "people.arrow", table.schema) as file:
        file.write_table(table)
    parts = tmp_path / "parts"
    (parts / "more").mkdir(parents=True)
    (parts / "a.ndjson").write_bytes(lines(ANN))
    (parts / "more" / "b.ndjson.gz").write_bytes(gzip.compress(lines(BOB, KNOWS)))
    return tmp_path


@pytest.mark.parametrize("source", ["records.ndjson", "parts", "parts/*.ndjson", "parts/**/*.ndjson*"])
def test_load_of_record_files_keeps_their_order(twins: Twins, folder: Path, source: str) -> None:
    found = twins.load(lambda: str(folder / source), message="all of it")
    assert found.bytes is not None
    assert found.nodes


@pytest.mark.parametrize(
    "name",
    ["some people.csv", "people.csv.gz", "people.jsonl", "people.parquet", "people.arrow", "some*"],
)
def test_load_of_files_of_one_type_in_any_format(twins: Twins, folder: Path, name: str) -> None:
    found = twins.load(lambda: {"Person": folder / name}, mode="merge")
    assert found.nodes == {"Person": 4 if "*" in name else 2}


def test_load_of_files_in_an_object_store(twins: Twins) -> None:
    folder = f"memory://{uuid.uuid4().hex}"
    store = ObjectStore.open(folder)
    store.put("records/a.ndjson", lines(ANN, BOB))
    store.put("map.json", b'{"City": {"source": "towns/", "columns": {"name": "town"}}}')
    store.put("towns/1.csv", b"town\nBern\n")
    for graph in (twins.remote, twins.local):
        graph.load(f"{folder}/records/")
        graph.load(mapping=f"{folder}/map.json")
    assert records(twins.remote) == records(twins.local)
    assert len(records(twins.remote)) == 3


VALUES = {
    "name": "Ann",
    "age": np.int32(30),
    "born": date(1990, 5, 1),
    "seen": datetime(2024, 1, 31, 9, 30, tzinfo=UTC),
    "tags": ("a", "b"),
    "photo": b"\x00\xff",
    "v": np.array([1.5, 2, 3], np.float32),
}
TABLE = pa.table({"name": ["Ann", "Bob"], "born": pa.array([date(1990, 5, 1), None])})
SOURCES: dict[str, Callable[[], Any]] = {
    "a stream": lambda: io.BytesIO(lines(ANN, BOB, KNOWS)),
    "records": lambda: [ANN, BOB, KNOWS, {"type": "Person", "data": {**VALUES, "name": "Cid"}}],
    "a generator of records": lambda: (record for record in (ANN, BOB)),
    "nothing": list,
    "no types": dict,
    "a type without rows": lambda: {"Person": []},
    "rows": lambda: {"Person": [VALUES, {"name": "Bob"}], "Knows": [{"from": "Ann", "to": "Bob"}]},
    "a table of Arrow": lambda: {"node:Person": TABLE},
    "a table without rows": lambda: {"Person": TABLE.slice(0, 0)},
    "a reader": lambda: {"Person": TABLE.to_reader(1)},
    "batches": lambda: {"Person": iter(TABLE.to_batches(1))},
    "batches of several schemas": lambda: {
        "Person": [*TABLE.to_batches(), *pa.table({"name": ["Cid"], "age": [1]}).to_batches()]
    },
    "pandas": lambda: {"Person": pd.DataFrame({"name": ["Ann", "Bob"], "age": [30.0, None]})},
    "polars": lambda: {"Person": pl.DataFrame({"name": ["Ann"], "seen": [datetime(2024, 1, 1, tzinfo=UTC)]})},
    "words as categories": lambda: {
        "City": pa.table({"name": pa.array(["Bern", "Rome"]).dictionary_encode(), "size": [1.5, float("inf")]})
    },
    "categories of polars": lambda: {"City": pl.DataFrame({"name": pl.Series(["Bern"], dtype=pl.Categorical)})},
    "values of several types": lambda: {
        "Person": pd.DataFrame({
            "name": ["Ann", "Bob", "Cid", "Dov"],
            "age": [30, 31.0, Decimal(32), None],
            "seen": pd.to_datetime(["2024-01-01", None, None, "2024-01-02"]),
            "tags": [["a"], [], None, ["b"]],
            "photo": [b"x", None, "base64:eA==", None],
        })
    },
    "several types": lambda: {
        "Person": TABLE, "City": [{"name": "Bern"}], "Lives": pa.table({"src": ["Ann"], "dst": ["Bern"]})
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", SOURCES)
def test_load_of_in_memory_rows(twins: Twins, kind: str) -> None:
    assert twins.load(SOURCES[kind]).bytes is None


WRONG: dict[str, Callable[[], Any]] = {
    "a record": lambda: [ANN, {"type": "Person", "data": {"name": "Bob", "age": "old"}}],
    "a value of no property": lambda: [{"type": "Person", "data": {"name": uuid.UUID(int=1)}}],
    "a row": lambda: {"Person": [{"name": "Ann"}, {"name": "Bob", "born": 1.5}]},
    "a row that is none": lambda: {"Person": [{"name": "Ann"}, 7]},
    "a row of a table": lambda: {"City": pa.table({"name": ["Bern", None]})},
    "a column": lambda: {"City": pa.table({"name": pa.array([], pa.string()), "sise": pa.array([], pa.int64())})},
    "a value of another type": lambda: {"Person": pd.DataFrame({"name": ["Ann", "Bob"], "age": [30, "old"]})},
    "a text that is none": lambda: {"Person": pd.DataFrame({"name": ["Ann", "\ud800"]})},
    "an extension type": lambda: {
        "Person": pd.DataFrame({"name": ["Ann"], "born": pd.period_range("2020", periods=1, freq="M")})
    },
    "a type that Arrow lacks": lambda: {"Person": pl.DataFrame({"name": pl.Series([1], dtype=pl.Int128)})},
    "a type": lambda: {"Persn": [{"name": "Ann"}]},
    "a batch": lambda: {"Person": [TABLE]},
    "a type that cannot be loaded": lambda: {"Person": 7},
    "a stream of a type": lambda: {"Person": io.BytesIO(b"")},
    "a line of a stream": lambda: io.BytesIO(lines(ANN, {"type": "Nobody"})),
    "an end": lambda: [ANN, KNOWS],
    "one record": lambda: ANN,
    "a table without a type": lambda: TABLE,
    "a number": lambda: 7,
    "a file": lambda: "nowhere.ndjson",
    "a file of a type": lambda: {"Person": "nowhere/*.csv"},
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_load_of_invalid_input_raises_the_error_of_a_local_graph(empty: Twins, what: str) -> None:
    empty.refuse(WRONG[what])


@pytest.mark.parametrize(
    ("name", "content", "source"),
    [
        ('odd "name".csv', b"name,age\nAnn,30\nBob,old\n", "Person"),
        ("people.csv", b"name,years\nAnn,30\n", "Person"),
        ("people.csv.gz", gzip.compress(b"name\nAnn\n", mtime=0)[:-9], "Person"),
        ("people.parquet", b"PAR1 and nothing", "Person"),
        ("people.arrow", b"ARROW1\0\0 and nothing", "Person"),
        ("people.json", b'[{"name": "Ann"}, {"name": 7}]', "Person"),
        ("people.dat", b"name\nAnn\n", "Person"),
        ("knows.csv", b"id,from,to\nk1,Ann,Zoe\n", "Knows"),
        ("lines.ndjson", lines(ANN, {"type": "Person", "data": {"name": 7}}), None),
        ("people.csv", b"name\nAnn\n", None),
    ],
)
def test_load_error_names_the_local_file(
    empty: Twins, tmp_path: Path, name: str, content: bytes, source: str | None
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    error = empty.refuse(lambda: str(path) if source is None else {source: str(path)})
    assert str(path) in repr(told(error))


def test_load_of_damaged_file_raises_storage_error(empty: Twins, tmp_path: Path) -> None:
    path = tmp_path / "people.csv.gz"
    path.write_bytes(b"not packed")
    error = empty.refuse(lambda: {"Person": path})
    assert isinstance(error, StorageError)
    assert str(path) in error.message


MAPPING = """\
Person:
  source: people.csv
  columns: {name: full name, age: years}
  casts: {born: "%d.%m.%Y"}
City:
  source: towns.dat
  format: csv
  constants: {size: 2.5}
"""


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    (tmp_path / "map.yaml").write_text(MAPPING)
    (tmp_path / "people.csv").write_text("full name,years,born\nAnn,30,01.05.1990\n")
    (tmp_path / "towns.dat").write_text("name\nBern\n")
    return tmp_path


def test_load_with_mapping_reads_its_sources(twins: Twins, mapped: Path) -> None:
    found = twins.load(lambda: None, mapping=mapped / "map.yaml")
    assert found.nodes == {"City": 1, "Person": 1}


def test_load_accepts_mapping_as_dictionary(twins: Twins) -> None:
    mapping = {"Person": {"columns": {"name": "full"}, "constants": {"born": date(1990, 5, 1)}}}
    twins.load(lambda: [{"full": "Ann"}], mapping=mapping)
    twins.load(lambda: {"Person": pa.table({"full": ["Bob"]})}, mapping=mapping)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Person:\n  columns:\n    nam: full\n", {"Person": [{"full": "Ann"}]}),
        ("Persn: {}\n", {"Person": [{"full": "Ann"}]}),
        ("Person: {}\nCity: {}\n", [{"name": "Ann"}]),
        ("Person: {}\n", None),
        ("Person: {source: nowhere.csv}\n", None),
        ("Person: [\n", None),
        ("- Person\n", None),
    ],
)
def test_load_with_invalid_mapping_reports_its_lines(
    empty: Twins, tmp_path: Path, text: str, source: Any
) -> None:
    path = tmp_path / "map.yaml"
    path.write_text(text)
    empty.refuse(lambda: source, mapping=path)


REJECTED = [ANN, {"type": "Person", "data": {"name": "Bob", "born": date(2020, 1, 1), "age": "x"}}, BOB, 7]


def test_load_with_rejects_callback_passes_the_records(twins: Twins) -> None:
    ours: list[Any] = []
    theirs: list[Any] = []
    twins.local.load(REJECTED, rejects=ours.append, engine="local")
    receipt = twins.remote.load(REJECTED, rejects=theirs.append)
    assert theirs == ours
    assert receipt.rejected == 2
    assert records(twins.remote) == records(twins.local)


def test_load_with_rejects_file_or_folder_writes_them(twins: Twins, tmp_path: Path) -> None:
    source = tmp_path / "people.csv"
    source.write_text("name,age\nAnn,x\nBob,1\n")
    (tmp_path / "rejects").mkdir()
    twins.load(lambda: {"Person": source}, rejects=tmp_path / "ours.ndjson")
    ours = (tmp_path / "ours.ndjson").read_bytes()
    assert json.loads(ours)["source"] == str(source)
    receipt = twins.remote.load({"Person": source}, "merge", rejects=tmp_path / "rejects")
    assert receipt.rejects is not None
    assert Path(receipt.rejects).read_bytes() == ours
    assert receipt.rejected_by_rule == {"Person": {"record": 1}}
    twins.remote.load([BOB], "merge", rejects=tmp_path / "none.ndjson")
    assert not (tmp_path / "none.ndjson").exists()


def test_load_that_is_refused_still_passes_rejects(empty: Twins) -> None:
    seen: list[Any] = []
    empty.refuse(lambda: [*REJECTED, {**KNOWS, "to": "Zoe"}], rejects=seen.append, max_rejects="50%")
    assert [item["rule"] for item in seen] == ["record", "record", "endpoint"] * 2
    assert seen[:3] == seen[3:]


def test_load_with_failing_rejects_callback_reports_the_commit(twins: Twins, tmp_path: Path) -> None:
    too_long = tmp_path / ("x" * 300)
    with pytest.raises(OSError, match="File name too long") as caught:
        twins.remote.load(REJECTED, rejects=too_long)
    assert caught.value.__notes__ == [
        f"the server has committed the load: commit {twins.remote.commits()[0].id}"
    ]
    with pytest.raises(OSError, match="File name too long") as caught:
        twins.remote.load([*REJECTED, {**KNOWS, "to": "Zoe"}], "merge", rejects=too_long, max_rejects=2)
    assert caught.value.__notes__ == ["the server has committed nothing"]


@pytest.mark.parametrize("rejects", [None, list[Any]().append])
@pytest.mark.parametrize(
    "text", [b"<html>", b"", b"[]", b'"tag"\n{"receipt":{}}\n', b'"tag"\n{"exception":1}\n']
)
def test_load_with_unreadable_receipt_raises_outcome_unknown(text: bytes, rejects: Any) -> None:
    with scripted([reply(body={"actor_id": None}), reply(text=text)]) as server:
        graph = og.connect(server.url, "team")
        with pytest.raises(OutcomeUnknown, match="not from an OmniGraph server") as caught:
            graph.load([ANN], rejects=rejects, idempotency_key="k-3")
    assert caught.value.details["idempotency_key"] == "k-3"


CID = {"type": "Person", "data": {"name": "Cid"}}


def test_load_sends_every_option(twins: Twins) -> None:
    twins.load(lambda: [ANN, BOB], message="first")
    assert twins.load(lambda: [{"type": "Person", "data": {"name": "Ann"}}], mode="merge").affected == {
        "Person": {"inserted": 0, "updated": 1, "deleted": 0}
    }
    assert twins.load(lambda: [BOB], mode="overwrite", dry_run=True).dry_run
    made = twins.load(lambda: [ANN], mode="overwrite", branch="new", create_from="main")
    assert made.branch_created
    edge = {**KNOWS, "data": {"id": "k"}}
    text = lines(ANN, BOB, edge, edge).replace(b"\n", b" ")
    assert twins.load(lambda: io.BytesIO(text), mode="merge", permissive=True).superseded == 1
    loose = b'{"type": "Person", "data": {"name": "Ann", "age": "x", "nick": 1}}'
    found = twins.load(lambda: io.BytesIO(loose), mode="merge", permissive=True)
    assert (found.warnings.nulled, found.warnings.dropped, len(found.warnings.listed)) == (1, 1, 2)
    for again in (False, True):
        found = twins.load(lambda: [CID], mode="merge", idempotency_key="once")
        assert found.replayed is again
    head = twins.remote.commits(limit=1)[0].id
    dan = {"type": "Person", "data": {"name": "Dan"}}
    assert twins.remote.load([dan], "merge", if_commit=head).commit is not None
    with pytest.raises(PreconditionFailed):
        twins.remote.load([ANN], "merge", if_commit=head)
    for options in ({"branch": "nowhere"}, {"mode": "replace"}, {"engine": "quick"}):
        twins.refuse(lambda: [ANN], **options)


def test_load_refused_during_the_upload_raises_the_refusal(server: Running) -> None:
    with og.connect(server.url, "team", token=TOKENS["bob"]) as bob, pytest.raises(PermissionDenied):
        bob.load({"Person": [{"name": "x" * 1000}] * 20_000})


def test_load_progress_counts_sent_bytes(twins: Twins, tmp_path: Path) -> None:
    path = tmp_path / "many.ndjson"
    path.write_bytes(lines(*({"type": "City", "data": {"name": f"c{n}"}} for n in range(20_000))))
    seen: list[tuple[str, int]] = []
    twins.remote.load(path, progress=lambda stage, done: seen.append((stage, done)))
    assert {stage for stage, _ in seen} == {"send"}
    assert [done for _, done in seen] == sorted(done for _, done in seen)
    assert len(seen) >= 2
    assert seen[-1][1] > path.stat().st_size


class DataFrame:
    """Looks like one of Spark's."""

    __module__ = "pyspark.sql.classic.dataframe"


@pytest.mark.parametrize("source", [{"Person": "table:people"}, {"Person": DataFrame()}])
def test_load_of_spark_source_is_refused_with_a_hint(empty: Twins, source: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        empty.remote.load(source)
    assert "storage" in str(caught.value.hint)
    with pytest.raises(InvalidInput):
        empty.remote.load([ANN], engine="spark")


def test_load_with_failing_source_raises_its_error(twins: Twins) -> None:
    def give() -> Iterator[Any]:
        yield ANN
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        twins.remote.load(give())
    assert records(twins.remote) == []
    with pytest.raises(InvalidInput, match="binary"):
        twins.remote.load(io.StringIO("{}"))
    with pytest.raises(NotFound):
        twins.remote.load([ANN], branch="nowhere")
    assert twins.remote.load([ANN]).total == 1


def test_row_operations_over_http_equal_those_of_a_local_graph(twins: Twins, folder: Path) -> None:
    (folder / "log.csv").write_text("kind,at,name,age\nU,3,Ann,33\nI,1,Ann,31\nd,2,Bob,\nc,4,Cy,5\n")
    twins.load(lambda: [ANN, BOB, KNOWS, {"type": "City", "data": {"name": "Bern", "size": 1.5}}])
    patched = twins.load(
        lambda: {"Person": pa.table({"name": ["Ann"], "born": [date(1990, 5, 1)]})}, mode="patch"
    )
    assert patched.affected == {"Person": {"inserted": 0, "updated": 1, "deleted": 0}}
    logged = twins.load(
        lambda: {"Person": folder / "log.csv"}, mode="patch", op_column="kind", order_by="at", message="log"
    )
    assert logged.affected["Person"] == {"inserted": 1, "updated": 1, "deleted": 1}
    assert logged.affected["Knows"]["deleted"] == 1
    twins.load(
        lambda: [
            {"type": "City", "op": "d", "seq": 2, "data": {"name": "Bern"}},
            {"type": "City", "op": "u", "seq": 1, "data": {"name": "Bern", "size": 2.0}},
            {"type": "Person", "op": "u", "seq": 1, "data": {"name": "Cy", "age": 6}},
        ],
        mode="merge",
        op_column="op",
        order_by="seq",
    )
    gone = twins.load(lambda: {"Person": [{"name": "Cy"}, {"name": "Nobody"}]}, mode="delete")
    assert gone.skipped["Person"] == {"superseded": 0, "unchanged": 0, "absent": 1}
    (left,) = records(twins.remote)
    assert (left["data"]["name"], left["data"]["age"]) == ("Ann", 33)
    assert left["data"]["born"] is not None
    refused = twins.refuse(lambda: {"Person": [{"name": "Cy"}]}, mode="delete", require_existing=True)
    assert "has no id 'Cy' to delete" in refused.message
    later = twins.load(lambda: {"City": [{"name": "Oslo", "size": 1.0}]}, mode="merge", index="later")
    assert later.unindexed == {"City": 1}
    refused = twins.refuse(lambda: {"Person": [{"name": "Cy"}]}, mode="delete", op_column="op")
    assert "operation column does not apply to mode 'delete'" in refused.message
