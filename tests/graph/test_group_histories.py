"""Several handles, each with several threads, write to one branch: every commit has the rows of its place."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import omnigraph as og
from tests.support.group_history import SCHEMA, Step, check_history, write_steps
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]

HANDLES = 2
THREADS = 4
STEPS = 6


@pytest.mark.parametrize("place", ["disk", "s3"])
def test_inserts_updates_and_deletes_of_many_handles_and_threads_form_one_chain(
    place: str, tmp_path: Path, s3: Bucket
) -> None:
    uri, options = (str(tmp_path / "graph"), {}) if place == "disk" else (f"{s3.uri}/graph", s3.options)
    og.init(uri, schema=SCHEMA, storage_options=dict(options)).close()
    acknowledged: dict[str, str] = {}

    def report(commit: str, step: Step) -> None:
        acknowledged[commit] = step.message

    def run(handle: int) -> None:
        writers = [f"{handle}.{number}" for number in range(THREADS)]
        with og.open(uri, storage_options=dict(options), durability="os") as graph:
            write_steps(graph, writers, 7, STEPS, report)

    with ThreadPoolExecutor(HANDLES) as pool:
        list(pool.map(run, range(HANDLES)))
    length = check_history(uri, acknowledged, unreported=0, options=options)
    assert length == len(acknowledged) > HANDLES * THREADS
