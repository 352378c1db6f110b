"""Every command behaves the same on a server as in storage: output, exit code, errors, effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.policy.bundle import read_bundle
from omnigraph.server.hosted_graphs import open_graphs
from tests.cli.pairs import ALLOWED, IDENTITIES, SCHEMA, STORED, TOKEN, Origin, Pair, hosted_pair, make_origin
from tests.cli.running import run, write
from tests.cli.served_table import ADD, ALL, READS, REFUSED
from tests.server.running import Running, running

WIDER = SCHEMA.replace("born: Date?", "born: Date?\n  town: String?")
NARROWER = SCHEMA.replace("age: I32?", "age: String?").replace("  @range(age, 0..150)\n", "")


def _shown(args: list[str]) -> str:
    return " ".join(args)[:60]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    return make_origin(tmp_path_factory.mktemp("origin"))


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("queries") / "stored.gq", STORED).parent


@pytest.fixture(scope="module")
def server(origin: Origin) -> Iterator[Running]:
    source = GraphSource("origin", str(origin.path), None, read_bundle(ALLOWED))
    with running(open_graphs(Hosting((source,)), IDENTITIES)) as found:
        yield found


@pytest.fixture(scope="module")
def kept(
    origin: Origin, server: Running, queries: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """A pair that nothing is written to: what is refused leaves no trace."""
    with hosted_pair(origin, server, tmp_path_factory.mktemp("kept"), queries) as found:
        yield found
        found.check_equal()
        assert found.served.snapshot().commit_id == origin.commits["main"]


@pytest.fixture
def pair(
    origin: Origin, server: Running, queries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pair]:
    """A pair of one's own, and the folder it is in to work in."""
    monkeypatch.chdir(tmp_path)
    with hosted_pair(origin, server, tmp_path, queries) as found:
        yield found


@pytest.mark.parametrize("args", READS, ids=_shown)
def test_read_command_prints_the_same_on_a_server(kept: Pair, origin: Origin, args: list[str]) -> None:
    outcome = kept.both(*origin.named(args))
    assert (outcome.code, bool(outcome.stdout)) == (0, True), outcome.stderr


@pytest.mark.parametrize("args", REFUSED, ids=_shown)
def test_refused_command_prints_the_same_on_a_server(kept: Pair, origin: Origin, args: list[str]) -> None:
    outcome = kept.both(*origin.named(args))
    assert outcome.code == 1


class TestFiles:
    def test_query_output_file_is_the_same_on_a_server(self, pair: Pair) -> None:
        for name, args in {
            "rows.csv": ["query", "-e", ALL, "--format", "csv"],
            "state.ndjson": ["export"],
            "base.ndjson": ["changes", "baseline", "--kind", "node"],
        }.items():
            outcome = pair.direct(*args, "--out", name)
            assert outcome.code == 0, outcome.stderr
            expected = Path(name).read_bytes()
            Path(name).unlink()
            assert pair.remote(*args, "--out", name) == outcome
            assert Path(name).read_bytes() == expected

    def test_typed_rows_have_the_same_types(self, pair: Pair) -> None:
        tables = []
        for command in (pair.direct, pair.remote):
            assert command("query", "-e", ALL, "--format", "arrow", "--out", "rows.arrow").code == 0
            tables.append(pa.ipc.open_file("rows.arrow").read_all())
        assert tables[1].equals(tables[0], check_metadata=True)
        assert tables[0].num_rows == 3

    @pytest.mark.parametrize("format_", ["ndjson", "parquet"])
    def test_export_folder_is_the_same_on_a_server(self, pair: Pair, format_: str) -> None:
        for name, command in (("a", pair.direct), ("b", pair.remote)):
            outcome = command("export", "--out", f"{name}/", "--format", format_)
            assert outcome == type(outcome)(0, "", f"exported 5 records to {name}/\n", outcome.output)
        found = {str(path.relative_to("b")): path for path in Path("b").rglob("*") if path.is_file()}
        assert sorted(found) == sorted(
            str(path.relative_to("a")) for path in Path("a").rglob("*") if path.is_file()
        )
        again = pair.both("export", "--out", "a/", "--format", format_)
        assert again.code == 1
        assert pair.remote("export", "--out", "b/", "--format", format_, "--overwrite").code == 0

    def test_export_to_missing_folder_prints_the_same_on_a_server(self, pair: Pair) -> None:
        for args in (["export"], ["query", "-e", ALL], ["changes", "baseline"]):
            assert "no such folder" in pair.both(*args, "--out", "no/file").stderr


