"""Errors of a run name the place in the pipeline file, and hide the values of variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import (
    ConstraintViolation,
    ErrorLocation,
    InvalidInput,
    NotFound,
    OmnigraphError,
    StorageError,
)
from omnigraph.pipelines.pipeline_file import Pipeline, read_pipeline
from omnigraph.pipelines.run_errors import translated_errors

FILE = """
graph: shop.omni
sources:
  people: {format: csv, path: "${PLACE}"}
nodes:
  Person: {from: people}
""".lstrip()


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    (tmp_path / "p.yaml").write_text(FILE, encoding="utf-8")
    return read_pipeline(tmp_path / "p.yaml", {"PLACE": "s3://secret"})


def text_of(pipeline: Pipeline, error: OmnigraphError, path: tuple[str, ...] = ()) -> str:
    with pytest.raises(type(error)) as raised, translated_errors(pipeline, path):
        raise error
    assert "secret" not in repr(raised.value.__dict__) + repr(raised.value.args)
    return str(raised.value).removeprefix(f"{pipeline.folder}/")


def test_missing_input_of_a_source_names_the_source(pipeline: Pipeline) -> None:
    error = NotFound("file `s3://secret/a.csv` not found", hint="did you mean `s3://secret/b.csv`?")
    assert text_of(pipeline, error, ("sources", "people")) == (
        "p.yaml: line 3: sources.people: file `${PLACE}/a.csv` not found\nhint: did you mean `${PLACE}/b.csv`?"
    )


def test_invalid_row_of_a_target_names_the_target_and_the_way_out(pipeline: Pipeline) -> None:
    place = ErrorLocation(source="DataFrame of node:Person", type="Person", row=1, column="age")
    assert text_of(pipeline, InvalidInput('expected I32, got "x"', location=place)) == (
        "p.yaml: line 5: nodes.Person: row 1, column 'age': expected I32, got \"x\"\n"
        "hint: convert or filter the rows in a view, or set `on_fail: quarantine`"
    )


def test_violation_of_a_rule_names_the_target_and_keeps_its_data(pipeline: Pipeline) -> None:
    violation = {
        "message": "id 'x' is repeated",
        "type": "node:Person",
        "line": 3,
        "source": "DataFrame of node:Person",
    }
    error = ConstraintViolation("id 'x' is repeated", [violation], details={"violations": 4})
    with pytest.raises(ConstraintViolation) as raised, translated_errors(pipeline, ()):
        raise error
    assert raised.value.violations == (violation,)
    assert "p.yaml: line 5: nodes.Person: line 3: id 'x' is repeated (and 3 more)" in str(raised.value)


def test_error_with_a_place_of_its_own_keeps_it(pipeline: Pipeline) -> None:
    place = ErrorLocation(source="audits.gq", line=3)
    assert text_of(pipeline, InvalidInput("wrong", location=place)) == "audits.gq: line 3: wrong"
    assert (
        text_of(pipeline, StorageError("no access to s3://secret", kind="permanent"))
        == "no access to ${PLACE}"
    )
