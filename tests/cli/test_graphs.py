"""`omnigraph graphs`, and the selection of a graph on a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.graphs import make_graph
from tests.cli.running import Outcome, run, run_process, write
from tests.server.running import TOKENS, Running

pytestmark = pytest.mark.usefixtures("home")


def as_actor(actor: str, *args: str) -> Outcome:
    return run(*args, env={"OMNIGRAPH_BEARER_TOKEN": TOKENS[actor]})


class TestList:
    def test_graphs_are_listed_with_their_storage(self, team: Running) -> None:
        uri = team.hosted.graphs["team"].graph.uri
        outcome = as_actor("ann", "graphs", "list", "--server", team.url)
        assert (outcome.code, outcome.output) == (0, f"team\t{uri}\n")
        listed = as_actor("ann", "graphs", "list", "--server", team.url, "--json")
        assert json.loads(listed.stdout) == {"graphs": [{"graph_id": "team", "uri": uri}]}

    def test_a_server_is_found_by_name_profile_and_default(self, home: Path, team: Running) -> None:
        write(
            home / "config.yaml",
            f"servers: {{lab: {{url: '{team.url}'}}}}\nprofiles: {{p: {{server: lab}}}}\ndefaults: {{server: lab}}",
        )
        write(home / "credentials", f"[lab]\ntoken = {TOKENS['ann']}\n").chmod(0o600)
        for args in (["--server", "lab"], ["--profile", "p"], []):
            assert run("graphs", "list", *args).stdout.startswith("team\t")

    def test_whoever_may_not_list_is_told_so(self, team: Running) -> None:
        outcome = as_actor("bob", "graphs", "list", "--server", team.url)
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == "error: policy denied action 'graph_list' for unknown actor 'bob'\n"

    @pytest.mark.parametrize("token", [None, "wrong"])
    def test_a_token_is_needed(self, team: Running, token: str | None) -> None:
        outcome = run("graphs", "list", "--server", team.url, env={"OMNIGRAPH_BEARER_TOKEN": token})
        assert outcome.code == 1
        assert "bearer token" in outcome.stderr
        assert outcome.stderr.endswith("or `omnigraph login`\n")

    @pytest.mark.parametrize("option", ["--store", "--cluster", "--graph"])
    def test_only_a_server_is_asked(self, option: str) -> None:
        outcome = run("graphs", "list", option, "x")
        assert outcome.code == 1
        assert outcome.stderr == (
            f"error: `graphs list` queries a server; {option} does not apply. Pass --server <name|url>.\n"
        )

    def test_a_scope_that_is_no_server_is_refused(self, home: Path) -> None:
        write(home / "config.yaml", "defaults: {store: g.omni}")
        outcome = run("graphs", "list")
        assert outcome.code == 1
        assert outcome.stderr.startswith(
            "error: `graphs list` queries a server; defaults.store addresses a store and"
        )

    def test_nobody_there_is_one_sentence(self) -> None:
        outcome = run("graphs", "list", "--server", "http://127.0.0.1:1")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr.startswith("error: the server at http://127.0.0.1:1 cannot be reached: ")


class TestChoice:
    def test_candidates_are_listed_even_when_there_is_one(self, team: Running) -> None:
        outcome = as_actor("ann", "snapshot", "--server", team.url)
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == (
            f"error: --server {team.url} is a server: choose one of its graphs with --graph <id>\n"
            "hint: graphs on the server: team\n"
        )

    def test_without_a_list_the_reason_is_told(self, team: Running) -> None:
        outcome = as_actor("bob", "snapshot", "--server", team.url)
        assert outcome.code == 1
        assert outcome.stderr.splitlines()[1] == (
            "hint: could not list its graphs: policy denied action 'graph_list' for unknown actor 'bob'"
        )

    def test_the_url_of_a_graph_needs_no_choice(self, team: Running) -> None:
        outcome = as_actor("bob", "branch", "list", "--server", f"{team.url}/graphs/team/")
        assert (outcome.code, outcome.stdout) == (0, "main\n")
        assert (
            as_actor("bob", "branch", "list", "--server", f"{team.url}/graphs/team", "--graph", "x").code == 1
        )

    def test_a_graph_that_is_not_served_is_named(self, team: Running) -> None:
        outcome = as_actor("bob", "branch", "list", "--server", team.url, "--graph", "teem")
        assert (outcome.code, outcome.stderr) == (1, "error: graph 'teem' not found\n")

    def test_an_id_cannot_reach_elsewhere(self, team: Running) -> None:
        outcome = as_actor("ann", "branch", "list", "--server", team.url, "--graph", "../graphs/team")
        assert outcome.code == 1
        assert "is not a graph id" in outcome.stderr


def test_a_port_that_is_taken_is_told_in_one_sentence(team: Running) -> None:
    make_graph("g.omni")
    taken = team.url.removeprefix("http://")
    outcome = run_process("serve", ".", "--unauthenticated", "--bind", taken)
    assert outcome.returncode == 1
    assert outcome.stderr.decode().endswith(f"error: cannot listen on {taken}: Address already in use\n")