class TestMutate:
    @pytest.mark.parametrize("json_", [[], ["--json"]])
    def test_mutate_prints_the_same_on_a_server(self, pair: Pair, json_: list[str]) -> None:
        args = ["mutate", "-e", ADD, "--params", '{"n": "Eve"}', "--message", "why", *json_]
        assert "ann" in pair.both(*args).stdout
        pair.both("mutate", "-e", 'query q() { delete Person where name = "Nobody" }', *json_)
        pair.both("change", "-e", 'query q() { delete Person where name = "Cid" }', "--branch", "dev", *json_)
        pair.check_equal()

    @pytest.mark.parametrize("json_", [[], ["--json"]])
    def test_a_lost_precondition_is_exit_four(self, pair: Pair, origin: Origin, json_: list[str]) -> None:
        args = ["mutate", "-e", ADD, "--params", '{"n": "Eve"}', *json_]
        outcome = pair.both(*args, "--if-commit", origin.commits["load"])
        assert outcome.code == 4
        if json_:
            assert json.loads(outcome.stdout).keys() == {"error", "precondition_failure"}
        assert pair.both(*args, "--if-commit", origin.commits["main"]).code == 0
        pair.check_equal()


class TestLoad:
    def test_load_prints_the_same_on_a_server(self, pair: Pair) -> None:
        record = {"type": "Person", "data": {"name": "Eve", "age": 1}}
        edge = {"edge": "Knows", "from": "Eve", "to": "Ann", "data": {}}
        write(Path("rows.ndjson"), f"{json.dumps(record)}\n{json.dumps(edge)}\n")
        write(Path("people.csv"), "name,age,born\nFay,20,2000-01-02\nAnn,41,\n")
        write(Path("ends.csv"), "from,to,id\nAnn,Cid,e9\n")
        write(Path("map.yaml"), "Person:\n  source: mapped.csv\n  columns: {name: full, age: years}\n")
        write(Path("mapped.csv"), "full,years\nGus,7\n")
        for args in (
            ["--data", "rows.ndjson", "--mode", "append", "--message", "why"],
            ["--data", "rows.ndjson", "--mode", "merge", "--json"],
            ["--data", "Person=people.csv", "--mode", "merge", "--dry-run", "--report"],
            ["--data", "Person=people.csv", "--mode", "merge", "--branch", "new", "--from", "dev"],
            ["--data", "Knows=ends.csv", "--mode", "overwrite", "--yes", "--branch", "plain", "--json"],
            ["--data", "Person=mapped.csv", "--mapping", "map.yaml", "--mode", "append"],
            ["--mapping", "map.yaml", "--mode", "merge", "--branch", "dev"],
        ):
            outcome = pair.both("load", *args)
            assert outcome.code == 0, outcome.stderr
        assert pair.both("load", "--data", "-", "--mode", "merge", stdin=json.dumps(record)).code == 0
        pair.check_equal()

    def test_load_rejects_file_is_the_same_on_a_server(self, pair: Pair) -> None:
        bad = {"type": "Person", "data": {"name": "Eve", "age": "old"}}
        good = {"type": "Person", "data": {"name": "Fay"}}
        write(Path("rows.ndjson"), f"{json.dumps(bad)}\n{json.dumps(good)}\n")
        args = ["load", "--data", "rows.ndjson", "--mode", "append"]
        assert pair.both(*args).code == 1
        outcome = pair.direct(*args, "--rejects", "out.ndjson")
        expected = Path("out.ndjson").read_text()
        served = pair.remote(*args, "--rejects", "out.ndjson")
        assert (served.code, served.stdout.partition(" on ")[2]) == (0, outcome.stdout.partition(" on ")[2])
        assert "1 record rejected" in served.stderr
        assert Path("out.ndjson").read_text() == expected
        pair.check_equal()

    def test_load_with_violations_prints_the_same_on_a_server(self, pair: Pair) -> None:
        write(Path("twice.ndjson"), '{"type": "Person", "data": {"name": "Ann"}}\n')
        write(Path("text.ndjson"), "this is no record\n")
        write(Path("ends.csv"), "from,to\nAnn,Nobody\n")
        for data in ("twice.ndjson", "text.ndjson", "Knows=ends.csv", "none.ndjson", "Person=none.csv"):
            assert pair.both("load", "--data", data, "--mode", "append").code == 1
        pair.check_equal()

    def test_ingest_prints_the_same_on_a_server(self, pair: Pair) -> None:
        write(Path("rows.json"), '{"type": "Person",\n "data": {"name": "Eve"}}')
        for json_ in ([], ["--json"]):
            outcome = pair.both("ingest", "--data", "rows.json", "--branch", "new", *json_)
            assert outcome.code == 0, outcome.stderr
        pair.check_equal()


