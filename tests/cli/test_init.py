"""`omnigraph init`: creates a graph and never replaces one."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from omnigraph.cli.storage_errors import explain_storage_errors
from omnigraph.errors import StorageError
from omnigraph.store.lance.lance_errors import storage_error_from_lance
from omnigraph.store.location import Location
from tests.cli.graphs import add_people
from tests.cli.running import PEOPLE, run, write

pytestmark = pytest.mark.usefixtures("folder")


def test_init_creates_the_graph_and_names_it() -> None:
    outcome = run("init", "--schema", "people.pg", "./g.omni")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "initialized ./g.omni\n", "")
    assert run("branch", "list", "--uri", "./g.omni").stdout == "main\n"


def test_init_first_commit_has_no_parent_and_the_actor() -> None:
    run("init", "--schema", "people.pg", "g.omni", "--as", "ann")
    (commit,) = json.loads(run("commit", "list", "g.omni", "--json").stdout)["commits"]
    assert (commit["parent_commit_id"], commit["graph_manifest_version"]) == (None, 1)
    assert commit["actor_id"] == "ann"


def test_init_reads_the_schema_from_stdin() -> None:
    assert run("init", "--schema", "-", "g.omni", stdin=PEOPLE).stdout == "initialized g.omni\n"


def test_init_durability_os_is_accepted() -> None:
    outcome = run("init", "--schema", "people.pg", "g.omni", "--durability", "os")
    assert (outcome.code, outcome.stdout) == (0, "initialized g.omni\n")
    assert run("init", "--schema", "people.pg", "h.omni", "--durability", "maybe").code == 2


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_init_of_existing_graph_is_refused(force: list[str]) -> None:
    run("init", "--schema", "people.pg", "g.omni")
    kept = add_people("g.omni", "Ann")
    outcome = run("init", "--schema", "people.pg", "g.omni", *force)
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("error: there is a graph at ")
    assert ("--force never replaces a graph" in outcome.stderr) is bool(force)
    assert run("commit", "list", "g.omni").stdout.startswith(kept)


def test_init_with_invalid_schema_creates_nothing(folder: Path) -> None:
    write(folder / "bad.pg", "node A { a: Strin }")
    outcome = run("init", "--schema", "bad.pg", "g.omni")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("error: bad.pg:1:13: parse error: unknown type: Strin\n")
    assert not (folder / "g.omni").exists()


def test_init_after_interruption_completes_the_graph(folder: Path) -> None:
    run("init", "--schema", "people.pg", "g.omni")
    # Without its manifest a root is what an initialiser leaves that dies early.
    shutil.rmtree(folder / "g.omni" / "__manifest")
    assert run("branch", "list", "--uri", "g.omni").code == 1
    assert run("init", "--schema", "people.pg", "g.omni").stdout == "initialized g.omni\n"


@pytest.mark.parametrize("args", [["--schema", "people.pg"], ["g.omni"]])
def test_init_without_address_or_schema_is_a_usage_error(args: list[str]) -> None:
    assert run("init", *args).code == 2


def test_init_with_global_address_is_refused() -> None:
    outcome = run("init", "--schema", "people.pg", "g.omni", "--store", "h.omni")
    assert outcome.code == 1
    assert outcome.stderr.startswith("error: `init` takes the URI of the new graph as an argument")


def test_init_inside_a_cluster_is_refused(folder: Path) -> None:
    write(folder / "c" / "__cluster" / "state.json", "{}")
    outcome = run("init", "--schema", "people.pg", "c/graphs/g.omni")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("error: c/graphs/g.omni belongs to the cluster at ")
    assert outcome.stderr.endswith("run `omnigraph cluster apply`\n")
    assert not (folder / "c" / "graphs").exists()


@pytest.mark.parametrize(
    ("place", "reason"),
    [("/proc/x.omni", "no such folder"), ("people.pg/x.omni", "not a folder")],
)
def test_init_at_impossible_path_names_it(place: str, reason: str) -> None:
    outcome = run("init", "--schema", "people.pg", place)
    assert (outcome.code, outcome.stdout, outcome.stderr) == (
        1,
        "",
        f"error: cannot write {place}: {reason}\n",
    )


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, "permission denied"),
        (errno.EROFS, "read-only file system"),
        (errno.ENOSPC, "no space left"),
    ],
)
def test_storage_error_of_the_system_names_address_and_reason(number: int, reason: str) -> None:
    # The tests may run as root, whom no permission stops.
    said = OSError(f"LanceError(IO): {os.strerror(number)} (os error {number}), /rust/io.rs:1:2")
    with (
        pytest.raises(StorageError, match=f"^cannot write g.omni: {reason}$"),
        explain_storage_errors("g.omni", Location.parse("g.omni"), "rw"),
    ):
        raise storage_error_from_lance(said, "write x")
    with (
        pytest.raises(StorageError, match=r"^could not write x: LanceError"),
        explain_storage_errors("s3://b/g", Location.parse("s3://b/g"), "rw"),
    ):
        raise storage_error_from_lance(said, "write x")


def test_init_in_folder_named_graphs_is_accepted() -> None:
    assert run("init", "--schema", "people.pg", "c/graphs/g.omni").code == 0
