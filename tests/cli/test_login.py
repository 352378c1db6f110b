"""`omnigraph login` and `logout`: the credentials file, and the token for each server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from omnigraph.cli.settings.config import Config
from omnigraph.cli.settings.credentials import credentials_path, read_tokens, token_for
from omnigraph.cli.settings.servers import ServerEntry, find_server, server_name
from omnigraph.errors import InvalidInput
from tests.cli.running import run, write

SERVERS = {
    "prod": "https://graph.example.org",
    "lab": "https://graph.example.org/lab",
    "near": "http://127.0.0.1:8080",
}
CONFIG = Config(servers=SERVERS)


def keep(home: Path, text: str, mode: int = 0o600) -> Path:
    path = write(home / "credentials", text)
    path.chmod(mode)
    return path


class TestLogin:
    def test_login_writes_token_file_readable_by_owner_only(self, home: Path) -> None:
        write(home / "config.yaml", "servers: {prod: {url: 'https://graph.example.org'}}")
        before = os.umask(0)
        try:
            outcome = run("login", "prod", "--token", "s3cret")
        finally:
            os.umask(before)
        path = home / "credentials"
        assert (outcome.code, outcome.output) == (0, f"stored credential for 'prod' in {path}\n")
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_text(encoding="utf-8") == "[prod]\ntoken = s3cret\n\n"
        assert [item.name for item in home.iterdir() if "credentials" in item.name] == ["credentials"]

    def test_login_creates_folder_accessible_by_owner_only(self, home: Path) -> None:
        assert run("login", "prod", "--token", "x").code == 0
        assert home.stat().st_mode & 0o077 == 0

    def test_login_reads_token_from_stdin(self, home: Path) -> None:
        outcome = run("login", "prod", "--json", stdin="s3cret\nmore\n")
        assert json.loads(outcome.stdout) == {
            "server": "prod",
            "credentials_path": str(home / "credentials"),
            "declared": False,
        }
        assert outcome.stderr.startswith("note: no server named 'prod' in your settings")
        assert read_tokens(home / "credentials") == {"prod": "s3cret"}

    def test_login_keeps_other_tokens(self, home: Path) -> None:
        keep(home, "[lab]\ntoken = of%(lab)s\n[prod]\ntoken = old\n")
        assert run("login", "prod", "--token", "new").code == 0
        assert read_tokens(home / "credentials") == {"lab": "of%(lab)s", "prod": "new"}

    @pytest.mark.parametrize("token", ["", "two words", "t\u00f6ken", "a\x07b"])
    def test_login_with_invalid_token_is_refused_without_showing_it(self, home: Path, token: str) -> None:
        outcome = run("login", "prod", f"--token={token}")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert not token or token not in outcome.stderr
        assert not (home / "credentials").exists()

    @pytest.mark.parametrize("name", ["", " ", "a]b", "a\nb"])
    def test_login_with_invalid_server_name_is_refused(self, home: Path, name: str) -> None:
        assert run("login", "--token", "x", "--", name).code == 1
        assert not (home / "credentials").exists()

    def test_login_with_any_valid_server_name_stores_the_token(self, home: Path) -> None:
        assert run("login", "DEFAULT", "--token", "x").code == 0
        assert read_tokens(home / "credentials") == {"DEFAULT": "x"}


class TestLogout:
    def test_logout_removes_one_token_and_keeps_others(self, home: Path) -> None:
        path = keep(home, "[lab]\ntoken = a\n[prod]\ntoken = b\n")
        outcome = run("logout", "prod")
        assert (outcome.code, outcome.output) == (0, f"removed credential for 'prod' from {path}\n")
        assert read_tokens(path) == {"lab": "a"}
        assert path.stat().st_mode & 0o777 == 0o600

    def test_logout_without_token_succeeds_and_writes_nothing(self, home: Path) -> None:
        outcome = run("logout", "prod", "--json")
        assert outcome.code == 0
        assert json.loads(outcome.stdout) == {
            "server": "prod",
            "credentials_path": str(home / "credentials"),
        }
        assert not home.exists()


class TestFile:
    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o601, 0o666])
    def test_token_file_accessible_by_others_is_refused(self, home: Path, mode: int) -> None:
        path = keep(home, "[prod]\ntoken = s3cret\n", mode)
        for args in (["login", "prod", "--token", "x"], ["logout", "prod"]):
            outcome = run(*args)
            assert outcome.code == 1
            assert f"hint: restrict it to its owner: chmod 600 {path}\n" in outcome.stderr
        with pytest.raises(InvalidInput):
            token_for(ServerEntry("https://graph.example.org", "prod"), {"OMNIGRAPH_HOME": str(home)})
        assert path.read_text(encoding="utf-8") == "[prod]\ntoken = s3cret\n"

    @pytest.mark.parametrize("text", ["s3cret", "[prod\ntoken = s3cret", "[a]\ntoken = s3cret\n[a]\n"])
    def test_invalid_token_file_is_refused_without_showing_it(self, home: Path, text: str) -> None:
        keep(home, text)
        outcome = run("logout", "prod")
        assert outcome.code == 1
        assert "is not a valid credentials file" in outcome.stderr
        assert "s3cret" not in outcome.stderr


class TestWhichToken:
    @pytest.mark.parametrize(
        ("url", "name"),
        [
            ("https://graph.example.org", "prod"),
            ("HTTPS://Graph.Example.ORG:443/graphs/x", "prod"),
            ("https://graph.example.org/lab/graphs/x", "lab"),
            ("https://graph.example.org/labour", "prod"),
            ("https://graph.example.org.evil.example", None),
            ("https://graph.example.org:8443", None),
            ("http://graph.example.org", None),
            ("http://127.0.0.1:8080/graphs/team", "near"),
            ("http://127.0.0.1:80801", None),
        ],
    )
    def test_token_is_selected_by_the_longest_url_prefix(self, url: str, name: str | None) -> None:
        assert server_name(CONFIG, url) == name

    def test_token_of_server_variable_precedes_file_and_general_variable(self, home: Path) -> None:
        keep(home, "[my-lab]\ntoken = filed\n")
        server = ServerEntry("https://x.example.org", "my-lab")
        own = {"OMNIGRAPH_HOME": str(home), "OMNIGRAPH_BEARER_TOKEN": "general"}
        assert token_for(server, {**own, "OMNIGRAPH_TOKEN_MY_LAB": "variable"}) == "variable"
        assert token_for(server, own) == "filed"
        assert token_for(ServerEntry("https://x.example.org", "other"), own) == "general"
        assert token_for(ServerEntry("https://x.example.org", "other"), {"OMNIGRAPH_HOME": str(home)}) is None

    def test_server_without_name_uses_the_general_token(self, home: Path) -> None:
        keep(home, "[prod]\ntoken = filed\n")
        unknown = find_server(CONFIG, "https://elsewhere.example.org")
        own = {"OMNIGRAPH_HOME": str(home), "OMNIGRAPH_TOKEN_PROD": "variable"}
        assert token_for(unknown, own) is None
        assert token_for(unknown, {**own, "OMNIGRAPH_BEARER_TOKEN": "general"}) == "general"

    def test_token_file_is_in_the_settings_folder(self, home: Path) -> None:
        assert credentials_path({"OMNIGRAPH_HOME": str(home)}) == home / "credentials"
