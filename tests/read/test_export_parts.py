"""Parts of an export: which rows each has, and that a part that is done again changes nothing."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.errors import NotFound, StorageError
from omnigraph.maintain.cleanup import cleanup
from omnigraph.read.export import export_parts
from omnigraph.read.export.export_parts import ExportFormat, ExportJob, plan_parts, write_part
from tests.read.exports import EXTERNAL, SCHEMA, files_of, fill, rows_in

FORMS: list[ExportFormat] = ["ndjson", "parquet"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    made = og.init(
        str(tmp_path_factory.mktemp("parts") / "g"), schema=SCHEMA, external_blobs=EXTERNAL, durability="os"
    )
    fill(made)
    return made


def job_of(graph: og.Graph, folder: Path, form: ExportFormat) -> ExportJob:
    return ExportJob(graph.uri, graph.snapshot().commit, str(folder), "", form, {})


def test_every_row_is_in_one_part_and_every_type_has_one(graph: og.Graph) -> None:
    snapshot = graph.snapshot()
    for most in (1, 50, 1_000):
        parts = plan_parts(snapshot, None, "ndjson", most)
        assert len({part.name for part in parts}) == len(parts)
        for key, pin in snapshot.types.items():
            mine = [part for part in parts if part.table.key == key]
            fragments = snapshot.tables.open(pin.path, pin.version).get_fragments()
            assert [id_ for part in mine for id_ in part.fragments] == [
                item.fragment_id for item in fragments
            ]
            assert sum(part.rows for part in mine) == pin.rows
            assert mine
            assert all(part.rows <= most or len(part.fragments) == 1 for part in mine)
    assert len(plan_parts(snapshot, ["Thing"], "ndjson", 50)) > 1
    assert [part.name for part in plan_parts(snapshot, ["Empty"], "ndjson")] == ["node-Empty-00000.ndjson"]
    assert plan_parts(snapshot, ["Likes"], "parquet")[0].name == "edges/Likes/part-00000.parquet"


@pytest.mark.parametrize("form", FORMS)
def test_a_part_that_is_done_again_elsewhere_is_the_same_file(
    graph: og.Graph, tmp_path: Path, form: ExportFormat
) -> None:
    job = job_of(graph, tmp_path, form)
    parts = plan_parts(graph.snapshot(), None, form, 30)
    for part in parts:
        assert write_part(job, part, graph.snapshot().tables).rows == part.rows
    before = rows_in(tmp_path, form)
    for part in reversed(parts):
        travelled = pickle.loads(pickle.dumps((job, part)))
        assert write_part(*travelled).error is None
    assert files_of(tmp_path) == sorted(part.name for part in parts)
    assert rows_in(tmp_path, form) == before
    assert {key: rows.total() for key, rows in before.items()} == {
        key: pin.rows for key, pin in graph.snapshot().types.items()
    }


def test_parquet_has_the_types_of_the_schema_and_groups_of_bounded_size(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_parts, "_BATCH_ROWS", 8)
    monkeypatch.setattr(export_parts, "_GROUP_ROWS", 16)
    job = job_of(graph, tmp_path, "parquet")
    (part,) = plan_parts(graph.snapshot(), ["Thing"], "parquet")
    assert write_part(job, part).error is None
    file = pq.ParquetFile(tmp_path / part.name)
    groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert sum(groups) == part.rows
    assert len(groups) > 2
    assert max(groups) < 32
    kinds = {item.name: str(item.type) for item in file.schema_arrow}
    assert (kinds["large"], kinds["moment"], kinds["day"]) == ("uint64", "timestamp[ms]", "date32[day]")
    assert kinds["place"].endswith("[3]")
    assert not file.schema_arrow.field("id").nullable


def test_credentials_are_not_in_what_is_printed(graph: og.Graph, tmp_path: Path) -> None:
    job = ExportJob(graph.uri, graph.snapshot().commit, str(tmp_path), "", "ndjson", {"secret": "hush"})
    assert "hush" not in repr(job)


def test_rows_that_are_not_there_are_an_error_and_no_file(graph: og.Graph, tmp_path: Path) -> None:
    job = job_of(graph, tmp_path, "ndjson")
    (part,) = plan_parts(graph.snapshot(), ["Thing"], "ndjson")
    fewer = type(part)(part.name, part.table, part.pin, part.fragments, part.rows + 1)
    report = write_part(job, fewer)
    assert isinstance(report.error, StorageError)
    assert files_of(tmp_path) == []


@pytest.mark.parametrize("form", FORMS)
def test_a_commit_that_cleanup_has_taken_says_so(tmp_path: Path, form: ExportFormat) -> None:
    graph = og.init(str(tmp_path / "g"), schema="node Thing { name: String @key }")
    graph.load({"Thing": [{"name": "a"}]})
    old = graph.snapshot()
    (part,) = plan_parts(old, None, form)
    graph.load({"Thing": [{"name": "b"}]}, mode="overwrite")
    cleanup(graph._repository, keep=1, confirm=True, grace=timedelta(0))
    report = write_part(ExportJob(graph.uri, old.commit, str(tmp_path / "out"), "", form, {}), part)
    assert isinstance(report.error, NotFound)
    assert report.error.details["reason"] == "reclaimed"
    assert files_of(tmp_path / "out") == []
