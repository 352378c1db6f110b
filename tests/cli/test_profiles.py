"""The settings file and its profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.settings.config import Alias, Config, Profile, read_config
from omnigraph.errors import InvalidInput
from tests.cli.running import run, write

SETTINGS = """\
operator: { actor: alice }
servers:  { prod: { url: "https://graph.example.org/" } }
clusters: { brain: { root: "s3://bucket/brain" } }
profiles:
  staging: { server: prod, default_graph: knowledge }
  brain: { cluster: brain }
  here: { store: team.omni }
  lost: { server: gone }
  both: { server: prod, store: team.omni }
  none: {}
defaults: { output: kv, server: prod, default_graph: knowledge }
aliases:
  triage: { server: prod, graph: spike, query: weekly, args: [since], params: { limit: 20 }, format: csv }
"""


@pytest.fixture
def settings(home: Path) -> Path:
    return write(home / "config.yaml", SETTINGS)


def entries() -> dict[str, dict[str, Any]]:
    outcome = run("profile", "list", "--json")
    assert (outcome.code, outcome.stderr) == (0, "")
    return {item["name"]: item for item in json.loads(outcome.stdout)}


class TestSettings:
    def test_every_section_is_read(self, settings: Path) -> None:
        found = read_config(settings)
        assert found == Config(
            actor="alice",
            server="prod",
            default_graph="knowledge",
            output="kv",
            servers={"prod": "https://graph.example.org"},
            clusters={"brain": "s3://bucket/brain"},
            profiles=found.profiles,
            aliases={"triage": Alias("triage", "prod", "weekly", "spike", ("since",), {"limit": 20}, "csv")},
        )
        assert found.profiles["staging"] == Profile("staging", {"server": "prod"}, "knowledge")

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("servers: {prod: {}}", "servers.prod needs `url`"),
            ("servers: {prod: https://x}", "servers.prod must be a mapping"),
            ("servers: {prod: {url: 'ftp://x'}}", "servers.prod.url: "),
            ("servers: {prod: {url: 'https://u:p@x'}}", "servers.prod.url: "),
            ("servers: [prod]", "servers must be a mapping"),
            ("servers: {1: {url: 'https://x'}}", "servers has a key that is not printable text"),
            ("clusters: {a: {}}", "clusters.a needs `root`"),
            ("aliases: {a: {server: prod}}", "aliases.a needs `query`"),
            ("aliases: {a: {query: q}}", "aliases.a needs `server`"),
            ("aliases: {a: {server: s, query: q, args: x}}", "aliases.a.args must be a list of names"),
            ("aliases: {a: {server: s, query: q, args: [x, x]}}", "aliases.a.args names `x` twice"),
            ("aliases: {a: {server: s, query: q, params: [1]}}", "aliases.a.params must be a mapping"),
            ("aliases: {a: {server: s, query: q, format: arrow}}", "aliases.a.format must be one of"),
            ("defaults: {output: arrow}", "defaults.output must be one of"),
            ("defaults: {server: a, store: b}", "defaults.store and defaults.server exclude each other"),
            ("defaults: {default_graph: a, store: b}", "defaults.store and defaults.default_graph exclude"),
            ("[", "is not YAML"),
        ],
    )
    def test_what_cannot_be_meant_is_refused_with_its_place(
        self, home: Path, text: str, problem: str
    ) -> None:
        path = write(home / "config.yaml", text)
        with pytest.raises(InvalidInput) as caught:
            read_config(path)
        assert problem in caught.value.message

    def test_a_password_in_a_url_is_not_shown(self, home: Path) -> None:
        write(home / "config.yaml", "servers: {prod: {url: 'https://u:s3cret@x'}}")
        outcome = run("profile", "list")
        assert outcome.code == 1
        assert "s3cret" not in outcome.stderr

    def test_what_means_nothing_is_warned_of_with_its_place(self, home: Path) -> None:
        path = write(
            home / "config.yaml",
            "servers: {p: {url: 'https://x', tokn: a}}\nprofiles: {a: {stor: b}}\nalias: {}",
        )
        outcome = run("profile", "list")
        assert outcome.code == 0
        assert sorted(outcome.stderr.splitlines()) == [
            f"warning: {path}: unknown key 'alias'; did you mean `aliases`?",
            f"warning: {path}: unknown key 'profiles.a.stor'; did you mean `store`?",
            f"warning: {path}: unknown key 'servers.p.tokn'",
        ]


@pytest.mark.usefixtures("settings")
class TestProfiles:
    def test_all_are_listed_also_those_that_cannot_be_used(self) -> None:
        found = entries()
        assert found["staging"] == {
            "name": "staging",
            "binding": "server: prod",
            "scope_kind": "server",
            "target": "prod",
            "valid": True,
            "error": None,
            "default_graph": "knowledge",
            "active": False,
        }
        assert {name: item["scope_kind"] for name, item in found.items()} == {
            "staging": "server",
            "brain": "cluster",
            "here": "store",
            "lost": "server",
            "both": "invalid",
            "none": "invalid",
        }
        assert [name for name, item in found.items() if not item["valid"]] == ["lost", "both", "none"]
        assert found["both"]["error"] == "profile 'both' must bind exactly one of server, cluster, store"

    def test_people_see_a_line_for_each(self) -> None:
        listed = run("profile", "list", env={"OMNIGRAPH_PROFILE": "staging"}).stdout.splitlines()
        assert listed[:3] == [
            "staging (active)  server: prod · graph: knowledge",
            "brain  cluster: brain",
            "here  store: team.omni",
        ]
        assert listed[3].startswith("lost  invalid: no server named 'gone'")

    def test_the_active_one_is_that_of_the_option_then_of_the_environment(self) -> None:
        def active(*args: str, env: str | None = None) -> list[str]:
            listed = json.loads(
                run("profile", "list", "--json", *args, env={"OMNIGRAPH_PROFILE": env}).stdout
            )
            return [item["name"] for item in listed if item["active"]]

        assert active() == []
        assert active(env="brain") == ["brain"]
        assert active("--profile", "here", env="brain") == ["here"]

    @pytest.mark.parametrize(
        ("args", "shown"),
        [
            (["staging"], ["staging", "server", "prod", "https://graph.example.org", "knowledge"]),
            (["brain"], ["brain", "cluster", "brain", "s3://bucket/brain", None]),
            (["--profile", "here"], ["here", "store", "team.omni", "team.omni", None]),
            ([], ["(defaults)", "server", "prod", "https://graph.example.org", "knowledge"]),
        ],
    )
    def test_one_is_shown_with_where_it_leads(self, args: list[str], shown: list[str | None]) -> None:
        outcome = run("profile", "show", *args, "--json")
        keys = ["name", "scope_kind", "target", "endpoint", "default_graph", "output_format"]
        assert list(json.loads(outcome.stdout).items()) == list(zip(keys, [*shown, "kv"], strict=True))

    @pytest.mark.parametrize("name", ["both", "none", "lost", "unheard"])
    def test_one_that_cannot_be_used_is_refused_where_it_is_used(self, name: str) -> None:
        for args in (["profile", "show", name], ["snapshot", "--profile", name]):
            outcome = run(*args)
            assert (outcome.code, outcome.stdout) == (1, "")
            assert outcome.stderr.startswith("error: ")

    def test_without_settings_there_are_none(self, settings: Path) -> None:
        settings.unlink()
        assert run("profile", "list").stdout == ""
        assert run("profile", "list", "--json").stdout == "[]\n"
        assert json.loads(run("profile", "show", "--json").stdout)["scope_kind"] is None


@pytest.mark.usefixtures("settings")
class TestScopes:
    def test_a_server_is_no_place_for_a_direct_command(self) -> None:
        for args, origin in (
            (["optimize", "--profile", "staging"], "profile 'staging'"),
            (["cleanup", "--keep", "1"], "defaults.server"),
        ):
            outcome = run(*args)
            assert outcome.code == 1
            assert outcome.stderr == (
                f"error: `{args[0]}` is a direct (storage-native) command; {origin} addresses a served graph and "
                "does not apply. Pass a storage URI, or --cluster <dir> --graph <id>.\n"
            )

    def test_a_cluster_is_no_place_for_data(self) -> None:
        outcome = run("snapshot", "--profile", "brain")
        assert outcome.code == 1
        assert outcome.stderr == (
            "error: `snapshot` works on the data of a graph; profile 'brain' addresses a cluster and does not "
            "apply. Pass --server <name> --graph <id>, or --store <uri>.\n"
        )

    def test_a_store_of_a_profile_is_a_graph(self) -> None:
        assert run("init", "--schema", "people.pg", "team.omni").code == 0
        outcome = run("branch", "list", "--profile", "here")
        assert (outcome.code, outcome.stdout) == (0, "main\n")
        assert run("branch", "list", "--profile", "here", "--graph", "x").code == 1

    def test_a_server_that_has_no_name_is_refused_with_the_nearest(self) -> None:
        outcome = run("snapshot", "--server", "prd", "--graph", "x")
        assert outcome.code == 1
        assert outcome.stderr.splitlines()[0] == "error: no server named 'prd'; did you mean `prod`?"
