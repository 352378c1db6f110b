"""A commit refers only to files that exist with the size that was written, however long its writer paused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import Conflict, StorageError
from omnigraph.graph import staged_files
from omnigraph.graph.publish import publish
from omnigraph.graph.recovery.interrupted_writes import recover_all
from omnigraph.graph.repository import Repository
from omnigraph.graph.write_plan import WritePlan
from omnigraph.store.boot_clock import boot_clock
from tests.support.repositories import (
    catalog_of,
    chain,
    handle,
    leave_intent,
    make_graph,
    people,
    put,
    stage,
    staging,
)
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]

# Stages a change, suspends itself, and publishes the change when it is continued.
WRITER = """
import os, signal, sys
from tests.support.repositories import handle, staging, write
from omnigraph.graph.repository import Repository
graph = Repository.open(sys.argv[1], durability="os")
preparations = []
def prepare(transaction):
    done = staging({"b": "2"}, ["a"])(transaction)
    preparations.append(transaction.fence)
    if len(preparations) == 1:
        print("staged", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return done
try:
    write(graph, prepare)
except Exception as error:
    print(type(error).__name__, error, flush=True)
else:
    print("committed after", len(preparations), flush=True)
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Repository]:
    graph = make_graph(str(tmp_path / "graph"))
    put(graph, {"a": "1", "z": "26"})
    yield graph
    graph.close()


def staged_plan(graph: Repository) -> WritePlan:
    transaction = graph.begin()
    stage(transaction, {"b": "2"}, ["a"])
    return transaction.plan("mutate", "insert")


def staged_names(plan: WritePlan) -> list[str]:
    return sorted(f"{path}/{file.name}" for path, files in plan.files.items() for file in files)


def test_write_of_a_suspended_process_whose_files_were_collected_is_prepared_again(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    graph = make_graph(str(folder))
    put(graph, {"a": "1", "z": "26"})
    before = chain(graph)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "staged\n"
        os.waitpid(writer.pid, os.WUNTRACED)
        with og.open(folder) as other:
            removed = other.cleanup(keep=1, grace="0s", confirm=True)
        assert removed["confirmed"]
        os.kill(writer.pid, signal.SIGCONT)
        answer = writer.stdout.read()
    assert answer == "committed after 2\n"
    again = handle(graph)
    assert chain(again)[:-1] == before
    assert people(again) == {"b": "2", "z": "26"}
    put(again, {"c": "3"})


def test_publish_with_any_staged_file_missing_is_refused_and_nothing_is_visible(
    graph: Repository, tmp_path: Path
) -> None:
    before = chain(graph)
    names = staged_names(staged_plan(graph))
    assert {name.split("/")[2] for name in names} == {"_deletions", "_transactions", "_versions", "data"}
    for number in range(len(names)):
        plan = staged_plan(graph)
        name = staged_names(plan)[number]
        (tmp_path / "graph" / name).unlink()
        with pytest.raises(Conflict, match=f"{name} was removed before this mutate was published") as refused:
            publish(graph.manifest, plan)
        assert refused.value.details == {"branch": "main", "file": name}
        assert chain(handle(graph)) == before
    assert people(graph) == {"a": "1", "z": "26"}


def test_publish_with_a_staged_file_of_another_size_is_a_storage_error(
    graph: Repository, tmp_path: Path
) -> None:
    plan = staged_plan(graph)
    name = next(name for name in staged_names(plan) if "/data/" in name)
    file = tmp_path / "graph" / name
    size = file.stat().st_size
    os.truncate(file, size - 1)
    with pytest.raises(StorageError, match=f"{name} has {size - 1} bytes, expected {size}"):
        publish(graph.manifest, plan)
    assert people(handle(graph)) == {"a": "1", "z": "26"}


def test_recovery_of_a_confirmed_write_whose_files_were_removed_discards_it(
    graph: Repository, tmp_path: Path
) -> None:
    intent = leave_intent(graph, staging({"b": "2"}))
    assert intent.plan is not None
    assert intent.plan == WritePlan.from_body(intent.plan.to_body())
    name = next(name for name in staged_names(intent.plan) if "/data/" in name)
    (tmp_path / "graph" / name).unlink()
    (record,) = recover_all(graph.manifest, graph.intents)
    assert record.outcome == "discarded"
    assert record.reason == f"{name} was removed before this bulk load was published"
    assert people(handle(graph)) == {"a": "1", "z": "26"}


def test_recovery_of_a_confirmed_write_records_its_digests(graph: Repository) -> None:
    intent = leave_intent(graph, staging({"b": "2"}))
    assert intent.plan is not None
    (record,) = recover_all(graph.manifest, graph.intents)
    assert record.outcome == "rolled_forward"
    recorded = graph.manifest.recorded_files(graph.manifest.refresh())
    for path, files in intent.plan.files.items():
        for file in files:
            assert recorded[path, file.name] == file


# --- object stores ------------------------------------------------------------------------------------------


@pytest.fixture
def remote(s3: Bucket) -> Iterator[Repository]:
    graph = Repository.init(f"{s3.uri}/g", catalog_of(), options=s3.options)
    put(graph, {"a": "1"})
    yield graph
    graph.close()


def test_publish_to_s3_soon_after_staging_looks_up_no_file(remote: Repository, s3: Bucket) -> None:
    plan = staged_plan(remote)
    with s3.seam.recording() as log:
        publish(remote.manifest, plan)
    assert log.count("HEAD") == 0, str(log)


def test_publish_to_s3_long_after_staging_with_a_missing_file_is_refused(
    remote: Repository, s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = chain(remote)
    plan = staged_plan(remote)
    now = boot_clock()
    monkeypatch.setattr(staged_files, "boot_clock", lambda: now + staged_files.RECENT_SECONDS + 1)
    name = next(name for name in staged_names(plan) if "/data/" in name)
    remote.objects.delete(name)
    with pytest.raises(Conflict, match=f"{name} was removed before this mutate was published"):
        publish(remote.manifest, plan)
    assert chain(remote) == before
    again = staged_plan(remote)
    with s3.seam.recording() as log:
        publish(remote.manifest, again)
    assert log.count("HEAD") == 3, str(log)
    assert people(remote) == {"b": "2"}
