"""The script and the notebook that show the pipeline run as they are."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.waiting import HANG
from tests.support.workers import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
FOLDER = ROOT / "examples" / "spark"


def test_example_script_loads_queries_writes_and_streams(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    partitions = str(spark.conf.get("spark.sql.shuffle.partitions"))
    # The session belongs to all tests.
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["pipeline.py", str(tmp_path)])
    try:
        runpy.run_path(str(FOLDER / "pipeline.py"), run_name="__main__")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
    check_output(capsys.readouterr().out)


# The test above leaves out the start of the process and of Spark.
@pytest.mark.long
def test_example_script_runs_as_a_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "pipeline.py", tmp_path],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    check_output(done.stdout)


def check_output(text: str) -> None:
    loaded, same, moved, commits = text.splitlines()
    assert loaded.startswith("loaded 12060 records")
    assert same.startswith("equal results: [{'site': 'site 0', 'readings': 100, 'highest': 99.0}")
    assert moved == "moved: ['s00', 's01']"
    # One for the plant, and one for each file that the stream took as a batch of its own.
    assert commits == "commits on main: ['load', 'load', 'load', 'init']"


@pytest.mark.long
def test_example_notebook_runs_to_its_last_cell(tmp_path: Path) -> None:
    # It comes without types.
    read: Any = nbformat.read
    notebook = read(FOLDER / "notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    NotebookClient(notebook, timeout=int(HANG), resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [
        output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "execute_result"
    ]
    counts, towns, members, then_and_now = shown
    assert counts == "{'nodes': {'Book': 2, 'Member': 3}, 'edges': {'Borrowed': 3}, 'total': 8}"
    assert [line.split()[1:] for line in towns.splitlines()[1:]] == [
        ["Bern", "2", "430.0"],
        ["Oslo", "1", "120.0"],
    ]
    assert all(
        f"'{name}': '{town}'" in members for name, town in (("Ana", "Lyon"), ("Dov", "Graz"), ("Bo", "Oslo"))
    )
    assert then_and_now == "('Bern', 'Lyon')"
