"""New input of sources, the state after it, and conditions of audits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph.errors import InvalidInput
from omnigraph.pipelines.audit_expressions import evaluate, parse_expectation
from omnigraph.pipelines.definition import FileSource
from omnigraph.pipelines.file_inputs import find_new_files
from omnigraph.pipelines.run_record import RunRecord, SourceLineage


def names(files: object) -> list[str]:
    return [Path(file.name).name for file in files]  # type: ignore[attr-defined]


def source(**options: str) -> FileSource:
    return FileSource.model_validate({"format": "csv", "path": "*.csv", **options})


def test_incremental_files_that_were_read_are_not_read_again(tmp_path: Path) -> None:
    pattern, folder = str(tmp_path / "*.csv"), str(tmp_path)
    (tmp_path / "a.csv").write_text("x\n1\n")
    first = find_new_files(source(incremental="files"), pattern, folder, None, {})
    assert names(first.new) == ["a.csv"]
    again = find_new_files(source(incremental="files"), pattern, folder, first.state, {})
    assert names(again.new) == []
    assert again.state == first.state
    (tmp_path / "b.csv").write_text("x\n2\n")
    second = find_new_files(source(incremental="files"), pattern, folder, first.state, {})
    assert names(second.new) == ["b.csv"]


def test_incremental_file_that_is_replaced_is_read_again(tmp_path: Path) -> None:
    file, folder = tmp_path / "a.csv", str(tmp_path)
    file.write_text("x\n1\n")
    first = find_new_files(source(incremental="files"), str(file), folder, None, {})
    file.write_text("x\n2\n")
    os.utime(file, ns=(10**18, 10**18))
    assert names(find_new_files(source(incremental="files"), str(file), folder, first.state, {}).new) == [
        "a.csv"
    ]


def test_state_of_files_does_not_depend_on_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    first = find_new_files(source(incremental="files"), str(tmp_path / "*.csv"), str(tmp_path), None, {})
    monkeypatch.chdir(tmp_path)
    again = find_new_files(source(incremental="files"), "*.csv", ".", first.state, {})
    assert names(again.new) == []


def test_state_of_files_holds_only_files_that_are_listed(tmp_path: Path) -> None:
    pattern, folder = str(tmp_path / "*.csv"), str(tmp_path)
    for number in range(50):
        (tmp_path / f"{number}.csv").write_text("x\n1\n")
    first = find_new_files(source(incremental="files"), pattern, folder, None, {})
    for number in range(1, 50):
        (tmp_path / f"{number}.csv").unlink()
    last = find_new_files(source(incremental="files"), pattern, folder, first.state, {})
    assert len(last.state["seen"]) < len(first.state["seen"]) / 20
    assert names(last.new) == []


def test_files_without_increment_are_all_read_when_one_of_them_changes(tmp_path: Path) -> None:
    pattern, folder = str(tmp_path / "*.csv"), str(tmp_path)
    (tmp_path / "a.csv").write_text("x\n1\n")
    first = find_new_files(source(), pattern, folder, None, {})
    assert names(find_new_files(source(), pattern, folder, first.state, {}).new) == []
    (tmp_path / "b.csv").write_text("x\n2\n")
    assert names(find_new_files(source(), pattern, folder, first.state, {}).new) == ["a.csv", "b.csv"]


def test_run_record_survives_its_text() -> None:
    record = RunRecord(
        "shop",
        "R1",
        "2026-05-01T00:00:00.000+00:00",
        "abc",
        "C1",
        {"a": {"kind": "files", "seen": "AAA="}},
        {"a": SourceLineage("files", ("x.csv",), 1), "b": SourceLineage("column", start=None, stop="7")},
    )
    assert RunRecord.from_text(record.to_text()) == record


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count < 3", True),
        ("count between 3 and 5", False),
        ("not (count = 2 or total > 1.5)", False),
        ("total / count >= 0.5 and name = 'x'", True),
        ("missing_mean is null", True),
        ("missing_mean > 0", False),
        ("deleted('City') + inserted() = 4", True),
    ],
)
def test_condition_of_an_audit_is_evaluated_over_its_values(text: str, expected: bool) -> None:
    values = {"count": 2, "total": 1.0, "name": "x", "missing_mean": None}
    counts = {("deleted", "City"): 1, ("inserted", None): 3}
    assert evaluate(parse_expectation(text), values, lambda name, kind: counts[name, kind]) is expected


@pytest.mark.parametrize(
    "text", ["count", "count <", "drop('x') = 1", "count = (select 1)", "read_csv('x') = 1"]
)
def test_condition_of_an_audit_that_is_no_comparison_raises(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_expectation(text)
