"""Tokens in AWS Secrets Manager: read at the start, followed while the server runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput
from omnigraph.server.http.authentication import AWS_VARIABLE, PREFIX, read_tokens
from omnigraph.server.http.aws_secrets import SecretVersion, _client_of, read_interval
from tests.server.running import ALL, SCHEMA, TOKENS
from tests.server.test_run import address, process
from tests.support.waiting import HANG, wait_until

pytest_plugins = ["tests.support.s3_fixtures"]

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test-key",
    "AWS_SECRET_ACCESS_KEY": "test-secret",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
}


class Secret:
    """A secret in a server of the AWS API."""

    def __init__(self, endpoint: str) -> None:
        import boto3

        self.name = f"tokens-{uuid4().hex[:8]}"
        self.client = boto3.session.Session().client("secretsmanager", endpoint_url=endpoint)
        self.client.create_secret(Name=self.name, SecretString="{}")

    def store(self, **content: Any) -> None:
        self.client.put_secret_value(SecretId=self.name, **content)


@pytest.fixture
def secret(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Secret]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", moto_endpoint)
    found = Secret(moto_endpoint)
    _client_of.cache_clear()
    yield found
    _client_of.cache_clear()
    found.client.close()


def test_secret_has_all_tokens_and_wins_over_file_and_variables(secret: Secret) -> None:
    secret.store(SecretString='{"ann": "one"}')
    environment = {AWS_VARIABLE: secret.name, f"{PREFIX}S_FILE": "nowhere.json", PREFIX: "two"}
    assert read_tokens(environment).actors == {"ann"}


def test_unusable_secret_is_refused_without_its_content(secret: Secret) -> None:
    secret.store(SecretString='["sEcReT"]')
    with pytest.raises(InvalidInput, match="must be a JSON object") as caught:
        read_tokens({AWS_VARIABLE: secret.name})
    assert "sEcReT" not in str(caught.value)
    secret.store(SecretBinary=b"sEcReT")
    with pytest.raises(InvalidInput, match="is binary"):
        read_tokens({AWS_VARIABLE: secret.name})
    with pytest.raises(InvalidInput, match="'gone' cannot be read") as caught:
        read_tokens({AWS_VARIABLE: "gone"})
    assert "secretsmanager:GetSecretValue" in str(caught.value.hint)


def test_version_is_read_once_in_the_interval_and_kept_on_errors(secret: Secret) -> None:
    now = [0.0]
    version = SecretVersion(secret.name, 60, lambda: now[0])
    before = version.read()
    secret.store(SecretString='{"ann": "two"}')
    now[0] = 59
    assert version.read() == before
    now[0] = 60
    after = version.read()
    assert after not in (None, before)
    secret.client.delete_secret(SecretId=secret.name, ForceDeleteWithoutRecovery=True)
    now[0] = 120
    assert version.read() == after


def test_running_server_follows_the_secret(secret: Secret, tmp_path: Path) -> None:
    og.init(str(tmp_path / "team.omni"), SCHEMA).close()
    secret.store(SecretString=json.dumps({"ann": TOKENS["ann"]}))
    variables = {AWS_VARIABLE: secret.name, "OMNIGRAPH_AWS_SECRET_SECONDS": "0"}
    with process(
        str(tmp_path), "--bind", "127.0.0.1:0", "--workers", "1", OMNIGRAPH_FOLLOW_SECONDS="0.2", **variables
    ) as server:
        url = f"{address(server)}/graphs/team/query"

        def ask(actor: str) -> int:
            headers = {"Authorization": f"Bearer {TOKENS[actor]}"}
            return httpx.post(
                url, json={"query": ALL}, headers=headers, timeout=HANG, verify=False
            ).status_code

        assert (ask("ann"), ask("bob")) == (200, 401)
        secret.store(SecretString=json.dumps({"bob": TOKENS["bob"]}))
        wait_until(lambda: (ask("ann"), ask("bob")) == (401, 200))


def test_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    _client_of.cache_clear()
    with pytest.raises(InvalidInput, match=r"omnigraph\[aws\]"):
        read_tokens({AWS_VARIABLE: "name"})


@pytest.mark.parametrize("text", ["soon", "-1", "inf"])
def test_interval_that_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="must be a number of seconds"):
        read_interval({"OMNIGRAPH_AWS_SECRET_SECONDS": text})
