"""The address of the graph: options, profiles, defaults, and conflicting addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.core import TyperOption

from tests.cli.graphs import make_graph
from tests.cli.running import command_tree, run, write

NO_GRAPH = (
    "error: no graph addressed — pass a positional URI, --store <uri>, --server <name>, --profile <name>, "
    "or set a default scope in ~/.omnigraph/config.yaml\n"
)
READING = [["branch", "list"], ["commit", "list"], ["snapshot"]]
COMMANDS = [
    *READING,
    ["branch", "create", "x"],
    ["branch", "delete", "x"],
    ["commit", "show", "x"],
    ["cleanup", "--keep", "1"],
]


VALUES = {"uri": "g.omni", "mode": "append", "entity": "node", "action": "read", "revision": "1"}
# Commands that take another address than the storage of a graph, or another argument.
OWN_ARGUMENTS = {
    "graphs": ["--server", "http://example.org"],
    "queries": ["--cluster", "site.yaml"],
    "policy": ["--cluster", "site.yaml"],
    "lint": ["--query", "read.gq", "--store", "g.omni"],
}


def name(args: list[str]) -> str:
    return " ".join(args)


def complete_commands() -> Iterator[list[str]]:
    """Yield every command with an explicit address and a value for each required parameter."""
    for path, command in command_tree():
        args = list(path)
        for param in command.params:
            if param.name == "uri" or param.required:
                value = VALUES.get(str(param.name), "x")
                args += [param.opts[0], value] if isinstance(param, TyperOption) else [value]
        if "g.omni" not in args:
            args += OWN_ARGUMENTS.get(path[0], ["--store", "g.omni"])
        yield args


def command_of(args: list[str]) -> str:
    return " ".join(args[:2] if args[0] in ("branch", "commit") else args[:1])


@pytest.fixture
def graph(folder: Path) -> Path:
    make_graph("g.omni", actor="ann")
    return folder


@pytest.mark.usefixtures("folder")
class TestWithoutAGraph:
    @pytest.mark.parametrize("args", COMMANDS, ids=name)
    def test_command_without_address_prints_how_to_pass_one(self, args: list[str]) -> None:
        outcome = run(*args, env={"OMNIGRAPH_PROFILE": None, "OMNIGRAPH_HOME": None})
        assert (outcome.code, outcome.stdout, outcome.stderr) == (1, "", NO_GRAPH)

    def test_command_without_address_names_the_settings_folder(self) -> None:
        outcome = run("snapshot", env={"OMNIGRAPH_PROFILE": None, "OMNIGRAPH_HOME": "mine"})
        assert outcome.stderr == NO_GRAPH.replace("~/.omnigraph", "mine")

    @pytest.mark.parametrize("args", [["mutate", "q"], ["get", "Person", "Ann"], ["explain", "q"]], ids=name)
    def test_command_without_address_suggests_only_options_it_accepts(self, args: list[str]) -> None:
        outcome = run(*args, env={"OMNIGRAPH_PROFILE": None, "OMNIGRAPH_HOME": None})
        assert outcome.stderr == NO_GRAPH.replace("a positional URI, ", "")

    def test_unknown_scheme_hint_leaves_out_memory(self) -> None:
        outcome = run("snapshot", "ftp://x/y")
        assert outcome.stderr == (
            "error: `ftp://` is not a storage scheme\nhint: use a path, file:// or s3://\n"
        )

    def test_unknown_profile_in_the_environment_is_refused(self) -> None:
        outcome = run("snapshot", env={"OMNIGRAPH_PROFILE": "staging"})
        assert outcome.code == 1
        assert outcome.stderr.startswith("error: no profile named 'staging'\n")

    @pytest.mark.usefixtures("home")
    def test_unknown_profile_beside_an_address_is_refused_by_every_command(self) -> None:
        expected = re.compile(r"^error: (no profile named 'nosuch'$|.*; --\w+ does not apply\.)", re.M)
        outcomes = {name(args): run(*args, "--profile", "nosuch") for args in complete_commands()}
        accepted = {
            args: outcome
            for args, outcome in outcomes.items()
            if (outcome.code, outcome.stdout) != (1, "") or expected.search(outcome.stderr) is None
        }
        assert accepted == {}

    @pytest.mark.parametrize(
        "args",
        [
            ["snapshot", "http://example.org/g"],
            ["branch", "list", "--uri", "HTTPS://example.org/g"],
            ["init", "--schema", "people.pg", "https://example.org/g"],
        ],
        ids=name,
    )
    def test_server_url_as_storage_uri_is_refused(self, args: list[str]) -> None:
        outcome = run(*args)
        assert outcome.code == 1
        assert outcome.stderr == (
            "error: a remote graph must be addressed with --server <url> — a positional (or --uri) http(s):// "
            "URL no longer dispatches to a server.\n"
        )

    @pytest.mark.parametrize("args", [*COMMANDS[:-1], ["query", "-e", "x"], ["export"]], ids=name)
    def test_cluster_option_for_data_command_is_refused(self, args: list[str]) -> None:
        outcome = run(*args, "--cluster", "prod")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == (
            f"error: `{command_of(args)}` works on the data of a graph; --cluster addresses a cluster and does not "
            "apply. Pass --server <name> --graph <id>, or --store <uri>.\n"
        )

    @pytest.mark.parametrize(
        ("args", "way"),
        [
            (["cleanup", "--keep", "1"], ", or --cluster <dir> --graph <id>"),
            (["optimize"], ", or --cluster <dir> --graph <id>"),
            (["init", "--schema", "people.pg", "g"], ""),
        ],
    )
    def test_storage_command_with_server_option_is_refused(self, args: list[str], way: str) -> None:
        outcome = run(*args, "--server", "prod")
        assert outcome.code == 1
        assert outcome.stderr == (
            f"error: `{args[0]}` is a direct (storage-native) command; --server addresses a served graph and "
            f"does not apply. Pass a storage URI{way}.\n"
        )

    @pytest.mark.parametrize("option", ["--cluster", "--graph"])
    def test_init_with_cluster_or_graph_option_is_refused(self, option: str) -> None:
        outcome = run("init", "--schema", "people.pg", "g", option, "x")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == (
            f"error: `init` addresses one graph by its storage URI; {option} does not apply. Pass a storage URI.\n"
        )

    @pytest.mark.parametrize(
        "args",
        [
            ["fmt", "."],
            ["schema", "check", "."],
            ["version"],
            ["login", "prod"],
            ["logout", "prod"],
            ["alias", "x"],
            ["profile", "list"],
        ],
        ids=name,
    )
    def test_command_without_graph_refuses_an_address(self, args: list[str]) -> None:
        outcome = run(*args, "--store", "g.omni")
        assert outcome.code == 1
        assert outcome.stderr == f"error: `{args[0]}` does not use a graph; --store does not apply.\n"

    @pytest.mark.parametrize("args", COMMANDS, ids=name)
    def test_address_without_graph_is_named(self, args: list[str]) -> None:
        outcome = run(*args, "--store", "nowhere.omni", "--quiet")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert "error: there is no graph at " in outcome.stderr
        assert outcome.stderr.endswith("nowhere.omni\nhint: create one with init\n")

    def test_address_of_a_file_is_refused(self) -> None:
        outcome = run("snapshot", "people.pg")
        assert (outcome.code, outcome.stderr) == (1, "error: people.pg is a file, not a graph\n")

    def test_memory_address_is_refused(self) -> None:
        outcome = run("snapshot", "memory://scratch")
        assert outcome.code == 1
        assert outcome.stderr.startswith("error: memory://scratch exists only within one process\n")

    def test_address_with_unknown_scheme_is_refused(self) -> None:
        outcome = run("snapshot", "ftp://example.org/g")
        assert (outcome.code, outcome.stderr.splitlines()[0]) == (
            1,
            "error: `ftp://` is not a storage scheme",
        )

    def test_global_option_without_value_is_a_usage_error(self) -> None:
        outcome = run("branch", "create", "x", "--store")
        assert (outcome.code, outcome.stdout) == (2, "")
        assert "Option '--store' requires an argument." in outcome.stderr


@pytest.mark.usefixtures("graph")
class TestWithAGraph:
    @pytest.mark.parametrize(
        "args",
        [
            ["--store", "g.omni", "branch", "list"],
            ["branch", "--store", "g.omni", "list"],
            ["branch", "list", "--store", "g.omni"],
            ["branch", "list", "--store=g.omni"],
            ["branch", "list", "--uri", "g.omni"],
        ],
        ids=name,
    )
    def test_global_address_is_accepted_anywhere(self, args: list[str]) -> None:
        outcome = run(*args)
        assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "main\n", "")

    def test_local_path_is_accepted_in_every_spelling(self, graph: Path) -> None:
        for uri in ("g.omni", "./g.omni/", str(graph / "g.omni"), (graph / "g.omni").as_uri()):
            assert run("branch", "list", "--uri", uri).stdout == "main\n"

    @pytest.mark.parametrize(
        "args", [["snapshot", "g.omni"], ["branch", "list", "--uri", "g.omni"]], ids=name
    )
    def test_two_addresses_are_refused(self, args: list[str]) -> None:
        outcome = run(*args, "--store", "g.omni")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == (
            "error: two graphs addressed: g.omni and --store g.omni; pass exactly one.\n"
        )

    @pytest.mark.parametrize("option", ["--server", "--cluster"])
    def test_storage_address_with_server_or_cluster_is_refused(self, option: str) -> None:
        outcome = run("cleanup" if option == "--cluster" else "snapshot", "g.omni", option, "prod")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == (
            f"error: two graphs addressed: g.omni and {option} prod; pass exactly one.\n"
        )

    @pytest.mark.parametrize("args", [["snapshot", "g.omni"], ["snapshot", "--store", "g.omni"]], ids=name)
    def test_graph_option_with_storage_address_is_refused(self, args: list[str]) -> None:
        outcome = run(*args, "--graph", "team")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr.splitlines()[0] == (
            "error: --graph selects a graph of a server or cluster; g.omni addresses a single graph."
        )

    def test_address_overrides_the_profile(self) -> None:
        outcome = run("branch", "list", "--uri", "g.omni", env={"OMNIGRAPH_PROFILE": "nowhere"})
        assert (outcome.code, outcome.stdout) == (0, "main\n")

    @pytest.mark.usefixtures("home")
    @pytest.mark.parametrize(
        "args",
        [
            ["init", "--schema", "people.pg", "new.omni"],
            ["snapshot", "g.omni"],
            ["optimize", "g.omni"],
            ["profile", "list"],
            ["profile", "show"],
        ],
        ids=name,
    )
    @pytest.mark.parametrize(
        ("profile", "message"),
        [("nosuch", "no profile named 'nosuch'"), ("", "--profile needs the name of a profile")],
    )
    def test_unknown_or_empty_profile_is_named(
        self, graph: Path, args: list[str], profile: str, message: str
    ) -> None:
        outcome = run(*args, "--profile", profile)
        assert (outcome.code, outcome.stderr.splitlines()[0]) == (1, f"error: {message}")
        assert not (graph / "new.omni").exists()

    def test_known_profile_beside_an_address_is_accepted(self, home: Path) -> None:
        write(home / "config.yaml", "profiles: {here: {store: other.omni}, both: {store: a, server: b}}")
        for profile in ("here", "both"):
            outcome = run("branch", "list", "--uri", "g.omni", "--profile", profile)
            assert (outcome.code, outcome.stdout) == (0, "main\n")

    def test_repeated_option_is_a_usage_error(self) -> None:
        outcome = run("--store", "g.omni", "snapshot", "--store", "other.omni")
        assert (outcome.code, outcome.stdout) == (2, "")
        assert "given more than once" in outcome.stderr

    @pytest.mark.parametrize(
        "args", [*READING, ["commit", "show", "x"], ["cleanup", "--keep", "1"]], ids=name
    )
    def test_actor_option_of_command_without_actor_is_refused(self, args: list[str]) -> None:
        outcome = run(*args, "--store", "g.omni", "--as", "ann")
        assert outcome.code == 1
        assert outcome.stderr == f"error: `{command_of(args)}` records no actor; --as does not apply.\n"

    @pytest.mark.parametrize("actor", ["", "  ", "a\nb", "\x1b[2J"])
    def test_actor_with_unprintable_name_is_refused(self, actor: str) -> None:
        outcome = run("branch", "create", "x", "--uri", "g.omni", f"--as={actor}")
        assert outcome.code == 1
        assert outcome.stderr.startswith("error: --as needs a printable name")
        assert run("branch", "list", "--uri", "g.omni").stdout == "main\n"

    @pytest.mark.parametrize("args", [["snapshot"], ["commit", "list"]], ids=name)
    def test_missing_branch_suggests_the_nearest_name(self, args: list[str]) -> None:
        outcome = run(*args, "g.omni", "--branch", "mian")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == "error: branch 'mian' not found\nhint: did you mean `main`?\n"

    def test_storage_variables_are_ignored_for_a_local_graph(self) -> None:
        outcome = run("branch", "list", "--uri", "g.omni", env={"AWS_ENDPOINT_URL": "nonsense"})
        assert (outcome.code, outcome.stdout) == (0, "main\n")

    def test_read_commands_write_nothing(self, graph: Path) -> None:
        before = {path: path.stat().st_mtime_ns for path in (graph / "g.omni").rglob("*")}
        for args in READING:
            assert run(*args, "--store", "g.omni").code == 0
        assert run("cleanup", "g.omni", "--keep", "1").code == 0
        assert {path: path.stat().st_mtime_ns for path in (graph / "g.omni").rglob("*")} == before


def test_renamed_command_after_an_option_with_value_is_recognized(folder: Path) -> None:
    write(folder / "check", "not a command")
    outcome = run("--as", "check", "query", "check", "read.gq")
    assert outcome.stderr.startswith("warning: `omnigraph query check` is now `omnigraph lint`\n")


def test_help_lists_every_graph_command() -> None:
    listed = run("--help").stdout
    assert all(f" {word} " in listed for word in ("init", "branch", "commit", "snapshot", "cleanup"))
    assert all(f" {word} " in run("branch", "--help").stdout for word in ("create", "list", "delete"))
    assert all(option in listed for option in ("--as", "--store", "--yes", "--quiet"))
