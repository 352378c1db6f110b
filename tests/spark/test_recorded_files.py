"""Every file of a commit by Spark has a recorded digest, which the task that wrote the file computed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnigraph as og
from omnigraph.sources import splits
from omnigraph.store.file_digests import parse_digests
from tests.graph.test_recorded_files import check_recorded, repository_of
from tests.maintain.damage import verify_path
from tests.spark.loads import SCHEMA, knows, person, text_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PEOPLE = 30


def test_load_and_optimize_on_spark_record_one_digest_for_every_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "plan_splits", partial(splits.plan_splits, split_bytes=900))
    source = tmp_path / "people.jsonl"
    with og.init(tmp_path / "graph", schema=SCHEMA, durability="os") as graph:
        source.write_text(text_of(person(f"p{number}", age=number) for number in range(PEOPLE)), "utf-8")
        appended = graph.load(source, "append", engine="spark", spark=spark).commit
        changed = [person(f"p{number}", age=99) for number in range(0, PEOPLE, 2)]
        added = [knows(f"k{number}", "p0", f"p{number}") for number in range(PEOPLE)]
        source.write_text(text_of([*changed, *added]), "utf-8")
        merged = graph.load(source, "merge", engine="spark", spark=spark).commit
        optimized = graph.optimize(engine="spark", spark=spark).commit
        repository = repository_of(graph)
        assert check_recorded(repository, tmp_path / "graph") > PEOPLE // 2
        manifest = repository.manifest
        for commit in (appended, merged, optimized):
            assert commit is not None
            stored = manifest.find_commit(manifest.refresh(), commit.id)
            assert stored is not None
            names = [digest.name for _, digest in parse_digests(stored.files)]
            # Several tasks of a load wrote data files.
            assert sum(name.startswith("data/") for name in names) >= (1 if commit is optimized else 2)
    report = verify_path(tmp_path / "graph", all_commits=True)
    assert (report.damage, report.not_recorded) == ((), 0)
