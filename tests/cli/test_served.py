"""Commands on a served graph: actor, announcement and confirmation.

What each command prints is the same as on storage, and is compared elsewhere; here is what differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.cli.options import GlobalOptions
from omnigraph.cli.target import GraphTarget, Served, open_graph
from omnigraph.errors import InvalidInput
from tests.cli.running import run, write
from tests.server.running import ALL, TOKENS, Running

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def named(home: Path, team: Running) -> Iterator[Running]:
    """Settings with a name for the server, a default graph and Ann's token; Ann's branches go at the end."""
    write(
        home / "config.yaml",
        f"operator: {{actor: zed}}\nservers: {{lab: {{url: '{team.url}'}}}}\n"
        "profiles: {p: {server: lab, default_graph: team}}\ndefaults: {server: lab, default_graph: nowhere}\n",
    )
    write(home / "credentials", f"[lab]\ntoken = {TOKENS['ann']}\n").chmod(0o600)
    yield team
    graph = team.hosted.graphs["team"].graph.acting_as("ann")
    for name in graph.branches.list():
        if name != "main":
            graph.branches.delete(name)


@pytest.mark.usefixtures("named")
class TestScope:
    def test_a_graph_is_found_by_server_profile_and_default(self, team: Running) -> None:
        for args in (
            ["--server", "lab", "--graph", "team"],
            ["--server", team.url, "--graph", "team"],
            ["--profile", "p"],
            ["--graph", "team"],
        ):
            outcome = run("branch", "list", *args)
            assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "main\n", "")

    def test_graph_outranks_what_a_profile_says(self) -> None:
        outcome = run("branch", "list", "--profile", "p", "--graph", "other")
        assert (outcome.code, outcome.stderr) == (1, "error: graph 'other' not found\n")

    def test_a_query_runs_there(self) -> None:
        outcome = run("query", "-e", ALL, "--profile", "p", "--format", "csv")
        assert (outcome.code, outcome.stdout) == (0, "name,age\nAnn,30\nBob,25\n")

    def test_a_missing_branch_is_named_with_the_nearest_one(self) -> None:
        outcome = run("snapshot", "--profile", "p", "--branch", "mian")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == "error: branch 'mian' not found\nhint: did you mean `main`?\n"


@pytest.mark.usefixtures("named")
class TestWrites:
    def test_a_write_names_its_target_as_served(self, team: Running) -> None:
        outcome = run("branch", "create", "x", "--profile", "p")
        assert (outcome.code, outcome.stdout) == (0, "created branch x from main\n")
        assert outcome.stderr == f"omnigraph branch create → {team.url}/graphs/team (served)\n"
        assert run("branch", "create", "y", "--profile", "p", "--quiet").stderr == ""

    def test_the_token_decides_who_acts(self) -> None:
        outcome = run("branch", "create", "x", "--profile", "p", "--as", "bob")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert (
            outcome.stderr
            == "error: the bearer token identifies the actor on profile 'p'; --as does not apply.\n"
        )
        assert run("branch", "list", "--profile", "p").stdout == "main\n"

    def test_the_actor_of_the_settings_is_for_direct_writes_only(self) -> None:
        assert run("branch", "create", "x", "--profile", "p", "--quiet").code == 0
        join = 'query join() { insert Person { name: "Cid" } }'
        outcome = run("mutate", "-e", join, "--branch", "x", "--profile", "p")
        assert outcome.stdout.splitlines() == ["changed x via join: 1 nodes, 0 edges", "actor_id: ann"]

    @pytest.mark.parametrize(
        ("args", "stdin"),
        [
            (["branch", "delete", "x"], ""),
            (["load", "--data", "-", "--mode", "overwrite", "--branch", "x"], ""),
        ],
    )
    def test_what_destroys_needs_consent(self, args: list[str], stdin: str) -> None:
        assert run("branch", "create", "x", "--profile", "p", "--quiet").code == 0
        outcome = run(*args, "--profile", "p", "--quiet", stdin=stdin)
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr.endswith("confirmation required\nhint: pass --yes to confirm\n")
        assert run("branch", "delete", "x", "--profile", "p", "--quiet", "--yes").code == 0

    def test_a_server_decides_itself_when_a_write_is_done(self) -> None:
        outcome = run("branch", "create", "x", "--profile", "p", "--quiet", "--durability", "os")
        assert outcome.code == 1
        assert outcome.stderr.endswith("--durability does not apply.\n")


def test_a_token_never_shows_in_what_describes_a_target() -> None:
    target = GraphTarget("snapshot", "u", Served("http://127.0.0.1:1", "g", "s3cret"), GlobalOptions())
    assert "s3cret" not in repr(target)
    assert (target.is_served, target.is_local) == (True, False)
    with pytest.raises(InvalidInput), open_graph(target, "rw", "os"):
        pass
