"""Graph commands on a remote store and as processes: streams, exit codes, confirmation on a real terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from omnigraph.catalog.catalog import accept
from omnigraph.graph.repository import Repository
from omnigraph.lang.pg.schema_compiler import load_schema
from tests.architecture.test_lazy_imports import RUN_HELP, heavy_modules_after
from tests.cli.graphs import make_graph
from tests.cli.running import COMMAND, PEOPLE, Outcome, access, run, run_process, start_process
from tests.support.s3 import Bucket
from tests.support.waiting import HANG

pytest_plugins = ["tests.support.s3_fixtures"]
pytestmark = pytest.mark.usefixtures("folder")

QUESTION = "`branch delete` is destructive. Continue with {uri}? [y/N] "


def environment(bucket: Bucket) -> dict[str, str]:
    """What a user of that store would have set, and nothing of what whoever runs the tests has."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    return {**kept, "NO_COLOR": "1", **access(bucket)}


def run_remote(bucket: Bucket, *args: str, **variables: str) -> Outcome:
    """Run a command in this process with the variables of a user of that store."""
    unset = {key: None for key in os.environ if key.startswith("AWS_")}
    return run(*args, env={**unset, **access(bucket), **variables})


def run_on_terminal(bucket: Bucket, answer: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose stdin is a terminal, with an answer that was typed there."""
    terminal, keyboard = pty.openpty()
    try:
        os.write(terminal, f"{answer}\n".encode())
        with start_process(*args, environment=environment(bucket), stdin=keyboard) as process:
            stdout, stderr = process.communicate()
            return subprocess.CompletedProcess(args, process.wait(), stdout, stderr)
    finally:
        os.close(terminal)
        os.close(keyboard)


@pytest.fixture
def remote(s3: Bucket) -> str:
    """A graph in a bucket, with a branch that is not needed."""
    uri = f"{s3.uri}/team/g.omni"
    catalog = accept(load_schema(PEOPLE), PEOPLE)
    with closing(Repository.init(uri, catalog, options=s3.options)) as graph:
        graph.create_branch("old")
    return uri


def branches(bucket: Bucket, uri: str) -> list[str]:
    with closing(Repository.open(uri, mode="r", options=bucket.options)) as graph:
        return list(graph.branches())


def test_results_and_notes_go_to_their_own_streams() -> None:
    make_graph("g.omni")
    branch = run_process("branch", "create", "dev", "--uri", "g.omni", "--json")
    assert branch.returncode == 0
    assert json.loads(branch.stdout)["name"] == "dev"
    assert branch.stderr.decode() == "omnigraph branch create → g.omni (direct, local)\n"


def test_a_failure_is_one_and_a_wrong_command_line_is_two() -> None:
    missing = run_process("snapshot", "g.omni")
    assert (missing.returncode, missing.stdout) == (1, b"")
    assert missing.stderr.startswith(b"error: there is no graph at ")
    assert b"Traceback" not in missing.stderr
    assert b"Traceback" in run_process("snapshot", "g.omni", "--debug").stderr
    assert run_process("branch", "create").returncode == 2
    assert run("commit", "list", "g.omni", "--limit", "many").code == 2


def test_a_terminal_that_cannot_show_the_arrow_is_no_reason_to_fail(folder: Path) -> None:
    make_graph("g.omni")
    found = subprocess.run(
        [COMMAND, "branch", "create", "dev", "--uri", "g.omni"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        cwd=folder,
        capture_output=True,
        timeout=HANG,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, b"created branch dev from main\n")
    assert found.stderr == b"omnigraph branch create \\u2192 g.omni (direct, local)\n"


def test_command_without_graph_imports_no_storage() -> None:
    commands = [
        '"branch", "create", "--help"',
        '"cleanup", "--help"',
        '"lint", "--schema", "people.pg", "read.gq"',
        '"fmt", "--check", "."',
    ]
    # One process for all: a module that any of them imports is still there at the end.
    assert heavy_modules_after("\n".join(RUN_HELP.format(arguments=command) for command in commands)) == []


def test_a_schema_is_checked_without_storage() -> None:
    heavy = heavy_modules_after(RUN_HELP.format(arguments='"schema", "check", "people.pg"'))
    assert set(heavy) <= {"pyarrow"}


class TestOnARemoteStore:
    def test_every_command_works_with_the_usual_variables(self, s3: Bucket) -> None:
        uri = f"{s3.uri}/team/new.omni"
        made = run_remote(s3, "init", "--schema", "people.pg", uri)
        assert (made.code, made.stdout, made.stderr) == (0, f"initialized {uri}\n", "")
        branch = run_remote(s3, "branch", "create", "dev", "--uri", uri)
        assert branch.stderr == f"omnigraph branch create → {uri} (direct, remote)\n"
        assert run_remote(s3, "snapshot", "--store", uri, "--branch", "dev").stdout.startswith(
            "graph_branch: dev\n"
        )
        (commit,) = json.loads(run_remote(s3, "commit", "list", uri, "--json").stdout)["commits"]
        assert commit["graph_manifest_version"] == 1
        planned = run_remote(s3, "cleanup", uri, "--keep", "1")
        assert planned.code == 0
        assert "would remove 0 versions" in planned.stdout

    @pytest.mark.parametrize(
        "args",
        [["branch", "delete", "old"], ["cleanup", "--keep", "1", "--confirm"]],
        ids=lambda args: args[0],
    )
    def test_destruction_without_consent_is_refused(self, s3: Bucket, remote: str, args: list[str]) -> None:
        refused = run_remote(s3, *args, "--store", remote, "--quiet")
        assert (refused.code, refused.stdout) == (1, "")
        assert refused.stderr.endswith(" is not local: confirmation required\nhint: pass --yes to confirm\n")
        assert branches(s3, remote) == ["main", "old"]

    def test_consent_can_be_given_in_advance(self, s3: Bucket, remote: str) -> None:
        gone = run_remote(s3, "branch", "delete", "old", "--uri", remote, "--yes")
        assert (gone.code, gone.stdout) == (0, "deleted branch old\n")
        cleaned = run_remote(s3, "--yes", "cleanup", remote, "--keep", "1", "--confirm")
        assert (cleaned.code, cleaned.stderr) == (0, f"omnigraph cleanup → {remote} (direct, remote)\n")

    @pytest.mark.parametrize("answer", ["y", "YES"])
    def test_consent_can_be_given_on_a_terminal(self, s3: Bucket, remote: str, answer: str) -> None:
        gone = run_on_terminal(s3, answer, "branch", "delete", "old", "--uri", remote)
        assert (gone.returncode, gone.stdout) == (0, "deleted branch old\n")
        assert gone.stderr.splitlines() == [
            f"omnigraph branch delete → {remote} (direct, remote)",
            QUESTION.format(uri=remote),
        ]

    @pytest.mark.parametrize("answer", ["", "yep"])
    def test_any_other_answer_is_no(self, s3: Bucket, remote: str, answer: str) -> None:
        kept = run_on_terminal(s3, answer, "branch", "delete", "old", "--uri", remote, "--quiet")
        assert (kept.returncode, kept.stdout) == (1, "")
        assert kept.stderr == f"{QUESTION.format(uri=remote)}error: not confirmed: nothing was changed\n"
        assert branches(s3, remote) == ["main", "old"]

    def test_json_is_for_programs_which_are_not_asked(self, s3: Bucket, remote: str) -> None:
        refused = run_on_terminal(s3, "y", "branch", "delete", "old", "--uri", remote, "--json", "--quiet")
        assert refused.returncode == 1
        assert '"hint": "pass --yes to confirm"' in refused.stderr

    def test_wrong_credentials_are_one_readable_error(self, s3: Bucket, remote: str) -> None:
        refused = run_remote(s3, "branch", "list", "--uri", remote, AWS_ACCESS_KEY_ID="wrong")
        assert (refused.code, refused.stdout) == (1, "")
        assert refused.stderr.startswith("error: ")
        assert "Traceback" not in refused.stderr
