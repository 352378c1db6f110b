"""SIGHUP reloads tokens, policies and the TLS certificate of a running server."""

from __future__ import annotations

import json
import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import omnigraph as og
from tests.server.running import ADD, ALL, LISTING, SCHEMA, TOKENS, everything
from tests.server.test_run import address, process, writing
from tests.support.certificates import Authority
from tests.support.forked import Worker
from tests.support.s3 import Bucket
from tests.support.waiting import HANG, wait_until

FAILED = "reload failed; the old configuration stays in use"

pytest_plugins = ["tests.support.s3_fixtures"]


@dataclass(frozen=True)
class Site:
    """The files of a server, which a test rewrites."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "served.yaml"

    def write(self, uri: str = "team.omni", **files: Any) -> None:
        """Write the configuration, and files by their names without extension."""
        self.config.write_text(
            f"graphs: {{team: {{uri: '{uri}', policy: team.yaml}}}}\npolicy: server.yaml\n", encoding="utf-8"
        )
        for name, document in files.items():
            suffix, text = (
                ("json", json.dumps(document)) if name == "tokens" else ("yaml", yaml.dump(document))
            )
            (self.folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    og.init(str(tmp_path / "team.omni"), SCHEMA).close()
    found = Site(tmp_path)
    found.write(tokens={"ann": TOKENS["ann"]}, team=everything("ann"), server=LISTING)
    return found


@contextmanager
def serving(site: Site, *args: str, **env: str) -> Iterator[tuple[Worker, str]]:
    tokens = str(site.folder / "tokens.json")
    env["OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"] = tokens
    # Only signals reload.
    env.setdefault("OMNIGRAPH_FOLLOW_SECONDS", "3600")
    with process(str(site.config), "--bind", "127.0.0.1:0", *args, **env) as server:
        yield server, address(server)


def send(url: str, actor: str, path: str = "/query", **body: Any) -> httpx.Response:
    return httpx.post(
        f"{url}/graphs/team{path}",
        json=body or {"query": ALL},
        headers={"Authorization": f"Bearer {TOKENS[actor]}"},
        timeout=HANG,
        verify=False,
    )


def add(url: str, actor: str, name: str) -> httpx.Response:
    return send(url, actor, "/mutate", query=ADD, params={"n": name})


def stop(server: Worker) -> list[dict[str, Any]]:
    """Stop a server and return its log."""
    server.send_signal(signal.SIGTERM)
    _, log = server.communicate(timeout=HANG)
    assert server.returncode == 0
    return [json.loads(line) for line in log.splitlines()]


def test_reload_replaces_tokens_and_policies(site: Site) -> None:
    with serving(site) as (server, url):
        assert (send(url, "ann").status_code, send(url, "bob").status_code) == (200, 401)
        site.write(tokens={"bob": TOKENS["bob"]}, team=everything("bob", actions=["read"]))
        server.send_signal(signal.SIGHUP)
        wait_until(lambda: send(url, "bob").status_code == 200)
        assert send(url, "ann").status_code == 401
        assert add(url, "bob", "Zoe").status_code == 403
        site.write(team=everything("bob"))
        server.send_signal(signal.SIGHUP)
        wait_until(lambda: add(url, "bob", "Zoe").status_code == 200)
        log = stop(server)
    assert [item["message"] for item in log].count("configuration reloaded") == 2


def test_reload_of_a_broken_file_keeps_everything(site: Site) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"tokens": {"ann": ""}}, "blank"),
        ({"tokens": {}}, "authentication on or off"),
        ({"team": {"version": 2}}, "version"),
        ({"server": {"rules": "x"}}, "version"),
    ]
    valid: dict[str, Any] = {"tokens": {"ann": TOKENS["ann"]}, "team": everything("ann"), "server": LISTING}
    with serving(site) as (server, url):
        for number, (files, reason) in enumerate(cases):
            # Each other file is valid and would lock ann out. None must be applied without the broken file.
            others: dict[str, Any] = {
                "tokens": {"bob": TOKENS["bob"]},
                "team": everything("bob"),
                "server": LISTING,
            }
            site.write("team.omni", **{**others, **files})
            server.send_signal(signal.SIGHUP)
            failed = wait_until(lambda: read_log(server, FAILED)[number:])  # noqa: B023
            assert reason in failed[0]["error"]
            assert add(url, "ann", f"Zoe {number}").status_code == 200
        site.write("team.omni", **{**valid, "tokens": {"bob": TOKENS["bob"]}})
        server.send_signal(signal.SIGHUP)
        wait_until(lambda: send(url, "bob").status_code == 403)
        stop(server)


def read_log(server: Worker, message: str) -> list[dict[str, Any]]:
    """Return the lines of the log that have a message."""
    complete, _, _ = server.errors_so_far().rpartition("\n")
    lines = [json.loads(line) for line in complete.splitlines()]
    return [item for item in lines if item["message"] == message]


def test_reload_leaves_running_requests_alone(site: Site, s3: Bucket) -> None:
    og.init(f"{s3.uri}/team", SCHEMA, storage_options=s3.options).close()
    site.write(f"{s3.uri}/team")
    storage = {
        "AWS_ACCESS_KEY_ID": s3.options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": s3.options["secret_access_key"],
        "AWS_REGION": s3.options["region"],
        "AWS_ENDPOINT_URL": s3.options["endpoint"],
        "AWS_ALLOW_HTTP": "true",
    }
    with serving(site, **storage) as (server, url):
        with writing(url, s3, TOKENS["ann"]) as write:
            site.write(f"{s3.uri}/team", tokens={"bob": TOKENS["bob"]}, team=everything("bob"))
            server.send_signal(signal.SIGHUP)
            wait_until(lambda: send(url, "ann").status_code == 401)
            # Authorized before the reload, with a token that is no longer valid.
            assert write.finish().status_code == 200
        assert [row["name"] for row in send(url, "bob").json()["rows"]] == ["Ann"]
        stop(server)


def test_reload_replaces_certificate_and_keeps_it_if_the_new_one_is_broken(site: Site) -> None:
    certificate, key = site.folder / "server.pem", site.folder / "server.key"
    old, new = Authority.create(site.folder, "old"), Authority.create(site.folder, "new")
    old.issue(certificate, key)
    with serving(site, "--tls-cert", str(certificate), "--tls-key", str(key)) as (server, plain):
        url = plain.replace("http:", "https:")

        def is_trusted(authority: Authority) -> bool:
            try:
                with httpx.Client(verify=ssl.create_default_context(cafile=authority.file)) as client:
                    return client.get(f"{url}/healthz", timeout=HANG).status_code == 200
            except httpx.ConnectError:
                return False

        assert is_trusted(old)
        certificate.write_text("broken", encoding="ascii")
        server.send_signal(signal.SIGHUP)
        failed = wait_until(lambda: read_log(server, FAILED))
        assert "no PEM certificate" in failed[0]["error"]
        assert is_trusted(old)
        new.issue(certificate, key)
        server.send_signal(signal.SIGHUP)
        wait_until(lambda: is_trusted(new))
        assert not is_trusted(old)
        stop(server)


def test_reload_reaches_all_processes(site: Site) -> None:
    with serving(site, OMNIGRAPH_WORKERS="2") as (server, url):
        assert add(url, "ann", "Zoe").status_code == 200
        site.write(tokens={"bob": TOKENS["bob"]}, team=everything("bob"))
        server.send_signal(signal.SIGHUP)
        # Each request opens a connection, so that the workers share them.
        wait_until(lambda: {send(url, "ann").status_code for _ in range(8)} == {401})
        wait_until(lambda: add(url, "bob", "Yan").status_code == 200)
        assert add(url, "ann", "Xia").status_code == 401
        stop(server)