class TestBranches:
    def test_branch_commands_print_the_same_on_a_server(self, pair: Pair, origin: Origin) -> None:
        for args in (
            ["create", "one"],
            ["create", "two", "--from", "dev", "--json"],
            ["create", "three", "--at", origin.commits["load"]],
            ["create", "four", "--at", "2999-01-01", "--from", "dev", "--json"],
            ["merge", "plain", "--dry-run"],
            ["merge", "plain", "--json", "--message", "why", "--delete-branch"],
            ["merge", "dev", "--into", "three"],
            ["merge", "dev", "--into", "three"],
            ["merge", "dev", "--resolve", "theirs", "--json", "--delete-branch"],
            ["delete", "one", "--yes"],
            ["delete", "two", "--yes", "--json"],
        ):
            outcome = pair.both("branch", *args)
            assert outcome.code == 0, outcome.stderr
        pair.check_equal()

    def test_tag_commands_print_the_same_on_a_server(self, pair: Pair, origin: Origin) -> None:
        for args in (
            ["create", "v1", "--at", "dev", "--message", "why"],
            ["create", "v2", "--at", origin.commits["load"]],
            ["create", "v3", "--at", "2999-01-01"],
            ["list"],
            ["list", "--prefix", "v", "--limit", "1", "--after", "v1"],
            ["delete", "v1", "--yes"],
            ["delete", "v2", "--yes", "--json"],
        ):
            outcome = pair.both("tag", *args)
            assert outcome.code == 0, outcome.stderr
        assert pair.both("tag", "create", "v3").code == 1
        assert pair.both("query", "-e", ALL, "--snapshot", "v3").code == 0
        pair.check_equal()

    def test_merge_conflicts_are_resolved_by_id_on_a_server(self, pair: Pair) -> None:
        refused = pair.both("branch", "merge", "dev", "--json")
        assert refused.code == 1
        (conflict,) = json.loads(refused.stdout)["merge_conflicts"]
        write(Path("answers.yaml"), f"{conflict['id']}: {{value: 45}}\n")
        assert pair.both("branch", "merge", "dev", "--resolve", "answers.yaml").code == 0
        pair.check_equal()

    def test_a_lost_precondition_is_exit_four(self, pair: Pair, origin: Origin) -> None:
        for json_ in ([], ["--json"]):
            args = ["branch", "merge", "plain", "--if-commit", origin.commits["load"], *json_]
            assert pair.both(*args).code == 4
        pair.check_equal()

    def test_destructive_command_on_a_server_requires_confirmation(self, pair: Pair) -> None:
        write(Path("rows.ndjson"), '{"type": "Person", "data": {"name": "Eve"}}\n')
        for args in (
            ["branch", "delete", "dev"],
            ["load", "--data", "rows.ndjson", "--mode", "overwrite"],
        ):
            outcome = pair.remote(*args)
            assert (outcome.code, "pass --yes" in outcome.stderr) == (1, True)
        pair.check_equal()


def test_revert_prints_the_same_on_a_server(pair: Pair, origin: Origin) -> None:
    for args in (
        ["--dry-run"],
        ["--json", "--message", "why"],
    ):
        assert pair.both("revert", origin.commits["main"], *args).code == 0
    assert pair.both("revert", origin.commits["load"], "--branch", "dev").code == 1
    pair.check_equal()


def test_schema_apply_prints_the_same_on_a_server(pair: Pair) -> None:
    write(Path("wider.pg"), WIDER)
    write(Path("narrower.pg"), NARROWER)
    for args, code in (
        (["narrower.pg"], 1),
        (["narrower.pg", "--json"], 1),
        (["wider.pg", "--backfill", 'Person.town="Bern"', "--message", "why"], 0),
        (["wider.pg", "--json"], 0),
        (["wider.pg", "--json", "--branch", "dev", "--backfill-expr", "Person.town=$this.name"], 0),
        (["none.pg"], 1),
    ):
        outcome = pair.both("schema", "apply", "--schema", *args)
        assert outcome.code == code, outcome.stderr
    assert "town" in pair.both("schema", "show").stdout
    pair.check_equal()


