"""`omnigraph export`: records of a state and of types, on stdout or in a file."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.graphs import add_people, make_graph
from tests.cli.running import COMMAND, run
from tests.support.waiting import HANG

PERSON = '{{"type":"Person","data":{{"id":"{0}","age":null,"name":"{0}"}}}}\n'


@pytest.fixture(autouse=True)
def commit(folder: Path) -> str:
    assert folder.is_dir()
    make_graph("g.omni")
    return add_people("g.omni", "Bob", "Ann")


def test_records_go_to_stdout() -> None:
    outcome = run("export", "g.omni")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout == PERSON.format("Ann") + PERSON.format("Bob")
    assert run("export", "--store", "g.omni").stdout == outcome.stdout


def test_a_branch_or_a_commit_is_exported(commit: str) -> None:
    run("branch", "create", "more", "--uri", "g.omni")
    add_people("g.omni", "Cid", branch="more")
    add_people("g.omni", "Dan")
    assert run("export", "g.omni", "--branch", "more").stdout.endswith(PERSON.format("Cid"))
    assert run("export", "g.omni", "--snapshot", commit).stdout.endswith(PERSON.format("Bob"))
    assert run("export", "g.omni", "--snapshot", commit, "--branch", "main").code == 2


def test_types_can_be_chosen() -> None:
    run("mutate", "-e", 'query k() { insert Knows { from: "Ann", to: "Bob" } }', "--store", "g.omni")
    (edge,) = run("export", "g.omni", "--type", "Knows").stdout.splitlines()
    assert json.loads(edge)["edge"] == "Knows"
    both = run("export", "g.omni", "--type", "Person", "--type", "Knows").stdout
    assert both == run("export", "g.omni").stdout
    wrong = run("export", "g.omni", "--type", "Persn")
    assert (wrong.code, wrong.stdout) == (1, "")
    assert wrong.stderr == "error: unknown export type 'Persn'; did you mean `Person`?\n"


def test_a_file_is_there_whole_or_not_at_all() -> None:
    outcome = run("export", "g.omni", "--out", "all.jsonl")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "", "exported 2 records to all.jsonl\n")
    assert Path("all.jsonl").read_text() == run("export", "g.omni").stdout
    assert run("export", "g.omni", "--out", "all.jsonl", "--quiet").stderr == ""
    lost = run("export", "g.omni", "--out", "nowhere/all.jsonl")
    assert (lost.code, lost.stderr) == (1, "error: no such folder: nowhere\n")
    unmade = run("export", "g.omni", "--out", "/proc/all.jsonl")
    assert (unmade.code, unmade.stderr) == (
        1,
        "error: cannot write /proc/all.jsonl: no file can be created in /proc\n",
    )
    run("export", "g.omni", "--out", "none.jsonl", "--type", "Nothing")
    assert not Path("none.jsonl").exists()


def test_a_folder_gets_many_files_that_load_again() -> None:
    outcome = run("export", "g.omni", "--out", "dump/")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "", "exported 2 records to dump/\n")
    assert sorted(path.name for path in Path("dump").iterdir()) == [
        "_SUCCESS",
        "edge-Knows-00000.ndjson",
        "node-Person-00000.ndjson",
    ]
    make_graph("again.omni")
    assert run("load", "again.omni", "--data", "dump/", "--mode", "append").code == 0
    assert run("export", "again.omni").stdout == run("export", "g.omni").stdout


def test_parquet_goes_to_a_folder_and_loads_again() -> None:
    assert run("export", "g.omni", "--out", "dump", "--format", "parquet", "--quiet").stderr == ""
    make_graph("again.omni")
    loaded = run("load", "again.omni", "--data", "Person=dump/nodes/Person/", "--mode", "append")
    assert loaded.code == 0, loaded.stderr
    assert run("export", "again.omni").stdout == run("export", "g.omni").stdout
    for options in (["--format", "parquet"], ["--engine", "spark"]):
        outcome = run("export", "g.omni", *options)
        assert (outcome.code, outcome.stdout) == (2, "")
        assert "exports need a folder" in outcome.stderr


def test_an_export_is_overwritten_only_when_asked() -> None:
    run("export", "g.omni", "--out", "dump/")
    again = run("export", "g.omni", "--out", "dump/", "--type", "Person")
    assert again.code == 1
    assert again.stderr.startswith("error: folder `dump/` is not empty\n")
    assert run("export", "g.omni", "--out", "dump/", "--type", "Person", "--overwrite").code == 0
    assert sorted(path.name for path in Path("dump").iterdir()) == ["_SUCCESS", "node-Person-00000.ndjson"]


def test_the_old_flag_only_warns() -> None:
    outcome = run("export", "g.omni", "--jsonl")
    assert outcome.stdout == run("export", "g.omni").stdout
    assert outcome.stderr == "warning: --jsonl has no effect: exports are always JSON lines\n"
    assert "--jsonl" not in run("export", "--help").stdout


def test_a_reader_that_goes_away_causes_no_noise() -> None:
    add_people("g.omni", *(f"person {number:05}" for number in range(5_000)))
    read_end, write_end = os.pipe()
    with subprocess.Popen([COMMAND, "export", "g.omni"], stdout=write_end, stderr=subprocess.PIPE) as process:
        os.close(write_end)
        assert os.read(read_end, 20).startswith(b'{"type"')
        os.close(read_end)
        _, noise = process.communicate(timeout=HANG)
    assert (process.returncode, noise) == (1, b"")
