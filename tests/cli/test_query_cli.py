"""`omnigraph query` and `explain`: output, the state that is read, and defaults from the settings."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.graphs import add_people, make_graph
from tests.cli.running import COMMAND, run, run_installed, run_process, run_without, write
from tests.support.waiting import HANG

STORE = ("--store", "g.omni")
ALL = "query all() { match { $p: Person } return { $p.name } order { $p.name } }"
ONE = "query one($n: String) { match { $p: Person { name: $n } } return { $p.name, $p.age } }"


@pytest.fixture(autouse=True)
def commit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(folder / "home"))
    make_graph("g.omni")
    return add_people("g.omni", "Ann", "Bob")


def settle(text: str) -> None:
    write(Path("home/config.yaml"), text)


def test_query_with_address_in_place_of_name_prints_a_hint() -> None:
    outcome = run("query", "-e", ALL, "./g.omni")
    assert outcome.code == 1
    assert outcome.stderr == (
        "error: no graph addressed — pass --store <uri>, --server <name>, --profile <name>, "
        f"or set a default scope in {Path('home/config.yaml').absolute()}\n"
        "hint: `./g.omni` was read as the NAME of a query; to address a graph, pass --store ./g.omni\n"
    )


def test_query_with_too_long_number_in_parameters_is_refused() -> None:
    outcome = run("query", "-e", ONE, "--params", f'{{"n": {"1" * 5000}}}', *STORE)
    assert (outcome.code, outcome.stderr) == (
        1,
        "error: parameters cannot be parsed: a number has too many digits\n",
    )


class TestFormats:
    @pytest.mark.parametrize("format_", ["table", "kv", "csv", "json"])
    def test_query_with_closed_stdout_fails(self, format_: str) -> None:
        found = run_without("stdout", "query", "-e", ALL, *STORE, "--format", format_)
        assert found == (1, "error: cannot write the output: stdout is closed\n")

    def test_query_prints_a_table_by_default(self) -> None:
        outcome = run("query", "-e", ALL, *STORE)
        assert (outcome.code, outcome.stderr) == (0, "")
        assert outcome.stdout == "2 rows from branch main via all\np.name\n------\nAnn   \nBob   \n"

    def test_query_format_csv_prints_csv(self) -> None:
        assert run("query", "-e", ALL, *STORE, "--format", "csv").stdout == "p.name\nAnn\nBob\n"

    def test_query_json_overrides_format_and_names_the_commit(self, commit: str) -> None:
        outcome = run("query", "-e", ALL, *STORE, "--format", "csv", "--json")
        assert json.loads(outcome.stdout) == {
            "query_name": "all",
            "target": {"branch": "main", "snapshot": None},
            "row_count": 2,
            "columns": ["p.name"],
            "rows": [{"p.name": "Ann"}, {"p.name": "Bob"}],
            "graph_commit_id": commit,
        }

    def test_query_format_arrow_writes_to_file_or_pipe(self) -> None:
        assert run("query", "-e", ALL, *STORE, "--format", "arrow", "--out", "all.arrow").stdout == ""
        in_file = pa.ipc.open_file("all.arrow").read_all()
        piped = run_process("query", "-e", ALL, *STORE, "--format", "arrow")
        assert (piped.returncode, piped.stderr) == (0, b"")
        assert pa.ipc.open_file(pa.py_buffer(piped.stdout)).read_all() == in_file
        assert in_file.to_pylist() == [{"p.name": "Ann"}, {"p.name": "Bob"}]

    def test_query_format_arrow_to_terminal_is_refused(self) -> None:
        command = f"{COMMAND} query -e '{ALL}' --store g.omni --format arrow --quiet"
        shown = subprocess.run(
            ["script", "-qec", command, "/dev/null"], capture_output=True, timeout=HANG, check=False
        )
        assert shown.returncode == 1
        assert b"cannot be printed on a terminal" in shown.stdout

    def test_query_out_writes_the_file_completely_or_not_at_all(self) -> None:
        assert run("query", "-e", ALL, *STORE, "--format", "csv", "--out", "all.csv").stdout == ""
        assert Path("all.csv").read_text() == "p.name\nAnn\nBob\n"
        lost = run("query", "-e", ALL, *STORE, "--out", "nowhere/all.csv")
        assert (lost.code, lost.stderr) == (1, "error: no such folder: nowhere\n")

    def test_query_data_formats_are_utf8_on_any_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add_people("g.omni", "Zoë")
        monkeypatch.setenv("PYTHONIOENCODING", "ascii")
        found = run_installed("query", "-e", ALL, *STORE, "--format", "csv")
        assert found.stdout.decode() == "p.name\nAnn\nBob\nZoë\n"

    def test_query_with_unknown_format_is_a_usage_error(self) -> None:
        assert run("query", "-e", ALL, *STORE, "--format", "xml").code == 2


class TestStates:
    def test_query_on_branch_or_snapshot_reads_that_state(self, commit: str) -> None:
        run("branch", "create", "more", "--uri", "g.omni")
        add_people("g.omni", "Cid", branch="more")
        on_branch = run("query", "-e", ALL, *STORE, "--branch", "more").stdout
        assert on_branch.startswith("3 rows from branch more via all\n")
        add_people("g.omni", "Dan")
        earlier = run("query", "-e", ALL, *STORE, "--snapshot", commit).stdout
        assert earlier == f"2 rows from snapshot {commit} via all\np.name\n------\nAnn   \nBob   \n"
        target = json.loads(run("query", "-e", ALL, *STORE, "--snapshot", commit, "--json").stdout)["target"]
        assert target == {"branch": None, "snapshot": commit}

    @pytest.mark.parametrize("command", ["query", "explain"])
    def test_query_with_branch_and_snapshot_is_a_usage_error(self, command: str) -> None:
        assert run(command, "-e", ALL, *STORE, "--branch", "main", "--snapshot", "x").code == 2

    @pytest.mark.parametrize("command", ["query", "explain"])
    def test_query_of_unknown_state_names_it(self, command: str) -> None:
        commit = run(command, "-e", ALL, *STORE, "--snapshot", "nothing")
        assert (commit.code, commit.stderr) == (1, "error: commit 'nothing' not found\n")
        branch = run(command, "-e", ALL, *STORE, "--branch", "mian")
        assert branch.stderr == "error: branch 'mian' not found\nhint: did you mean `main`?\n"


class TestRequests:
    def test_query_selects_by_name_with_parameters(self) -> None:
        write(Path("q.gq"), f"{ALL}\n{ONE}\n")
        write(Path("p.json"), '{"n": "Ann"}')
        for values in (["--params", '{"n": "Ann"}'], ["--params-file", "p.json"]):
            outcome = run("query", "one", "--query", "q.gq", *values, *STORE, "--format", "csv")
            assert outcome.stdout == "p.name,p.age\nAnn,\n"
        assert run("query", "all", "--query", "-", *STORE, stdin=ALL).code == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("find",), "error: stored query 'find' can only be run on a server"),
            ((), "error: no query given"),
            (("-e", ONE), "error: parameter 'n' not provided"),
            (("-e", ONE, "--params", "{n: 1}"), "error: parameters are not valid JSON"),
            (("-e", ONE, "--params", "[1]"), "error: parameters must be an object or null"),
            (("-e", f"{ALL}\n{ONE}"), "error: the text holds several queries: all, one"),
            (("onne", "-e", ONE), "error: no query is called `onne`; did you mean `one`?"),
            (("-e", 'query q() { insert Person { name: "x" } }'), "error: query 'q' contains mutations"),
            (
                ("-e", ALL.replace("Person", "Persn")),
                "error: <query>:1:27: type error: T1: unknown node type `Persn`",
            ),
            (("--query", "none.gq"), "error: no such file: none.gq"),
        ],
    )
    def test_query_that_cannot_run_is_refused_with_the_reason(
        self, arguments: tuple[str, ...], message: str
    ) -> None:
        outcome = run("query", *arguments, *STORE)
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr.startswith(message)
        assert "Traceback" not in outcome.stderr

    @pytest.mark.parametrize("command", ["query", "mutate"])
    @pytest.mark.parametrize(
        "arguments",
        [
            ("-e", ALL, "--query", "read.gq"),
            ("-e", ALL, "--params", "{}", "--params-file", "x"),
            ("--query", "-", "--params-file", "-"),
        ],
    )
    def test_query_with_two_sources_or_parameters_is_a_usage_error(
        self, command: str, arguments: tuple[str, ...]
    ) -> None:
        assert run(command, *arguments, *STORE).code == 2

    def test_query_with_second_positional_argument_is_a_usage_error(self) -> None:
        assert run("query", "all", "g.omni", "-e", ALL).code == 2

    @pytest.mark.parametrize(
        ("old", "new", "source"),
        [("read", "query", ALL), ("change", "mutate", "query m() { delete Person }")],
    )
    def test_query_under_its_old_name_prints_a_warning(self, old: str, new: str, source: str) -> None:
        source = source.replace("delete Person", 'delete Person where name = "Zed"')
        outcome = run(old, "-e", source, *STORE)
        assert outcome.code == 0
        assert outcome.stdout == run(new, "-e", source, *STORE).stdout
        assert outcome.stderr == f"warning: `omnigraph {old}` is now `omnigraph {new}`\n"

    def test_query_writes_nothing(self, folder: Path) -> None:
        before = {path: path.stat().st_mtime_ns for path in (folder / "g.omni").rglob("*")}
        assert run("query", "-e", ALL, *STORE).code == 0
        assert run("explain", "-e", ALL, *STORE).code == 0
        assert {path: path.stat().st_mtime_ns for path in (folder / "g.omni").rglob("*")} == before


def test_explain_prints_the_plan_without_rows(commit: str) -> None:
    outcome = run("explain", "-e", ONE, "--params", '{"n": "Ann"}', *STORE)
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith(f"read one at commit {commit}\n")
    assert "Person" in outcome.stdout
    stored = run("explain", "one", *STORE)
    assert stored.stderr.startswith("error: stored query 'one' can only be run on a server\n")


class TestSettings:
    def test_config_output_sets_the_default_format(self) -> None:
        settle("defaults: { output: csv }")
        assert run("query", "-e", ALL, *STORE).stdout == "p.name\nAnn\nBob\n"
        assert run("query", "-e", ALL, *STORE, "--format", "kv").stdout.startswith("2 rows from")

    def test_config_sets_the_width_of_tables(self) -> None:
        add_people("g.omni", "Maximilian")
        settle("defaults: { table_max_column_width: 6 }")
        assert "\nMaxim…\n" in run("query", "-e", ALL, *STORE).stdout
        settle("defaults: { table_max_column_width: 6, table_cell_layout: wrap }")
        assert "\nMaximi\nlian  \n" in run("query", "-e", ALL, *STORE).stdout

    def test_config_sets_the_default_store_and_actor(self) -> None:
        settle("defaults: { store: g.omni }\noperator: { actor: ana }")
        assert run("query", "-e", ALL).stdout.startswith("2 rows from branch main")
        assert run("query", "-e", ALL, "--store", "nowhere.omni").code == 1
        for name, given in (("Cid", ()), ("Dan", ("--as", "bo"))):
            run("mutate", "-e", f'query add() {{ insert Person {{ name: "{name}" }} }}', *given)
        newest = [line.rpartition(" ")[2] for line in run("commit", "list").stdout.splitlines()[:2]]
        assert newest == ["actor=bo", "actor=ana"]

    def test_config_with_unknown_default_server_is_refused(self) -> None:
        settle("defaults: { server: prod }")
        outcome = run("query", "-e", ALL)
        assert outcome.code == 1
        assert outcome.stderr.startswith("error: no server named 'prod'\n")
        assert run("query", "-e", ALL, *STORE).code == 0

    def test_config_that_is_empty_sets_nothing(self) -> None:
        settle("")
        assert run("query", "-e", ALL, *STORE).stdout.startswith("2 rows")

    def test_config_with_unknown_key_prints_a_warning(self) -> None:
        settle("aliases: {}\ncolour: red\ndefaults: { ouput: csv }")
        outcome = run("query", "-e", ALL, *STORE)
        assert (outcome.code, outcome.stdout[:6]) == (0, "2 rows")
        first, second = outcome.stderr.splitlines()
        assert first.endswith("config.yaml: unknown key 'colour'")
        assert second.endswith("config.yaml: unknown key 'defaults.ouput'; did you mean `output`?")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("defaults: {", "is not YAML"),
            ("- a", "must be a mapping"),
            ("defaults: csv", "defaults must be a mapping"),
            ("defaults: { output: arrow }", "defaults.output must be one of table, kv, csv, jsonl, json"),
            ("defaults: { table_max_column_width: 0 }", "must be an integer of at least 1"),
            ("defaults: { table_cell_layout: fold }", "must be one of truncate, wrap"),
            ("operator: { actor: [a] }", "operator.actor must be printable text"),
            ("defaults: { store: a, server: b }", "defaults.store and defaults.server exclude each other"),
            ("defaults: { store: a, default_graph: b }", "defaults.store and defaults.default_graph exclude"),
        ],
    )
    def test_config_with_invalid_value_is_refused(self, text: str, message: str) -> None:
        settle(text)
        outcome = run("query", "-e", ALL, *STORE)
        assert (outcome.code, outcome.stdout) == (1, "")
        assert message in outcome.stderr
