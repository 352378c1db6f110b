"""Commands on a server deny history of a branch that the actor may not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.cli.running import Outcome, _command_line, run
from tests.server.running import TOKENS, Running, bundle, running
from tests.support.history_entry_points import ALL, POLICY, SECRET, History, State, fresh_name, make_history
from tests.support.places import fresh_memory

pytestmark = pytest.mark.usefixtures("home")

_BLOB = ("node", "Person", "Ann", "photo")

# Keys are the command and the option or argument; `--snapshot` takes a commit, `--at` a commit or a time.
COMMANDS: dict[str, Callable[[State], list[str]]] = {
    "query --snapshot": lambda s: ["query", "-e", ALL, "--snapshot", s.commit],
    "read --snapshot": lambda s: ["read", "-e", ALL, "--snapshot", s.commit],
    "explain --snapshot": lambda s: ["explain", "-e", ALL, "--snapshot", s.commit],
    "get --snapshot": lambda s: ["get", "Person", "Ann", "--snapshot", s.commit],
    "history --snapshot": lambda s: ["history", "Person", "Ann", "--snapshot", s.commit],
    "blame --snapshot": lambda s: ["blame", "Person", "Ann", "--snapshot", s.commit],
    "log --at": lambda s: ["log", "--branch", "dev", "--at", s.commit],
    "export --snapshot": lambda s: ["export", "--snapshot", s.commit],
    "diff before": lambda s: ["diff", s.commit, "dev"],
    "diff after": lambda s: ["diff", "dev", s.commit],
    "revert commit": lambda s: ["revert", s.commit, "--branch", "dev", "--dry-run"],
    "snapshot --at": lambda s: ["snapshot", "--branch", "dev", "--at", s.moment.isoformat()],
    "blob get --snapshot": lambda s: ["blob", "get", *_BLOB, "--snapshot", s.commit],
    "blob stat --snapshot": lambda s: ["blob", "stat", *_BLOB, "--snapshot", s.commit],
    "branch create --from": lambda s: ["branch", "create", fresh_name(), "--from", s.branch],
    "branch create --at": lambda s: [
        *("branch", "create", fresh_name(), "--from", "dev"),
        *("--at", s.moment.isoformat()),
    ],
    "tag create --at": lambda s: ["tag", "create", fresh_name(), "--at", s.commit],
    "branch merge source": lambda s: ["branch", "merge", s.branch, "--into", "dev-2", "--dry-run"],
    "commit show id_": lambda s: ["commit", "show", s.commit],
    "commit changes id_": lambda s: ["commit", "changes", s.commit],
    "commit changes --page-token": lambda s: ["commit", "changes", s.commit, "--page-token", s.commit_page],
    "changes poll --cursor": lambda s: ["changes", "poll", "--branch", "dev", "--cursor", s.cursor],
    "changes poll --start": lambda s: [
        *("changes", "poll", "--branch", "dev"),
        *("--start", f"after:{s.previous}"),
    ],
    "load --from": lambda s: [
        *("load", "--data", "-", "--mode", "append"),
        *("--branch", fresh_name(), "--from", s.branch),
    ],
    "ingest --from": lambda s: ["ingest", "--data", "-", "--branch", fresh_name(), "--from", s.branch],
}
# A commit is shown to actors who may read every branch.
EVERY_BRANCH = {"commit show id_"}
STATE_NAMES = {
    *("--snapshot", "--at", "--from", "--cursor", "--start", "--page-token", "--commit", "--since", "--to"),
    *("before", "after", "commit", "source"),
}
# Names with another meaning: the schema that a plan starts from, entities, and the age of listed commits. Copies of
# a graph are made between storages, without a server and without a policy. A branch is reset with permission for
# `admin`.
OTHERS = {
    *(
        "schema plan --from",
        "get id_",
        "blob get id_",
        "blob stat id_",
        "history id_",
        "blame id_",
        "log --since",
    ),
    *("backup source", "backup --since", "restore source", "clone source", "repair --to"),
}


def state_options() -> Iterator[str]:
    """Yield every option and argument of a command that may name a state."""
    for path, parameters in _commands(_command_line(), ()):
        for parameter in parameters:
            is_option = parameter.param_type_name == "option"
            for name in parameter.opts if is_option else [parameter.name]:
                key = " ".join((*path, name))
                if (name in STATE_NAMES or name == "id_") and key not in OTHERS:
                    yield key


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    if not hasattr(command, "commands"):
        yield path, command.params
        return
    for name, inner in command.commands.items():
        yield from _commands(inner, (*path, name))


@pytest.fixture(scope="module")
def history() -> History:
    return make_history(fresh_memory())


@pytest.fixture(scope="module")
def served(history: History) -> Iterator[Running]:
    source = GraphSource("team", history.uri, None, bundle(POLICY))
    tokens = TokenRegistry.of({"dev": TOKENS["bob"], "all": TOKENS["ann"]})
    with running(open_graphs(Hosting((source,)), tokens)) as found:
        yield found


def run_as(actor: str, served: Running, args: list[str]) -> Outcome:
    env = {"OMNIGRAPH_BEARER_TOKEN": TOKENS[actor]}
    return run(*args, "--server", served.url, "--graph", "team", env=env)


def test_every_option_that_names_a_state_is_in_the_table() -> None:
    # A new option needs a decision: add it to COMMANDS, or to the names with another meaning.
    assert sorted(state_options()) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_denies_the_deleted_state_of_another_branch(
    name: str, served: Running, history: History
) -> None:
    outcome = run_as("bob", served, COMMANDS[name](history.deleted))
    assert outcome.code == 1
    assert "policy denied" in outcome.stderr or "not found" in outcome.stderr
    assert SECRET not in outcome.output


@pytest.mark.parametrize("name", COMMANDS)
def test_command_shows_the_deleted_state_with_permission_on_both_branches(
    name: str, served: Running, history: History
) -> None:
    outcome = run_as("ann", served, COMMANDS[name](history.deleted))
    assert outcome.code == 0, outcome.output


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in EVERY_BRANCH])
def test_command_shows_a_state_of_the_own_branch(name: str, served: Running, history: History) -> None:
    outcome = run_as("bob", served, COMMANDS[name](history.own))
    assert outcome.code == 0, outcome.output