class TestStoredQueries:
    def test_stored_query_runs_by_name_on_a_server(self, pair: Pair, origin: Origin) -> None:
        outcome = pair.remote("query", "grown", "--params", '{"least": 32}', "--format", "csv")
        assert (outcome.code, outcome.stdout) == (0, "name\nAnn\nCid\n")
        earlier = pair.remote(
            "query", "grown", "--params", '{"least": 32}', "--snapshot", origin.commits["load"], "--json"
        )
        assert [row["name"] for row in json.loads(earlier.stdout)["rows"]] == ["Cid"]
        outcome = pair.remote("mutate", "hire", "--params", '{"name": "Eve"}', "--branch", "dev")
        assert (outcome.code, outcome.stdout) == (
            0,
            "changed dev via hire: 1 nodes, 0 edges\nactor_id: ann\n",
        )
        assert pair.served.get("Person", "Eve", branch="dev") is not None

    def test_stored_query_of_the_other_kind_is_refused(self, pair: Pair) -> None:
        outcome = pair.remote("query", "hire", "--params", '{"name": "Eve"}')
        assert (outcome.code, "is a mutation" in outcome.stderr) == (1, True)
        outcome = pair.remote("mutate", "grown", "--params", '{"least": 1}')
        assert (outcome.code, "is a read" in outcome.stderr) == (1, True)
        assert "stored query not found" in pair.remote("query", "none").stderr
        pair.check_equal()

    def test_a_lost_precondition_is_exit_four(self, pair: Pair, origin: Origin) -> None:
        args = ["mutate", "hire", "--params", '{"name": "Eve"}', "--json", "--if-commit"]
        outcome = pair.remote(*args, origin.commits["load"])
        assert outcome.code == 4
        expected = pair.direct("mutate", "-e", STORED, *args[1:], origin.commits["load"])
        assert outcome == expected
        assert pair.remote(*args, origin.commits["main"]).code == 0

    def test_stored_query_on_storage_is_refused(self, kept: Pair) -> None:
        outcome = kept.direct("query", "grown")
        assert (outcome.code, "can only be run on a server" in outcome.stderr) == (1, True)
        outcome = kept.remote("mutate", "hire", "--message", "why")
        assert (outcome.code, "--message does not apply" in outcome.stderr) == (1, True)


class TestWhatAServerDecides:
    @pytest.mark.parametrize(
        "args",
        [
            ["query", "-e", ALL, "--engine", "local"],
            ["query", "-e", ALL, "--spark", "local[1]"],
            ["export", "--engine", "auto"],
            ["mutate", "-e", ADD, "--params", '{"n": "Eve"}', "--durability", "os"],
            ["load", "--data", "rows.ndjson", "--mode", "append", "--engine", "spark"],
            ["branch", "create", "x", "--durability", "full"],
            ["revert", "x", "--durability", "os"],
        ],
        ids=_shown,
    )
    def test_local_options_on_a_server_are_refused(self, kept: Pair, args: list[str]) -> None:
        outcome = kept.remote(*args)
        option = next(arg for arg in args if arg in ("--engine", "--spark", "--durability"))
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr.endswith(f"{option} does not apply.\n")

    def test_wrong_token_or_graph_on_a_server_is_reported(self, kept: Pair) -> None:
        outcome = kept.remote("branch", "list", token="guess")
        assert (outcome.code, outcome.stdout) == (1, "")
        outcome = type(kept)(kept.path, kept.url, "none", kept.served).remote("branch", "list")
        assert (outcome.code, outcome.stderr) == (1, "error: graph 'none' not found\n")


class TestCompletion:
    def completed(self, typed: str) -> list[str]:
        env: dict[str, str | None] = {
            "_OMNIGRAPH_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split(" ")) - 1),
            "OMNIGRAPH_BEARER_TOKEN": TOKEN,
        }
        found = run(env=env)
        assert (found.code, found.stderr) == (0, "")
        return found.stdout.split()

    def test_completion_offers_branches_of_a_served_graph(
        self, kept: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        served = f"--server {kept.url} --graph {kept.graph}"
        assert self.completed(f"omnigraph query {served} --branch ") == ["dev", "main", "plain"]
        assert self.completed(f"omnigraph branch merge {served} d") == ["dev"]
        monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))
        write(tmp_path / "config.yaml", f"unknown: 1\nservers: {{ here: {{ url: '{kept.url}' }} }}\n")
        assert self.completed(f"omnigraph get --graph {kept.graph} --server here --branch m") == ["main"]

    def test_completion_of_unreachable_server_offers_nothing(self, kept: Pair) -> None:
        for place in ("http://127.0.0.1:1", "nobody", kept.url):
            assert self.completed(f"omnigraph query --server {place} --graph none --branch m") == []
