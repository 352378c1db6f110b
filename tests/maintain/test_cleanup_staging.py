"""Garbage collection removes old scratch files of killed bulk writes, including temporary files."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from omnigraph.graph.recovery.scratch_files import PREFIX, ScratchFolder
from omnigraph.graph.repository import Repository
from omnigraph.maintain.cleanup import cleanup
from tests.spark.loads import CATALOG

HOUR = 3_600


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    return Repository.init(str(tmp_path / "graph"), CATALOG, durability="os")


def set_down(graph: Repository, *, age: float) -> Path:
    """Return the scratch directory of a writer that was killed during its second file, some seconds ago."""
    scratch = ScratchFolder(graph.location.uri)
    with scratch.open_write("keys-1.parquet") as file:
        file.write(b"keys")
    folder = scratch.path("")
    assert folder is not None
    (folder / ".omnigraph-0123456789abcdef.tmp").write_bytes(b"half of the ke")
    moment = time.time() - age
    for path in (*folder.iterdir(), folder):
        os.utime(path, (moment, moment))
    return folder


def test_a_folder_goes_with_the_file_that_was_being_written(graph: Repository) -> None:
    folder = set_down(graph, age=2 * HOUR)
    told = cleanup(graph, keep=1)
    assert len(list(folder.iterdir())) == 2
    done = cleanup(graph, keep=1, confirm=True)
    assert (told.objects_removed, done.objects_removed) == (1, 1)
    assert list(Path(graph.location.path, PREFIX).iterdir()) == []


def test_a_folder_stays_while_its_writer_may_live(graph: Repository) -> None:
    folder = set_down(graph, age=HOUR / 2)
    cleanup(graph, keep=1, confirm=True)
    assert len(list(folder.iterdir())) == 2
    cleanup(graph, keep=1, confirm=True, grace=timedelta(0))
    assert not folder.exists()


def test_an_old_folder_that_is_written_to_again_stays(graph: Repository) -> None:
    folder = set_down(graph, age=2 * HOUR)
    (folder / "keys-2.parquet").write_bytes(b"keys")
    cleanup(graph, keep=1, confirm=True)
    assert {path.name for path in folder.iterdir()} == {"keys-2.parquet", ".omnigraph-0123456789abcdef.tmp"}
