"""The contract of `Graph.export` into folders: what is written, where it may go, and that it loads back."""

from __future__ import annotations

import json
import math
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, StorageError
from omnigraph.read.export import export_parts
from omnigraph.read.export.export_parts import ExportFormat
from omnigraph.store.objects.object_store import ObjectStore
from tests.read.exports import EXTERNAL, SCHEMA, files_of, fill, rows_in, source_of, text_of
from tests.support.places import fresh_memory
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]

FORMS: list[ExportFormat] = ["ndjson", "parquet"]


@pytest.fixture(scope="module")
def first() -> list[str]:
    """The commit of the first load, once there is a graph."""
    return []


@pytest.fixture(scope="module")
def graph(first: list[str]) -> og.Graph:
    made = og.init(fresh_memory(), schema=SCHEMA, external_blobs=EXTERNAL)
    first.append(fill(made))
    return made


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_parts, "plan_parts", partial(export_parts.plan_parts, rows_per_part=30))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("state", ["main", "more", "commit"])
def test_export_folder_loads_back_to_the_same_graph(
    graph: og.Graph, first: list[str], tmp_path: Path, form: ExportFormat, state: str
) -> None:
    chosen: dict[str, Any] = {"at": first[0]} if state == "commit" else {"branch": state}
    wanted = text_of(graph, **chosen)
    out = tmp_path / "out"
    assert graph.export(f"{out}/", format=form, **chosen) == wanted.count("\n")
    copy = og.init(fresh_memory(), schema=SCHEMA, external_blobs=EXTERNAL)
    assert copy.load(source_of(out, form)).total == wanted.count("\n")
    assert text_of(copy) == wanted
    marker = json.loads((out / "_SUCCESS").read_text(encoding="utf-8"))
    assert marker["commit"] == graph.snapshot(**chosen).commit_id
    assert marker["rows"] == {key: rows.total() for key, rows in rows_in(out, form).items()}


def test_export_folder_names_files_by_kind_type_and_number(graph: og.Graph, tmp_path: Path) -> None:
    graph.export(f"{tmp_path}/a/", types=["Thing", "Likes"])
    assert files_of(tmp_path / "a") == [
        "_SUCCESS",
        "edge-Likes-00000.ndjson",
        "node-Thing-00000.ndjson",
        "node-Thing-00001.ndjson",
    ]
    graph.export(tmp_path / "b", types=["Empty", "Likes"], format="parquet")
    assert files_of(tmp_path / "b") == [
        "_SUCCESS",
        "edges/Likes/part-00000.parquet",
        "nodes/Empty/part-00000.parquet",
    ]
    copy = og.init(fresh_memory(), schema=SCHEMA, external_blobs=EXTERNAL)
    assert copy.load(source_of(tmp_path / "b", "parquet", {"Empty"})).total == 0


def test_export_folder_has_the_lines_of_a_single_file(graph: og.Graph, tmp_path: Path) -> None:
    graph.export(f"{tmp_path}/out/")
    found = [line for rows in rows_in(tmp_path / "out", "ndjson").values() for line in rows.elements()]
    assert sorted(found) == sorted(text_of(graph).split("\n")[:-1])


def test_export_of_empty_graph_writes_a_folder_that_loads(tmp_path: Path) -> None:
    nothing = og.init(fresh_memory(), schema=SCHEMA, external_blobs=EXTERNAL)
    assert nothing.export(f"{tmp_path}/out/") == 0
    copy = og.init(fresh_memory(), schema=SCHEMA, external_blobs=EXTERNAL)
    assert copy.load(tmp_path / "out").total == 0


def test_export_target_is_a_folder_by_its_name_or_if_it_exists(graph: og.Graph, tmp_path: Path) -> None:
    everything = text_of(graph, types=["Note"])
    for name in ("a.ndjson", "b.jsonl", "c"):
        assert graph.export(tmp_path / name, types=["Note"]) == 10
        assert (tmp_path / name).read_text(encoding="utf-8") == everything
    (tmp_path / "there").mkdir()
    graph.export(tmp_path / "there", types=["Note"])
    assert files_of(tmp_path / "there") == ["_SUCCESS", "node-Note-00000.ndjson"]
    graph.export((tmp_path / "uri").as_uri() + "/", types=["Note"])
    assert files_of(tmp_path / "uri") == ["_SUCCESS", "node-Note-00000.ndjson"]


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("a.ndjson", {"format": "parquet"}, "is the name of one"),
        ("a.parquet", {"format": "parquet"}, "is the name of one"),
        ("a.jsonl", {"engine": "spark"}, "is the name of one"),
        (StringIO(), {"format": "parquet"}, "and the target is a stream"),
        (StringIO(), {"engine": "spark"}, "and the target is a stream"),
        ("out/", {"format": "csv"}, "unknown format 'csv'"),
        ("out/", {"engine": "abacus"}, "unknown engine 'abacus'"),
        ("out/", {"engine": "spark"}, "out of reach for Spark"),
        ("out/", {"types": ["Thng"]}, "unknown export type 'Thng'; did you mean `Thing`"),
    ],
)
def test_export_with_invalid_options_is_refused_before_writing(
    graph: og.Graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: Any,
    options: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=message):
        graph.export(target, **options)
    assert list(tmp_path.iterdir()) == []


