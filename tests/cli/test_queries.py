"""The stored queries and policies of a server configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.graphs import make_graph
from tests.cli.running import PEOPLE, access, run, write
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]

STORED = """\
query older($a: I32, $n: [String]?) @description("Who is older.") @instruction("Give an age.") {
  match { $p: Person  $p.age > $a } return { $p.name }
}
query hire($n: String) { insert Person { name: $n } }
"""
POLICY = """\
version: 1
groups: { team: [ann, bob] }
rules: [{ id: r, allow: { actors: { group: team }, actions: [read] } }]
"""
LISTING = POLICY.replace("read", "graph_list")


pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def config(folder: Path) -> Path:
    make_graph("g.omni")
    write(folder / "queries" / "people.gq", STORED)
    write(folder / "team.yaml", POLICY)
    return write(folder / "site.yaml", "graphs: {team: {uri: g.omni, queries: queries, policy: team.yaml}}")


@pytest.mark.usefixtures("config")
class TestList:
    def test_people_see_how_each_is_called(self) -> None:
        outcome = run("queries", "list", "--cluster", "site.yaml")
        assert (outcome.code, outcome.stderr) == (0, "")
        assert outcome.stdout.splitlines() == [
            "mutation  hire($n: String) [mcp: hire]",
            "read  older($a: I32, $n: [String]?) [mcp: older]",
            "  description: Who is older.",
            "  instruction: Give an age.",
        ]

    def test_programs_see_the_same(self) -> None:
        found = json.loads(run("queries", "list", "--json", "--cluster", "site.yaml").stdout)["queries"]
        assert found == [
            {
                "name": "hire",
                "mcp_expose": True,
                "tool_name": "hire",
                "mutation": True,
                "params": [{"name": "n", "type": "String", "nullable": False}],
            },
            {
                "name": "older",
                "mcp_expose": True,
                "tool_name": "older",
                "mutation": False,
                "description": "Who is older.",
                "instruction": "Give an age.",
                "params": [
                    {"name": "a", "type": "I32", "nullable": False},
                    {"name": "n", "type": "[String]", "nullable": True},
                ],
            },
        ]

    def test_a_query_that_does_not_fit_is_no_list(self, folder: Path) -> None:
        write(folder / "queries" / "bad.gq", "query bad() { match { $x: Nobody } return { $x.id } }")
        outcome = run("queries", "list", "--cluster", "site.yaml")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr.startswith("error: stored query 'bad': ")


@pytest.mark.usefixtures("config")
class TestValidate:
    def test_queries_that_fit_are_counted(self) -> None:
        outcome = run("queries", "validate", "--cluster", "site.yaml")
        assert (outcome.code, outcome.stdout) == (0, "OK  2 stored queries type-check against the schema\n")
        found = json.loads(run("queries", "validate", "--json", "--cluster", "site.yaml").stdout)
        assert found == {"ok": True, "breakages": [], "warnings": []}

    def test_everything_that_is_wrong_is_told(self, folder: Path) -> None:
        write(folder / "queries" / "bad.gq", "query bad() { match { $x: Nobody } return { $x.id } }")
        write(folder / "queries" / "torn.gq", "query {")
        write(folder / "queries" / "twice.gq", 'query hire() { insert Person { name: "a" } }')
        outcome = run("queries", "validate", "--cluster", "site.yaml")
        assert (outcome.code, outcome.stderr) == (1, "")
        lines = outcome.stdout.splitlines()
        assert [line.partition(":")[0] for line in lines] == [
            "ERROR  query 'bad'",
            "ERROR  query 'torn.gq'",
            "ERROR  query 'hire'",
            "WARN  query 'hire'",
        ]
        found = json.loads(run("queries", "validate", "--json", "--cluster", "site.yaml").stdout)
        assert (found["ok"], [item["query"] for item in found["breakages"]]) == (
            False,
            ["bad", "torn.gq", "hire"],
        )
        assert [item["query"] for item in found["warnings"]] == ["hire"]

    def test_vector_parameter_is_warned_of(self, folder: Path) -> None:
        schema = write(folder / "docs.pg", "node Doc { title: String @key  v: Vector(2) }")
        assert run("init", "--schema", str(schema), "docs.omni").code == 0
        stored = """\
            query near($q: Vector(2)) {
              match { $d: Doc } return { $d.title } order { nearest($d.v, $q) } limit 3
            }
            query by_words($q: String) {
              match { $d: Doc } return { $d.title } order { nearest($d.v, $q) } limit 3
            }
            query add($t: String, $v: Vector(2)) { insert Doc { title: $t, v: $v } }
        """
        write(folder / "site.yaml", "graphs: {docs: {uri: docs.omni, queries: stored}}")
        write(folder / "stored" / "docs.gq", stored)
        advice = "; declare it as String to embed the text on the server"
        expected = [
            ("near", f"parameter `$q` is a Vector(2), which MCP clients cannot supply{advice}"),
            ("add", "parameter `$v` is a Vector(2), which MCP clients cannot supply"),
        ]
        outcome = run("queries", "validate", "--cluster", "site.yaml")
        assert (outcome.code, outcome.stdout.splitlines()) == (
            0,
            [
                *(f"WARN  query '{query}': {message}" for query, message in expected),
                "OK  3 stored queries type-check against the schema",
            ],
        )
        found = json.loads(run("queries", "validate", "--json", "--cluster", "site.yaml").stdout)
        warnings = [{"query": query, "message": message} for query, message in expected]
        assert found == {"ok": True, "breakages": [], "warnings": warnings}

    def test_nothing_registered_is_no_failure(self, folder: Path) -> None:
        write(folder / "site.yaml", "graphs: {team: {uri: g.omni}}")
        for command in ("validate", "list"):
            outcome = run("queries", command, "--cluster", "site.yaml")
            assert (outcome.code, outcome.stdout) == (0, "(no stored queries registered)\n")


@pytest.mark.usefixtures("config")
class TestWhich:
    def test_a_configuration_is_found_by_path_name_and_profile(self, home: Path, folder: Path) -> None:
        write(
            home / "config.yaml",
            f"clusters: {{site: {{root: '{folder / 'site.yaml'}'}}}}\nprofiles: {{p: {{cluster: site}}}}",
        )
        for args in (["--cluster", "site.yaml"], ["--cluster", "site"], ["--profile", "p"]):
            assert run("queries", "validate", *args).code == 0

    def test_of_several_graphs_one_is_chosen(self, folder: Path) -> None:
        write(folder / "site.yaml", "graphs: {a: {uri: g.omni, queries: queries}, b: {uri: g.omni}}")
        outcome = run("queries", "list", "--cluster", "site.yaml")
        assert outcome.code == 1
        assert outcome.stderr == (
            "error: --cluster site.yaml has several graphs: choose one with --graph <id>\nhint: graphs: a, b\n"
        )
        chosen = run("queries", "list", "--cluster", "site.yaml", "--graph", "b")
        assert chosen.stdout == "(no stored queries registered)\n"
        assert run("queries", "list", "--cluster", "site.yaml", "--graph", "c").code == 1

    @pytest.mark.parametrize("option", ["--store", "--server"])
    def test_only_configuration_is_looked_at(self, option: str) -> None:
        outcome = run("queries", "list", option, "x")
        assert outcome.code == 1
        assert outcome.stderr.startswith(
            f"error: `queries list` reads a server configuration; {option} does not"
        )

    def test_no_configuration_is_one_sentence(self) -> None:
        outcome = run("queries", "list")
        assert outcome.code == 1
        assert outcome.stderr.startswith("error: no cluster addressed — pass --cluster <config>")

    def test_maintenance_finds_a_graph_by_its_configuration(self) -> None:
        outcome = run("cleanup", "--keep", "1", "--cluster", "site.yaml", "--graph", "team")
        assert outcome.code == 0
        assert "g.omni (keep 1 versions)" in outcome.stdout


@pytest.mark.usefixtures("config")
class TestPolicy:
    def test_the_bundle_of_a_graph_is_checked_and_questioned(self) -> None:
        outcome = run("policy", "validate", "--cluster", "site.yaml")
        assert (outcome.code, outcome.stdout) == (0, "policy valid: bundle 'team' [2 actors]\n")
        asked = ["--actor", "ann", "--action", "read", "--cluster", "site.yaml", "--graph", "team"]
        assert run("policy", "explain", *asked).stdout.startswith("decision: allow\n")

    def test_of_several_bundles_one_is_chosen(self, folder: Path) -> None:
        write(folder / "list.yaml", LISTING)
        site = write(
            folder / "site.yaml", "graphs: {team: {uri: g.omni, policy: team.yaml}}\npolicy: list.yaml"
        )
        outcome = run("policy", "validate", "--cluster", "site.yaml")
        assert outcome.code == 1
        assert outcome.stderr.endswith("hint: choices: --graph team, --cluster-scope\n")
        assert run("policy", "validate", "--cluster", "site.yaml", "--graph", "team").code == 0
        write(site, "graphs: {team: {uri: g.omni}}")
        for args in ([], ["--graph", "team"]):
            assert "no policy bundle" in run("policy", "validate", "--cluster", "site.yaml", *args).stderr

    def test_a_file_and_a_configuration_are_one_too_many(self) -> None:
        outcome = run("policy", "validate", "--file", "team.yaml", "--cluster", "site.yaml")
        assert outcome.code == 1
        assert outcome.stderr == (
            "error: `policy validate` reads the bundle in --file; --cluster does not apply.\n"
        )


class TestInABucket:
    """What is served may stand in a store as a whole, and is looked at there."""

    @pytest.fixture
    def config(self, s3: Bucket) -> str:
        """The address of a configuration beside which everything stands."""
        og.init(f"{s3.uri}/live/team", PEOPLE, storage_options=s3.options).close()
        s3.server.objects.put(s3.name, "live/queries/people.gq", STORED.encode())
        s3.server.objects.put(s3.name, "live/site.yaml", b"graphs: {team: {uri: team, queries: queries}}")
        return f"{s3.uri}/live/site.yaml"

    def test_the_queries_of_a_folder_in_a_store_are_listed_and_checked(self, config: str, s3: Bucket) -> None:
        listed = run("queries", "list", "--cluster", config, env=access(s3))
        assert (listed.code, listed.stderr) == (0, "")
        assert listed.stdout.splitlines()[0] == "mutation  hire($n: String) [mcp: hire]"
        s3.server.objects.put(s3.name, "live/queries/torn.gq", b"query {")
        checked = run("queries", "validate", "--cluster", config, env=access(s3))
        assert (checked.code, checked.stdout.partition(":")[0]) == (1, "ERROR  query 'torn.gq'")

    @pytest.mark.usefixtures("config")
    def test_the_queries_of_a_graph_in_a_store_may_stand_here(self, s3: Bucket, folder: Path) -> None:
        write(folder / "mine" / "people.gq", STORED)
        here = (folder / "mine").as_uri()
        write(folder / "site.yaml", f"graphs: {{team: {{uri: '{s3.uri}/live/team', queries: '{here}'}}}}")
        checked = run("queries", "validate", "--cluster", "site.yaml", env=access(s3))
        assert (checked.code, checked.stderr) == (0, "")