def test_export_to_existing_folder_requires_overwrite(graph: og.Graph, tmp_path: Path) -> None:
    graph.export(f"{tmp_path}/out/")
    before = files_of(tmp_path / "out")
    with pytest.raises(InvalidInput, match="is not empty"):
        graph.export(f"{tmp_path}/out/", format="parquet")
    with pytest.raises(InvalidInput, match="unknown export type"):
        graph.export(f"{tmp_path}/out/", types=["Nobody"], overwrite=True)
    assert files_of(tmp_path / "out") == before
    graph.export(f"{tmp_path}/out/", types=["Note"], format="parquet", overwrite=True)
    assert files_of(tmp_path / "out") == ["_SUCCESS", "nodes/Note/part-00000.parquet"]


class _StoppedError(Exception):
    pass


def test_export_that_is_interrupted_keeps_the_previous_export(graph: og.Graph, tmp_path: Path) -> None:
    graph.export(f"{tmp_path}/out/", types=["Note"])
    told: list[int] = []

    def stop(_key: str, rows: int) -> None:
        told.append(rows)
        if len(told) == 2:
            raise _StoppedError

    with pytest.raises(_StoppedError):
        graph.export(f"{tmp_path}/out/", overwrite=True, progress=stop)
    assert files_of(tmp_path / "out") == ["_SUCCESS", "node-Note-00000.ndjson"]


def test_export_progress_counts_every_row(graph: og.Graph, tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    count = graph.export(f"{tmp_path}/out/", progress=lambda *item: told.append(item))
    assert sum(rows for _, rows in told) == count
    assert {key for key, _ in told} == {"node:Thing", "node:Note", "edge:Likes", "edge:About"}


def test_export_parquet_keeps_nan_and_infinity(tmp_path: Path) -> None:
    schema = "node Reading { name: String @key  f: F64?  g: F32?  h: [F64]? }"
    graph = og.init(fresh_memory(), schema=schema)
    odd = [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324]
    rows = {"name": list("abcde"), "f": odd, "g": pa.array(odd, pa.float32()), "h": [[item] for item in odd]}
    graph.load({"Reading": pa.table(rows)})
    graph.export(f"{tmp_path}/out/", format="parquet")
    copy = og.init(fresh_memory(), schema=schema)
    copy.load({"Reading": f"{tmp_path}/out/nodes/Reading/"})
    assert text_of(copy) == text_of(graph)
    assert '"f":"-Infinity"' in text_of(copy)


# --- buckets ------------------------------------------------------------------------------------------------


@pytest.fixture
def in_bucket(s3: Bucket) -> og.Graph:
    made = og.init(fresh_memory(), schema=SCHEMA, external_blobs=EXTERNAL, storage_options=s3.options)
    fill(made)
    return made


@pytest.mark.parametrize("form", FORMS)
def test_export_folder_on_s3_loads_back(s3: Bucket, in_bucket: og.Graph, form: ExportFormat) -> None:
    target = f"{s3.uri}/dumps/all/"
    in_bucket.export(target, format=form)
    copy = og.init(fresh_memory(), schema=SCHEMA, external_blobs=EXTERNAL, storage_options=s3.options)
    copy.load(source_of(target, form))
    assert text_of(copy) == text_of(in_bucket)
    with pytest.raises(InvalidInput, match="is not empty"):
        in_bucket.export(target, format=form)
    in_bucket.export(target, types=["Note"], overwrite=True)
    keys = [info.key for info in ObjectStore.open(s3.uri, s3.options).list("dumps")]
    assert keys == ["dumps/all/_SUCCESS", "dumps/all/node-Note-00000.ndjson"]


def test_export_to_s3_that_fails_is_not_marked_complete(s3: Bucket, in_bucket: og.Graph) -> None:
    target = f"{s3.uri}/dumps/"
    with (
        s3.seam.fail(403, method="PUT", key="dumps/node-Thing-00001.ndjson", times=None),
        pytest.raises(StorageError),
    ):
        in_bucket.export(target)
    assert list(ObjectStore.open(s3.uri, s3.options).list("dumps")) == []
    in_bucket.export(target)
    assert ObjectStore.open(s3.uri, s3.options).get("dumps/_SUCCESS").data


def test_export_to_s3_takes_one_listing_and_one_request_per_file(s3: Bucket, in_bucket: og.Graph) -> None:
    with s3.seam.recording() as log:
        in_bucket.export(f"{s3.uri}/dumps/", types=["Note", "Empty"])
    methods = [item.method for item in log.requests if item.bucket == s3.name]
    assert sorted(methods) == ["GET", "PUT", "PUT", "PUT"], str(log)


@pytest.mark.parametrize("target", ["all.ndjson", "dump/"])
def test_export_ndjson_of_nan_and_infinity_loads_back(tmp_path: Path, target: str) -> None:
    schema = "node Reading { name: String @key  x: F64?  y: F32?  zs: [F64]? }"
    graph = og.init(str(tmp_path / "odd.omni"), schema=schema)
    numbers = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.5}
    columns = {
        "name": list(numbers),
        "x": list(numbers.values()),
        "y": pa.array(numbers.values(), pa.float32()),
    }
    graph.load({"Reading": pa.table({**columns, "zs": [[value, 1.0] for value in numbers.values()]})})
    path = str(tmp_path / target) + ("/" if target.endswith("/") else "")
    graph.export(path)
    copy = og.init(str(tmp_path / "copy.omni"), schema=schema)
    copy.load(path)
    # As text, since NaN is not equal to itself.
    assert [repr(copy.get("Reading", name)) for name in numbers] == [
        repr(graph.get("Reading", name)) for name in numbers
    ]
