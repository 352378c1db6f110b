"""Storage options: from environment variables, to obstore and to Lance."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import InvalidInput
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.storage_options import RetryPolicy, lance_options, resolve_options, s3_options


def test_the_usual_variables_are_understood() -> None:
    env = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL": "https://s3.example.org",
        "AWS_ALLOW_HTTP": "1",
        "HOME": "ignored",
    }
    assert s3_options(env) == {
        "access_key_id": "key",
        "secret_access_key": "secret",
        "session_token": "token",
        "region": "eu-central-1",
        "endpoint": "https://s3.example.org",
        "allow_http": "true",
    }


def test_the_more_specific_variable_wins() -> None:
    env = {
        "AWS_DEFAULT_REGION": "general",
        "AWS_REGION": "specific",
        "AWS_ENDPOINT": "c",
        "AWS_ENDPOINT_URL": "b",
        "AWS_ENDPOINT_URL_S3": "a",
    }
    assert s3_options(env) == {"region": "specific", "endpoint": "a"}
    assert s3_options({"AWS_DEFAULT_REGION": "general", "AWS_ENDPOINT": "c"}) == {
        "region": "general",
        "endpoint": "c",
    }


@pytest.mark.parametrize(("value", "allowed"), [("true", "true"), ("YES", "true"), ("0", "false")])
def test_http_is_allowed_only_when_said_so(value: str, allowed: str) -> None:
    env = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": value}
    assert s3_options(env)["allow_http"] == allowed
    assert s3_options({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"})["allow_http"] == "true"
    assert "allow_http" not in s3_options({"AWS_ENDPOINT_URL": "https://127.0.0.1:1"})


def test_an_empty_environment_asks_for_nothing() -> None:
    assert s3_options({}) == {}
    assert s3_options({"AWS_REGION": ""}) == {}


def test_lance_gets_the_same_options_under_its_own_names() -> None:
    assert lance_options(
        {
            "access_key_id": "key",
            "secret_access_key": "secret",
            "session_token": "token",
            "region": "r",
            "endpoint": "e",
            "allow_http": "true",
            "virtual_hosted": "false",
            "timeout": "500ms",
            "connect_timeout": "1s",
            "max_retries": "3",
            "retry_timeout": "2m",
            "retry_backoff": "1ms",
        }
    ) == {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_session_token": "token",
        "aws_region": "r",
        "aws_endpoint": "e",
        "allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
        "timeout": "500ms",
        "connect_timeout": "1s",
        "client_max_retries": "3",
        "client_retry_timeout": "120",
    }


def test_durations_and_counts_have_defaults() -> None:
    policy = RetryPolicy.of({"timeout": "1.5s"})
    assert (policy.timeout, policy.connect_timeout, policy.max_retries) == (1.5, 5.0, 5)


@pytest.mark.parametrize(
    "options",
    [
        {"acces_key_id": "typo"},
        {"timeout": "soon"},
        {"timeout": "5"},
        {"max_retries": "-1"},
        {"max_retries": "²"},
        {"allow_http": "yes"},
    ],
)
def test_an_option_that_would_be_without_effect_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        lance_options(options)
    with pytest.raises(InvalidInput):
        ObjectStore.open("memory://options", options)


def test_resolve_options_prefers_explicit_options_over_variables() -> None:
    env = {
        "AWS_ACCESS_KEY_ID": "theirs",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    }
    assert resolve_options(None, env) == s3_options(env)
    assert resolve_options({"region": "mine"}, env)["region"] == "mine"
    # A key of one identity is never used with the token of another.
    mine = resolve_options({"access_key_id": "mine", "secret_access_key": "s"}, env)
    assert (mine["access_key_id"], mine["secret_access_key"]) == ("mine", "s")
    assert "session_token" not in mine


@pytest.mark.parametrize(
    ("explicit", "env", "allowed"),
    [
        ({"endpoint": "http://127.0.0.1:1"}, {}, "true"),
        ({"endpoint": "https://127.0.0.1:1"}, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, None),
        ({"endpoint": "http://127.0.0.1:1"}, {"AWS_ALLOW_HTTP": "false"}, "false"),
        ({"endpoint": "http://127.0.0.1:1", "allow_http": "false"}, {}, "false"),
        ({}, {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}, "true"),
    ],
)
def test_resolve_options_http_endpoint_allows_http_unless_set(
    explicit: dict[str, str], env: dict[str, str], allowed: str | None
) -> None:
    assert resolve_options(explicit, env).get("allow_http") == allowed


PROFILES = {
    "AWS_SHARED_CREDENTIALS_FILE": """
[default]
aws_access_key_id = other
[team]
aws_access_key_id = key%1
aws_secret_access_key = secret
[half]
""",
    "AWS_CONFIG_FILE": """
[profile team]
region = eu-west-1
aws_session_token = token
endpoint_url = http://127.0.0.1:9000
[profile sso]
sso_session = work
""",
}


@pytest.fixture
def profiles(tmp_path: Path) -> dict[str, str]:
    """The variables that name the files of the profiles."""
    for name, text in PROFILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return {name: str(tmp_path / name) for name in PROFILES}


def test_resolve_options_with_a_profile_has_its_keys_region_and_endpoint(profiles: dict[str, str]) -> None:
    expected = {
        "access_key_id": "key%1",
        "secret_access_key": "secret",
        "session_token": "token",
        "region": "eu-west-1",
        "endpoint": "http://127.0.0.1:9000",
        "allow_http": "true",
    }
    assert resolve_options({}, {**profiles, "AWS_PROFILE": "team"}) == expected
    assert resolve_options({}, profiles) == {}


def test_resolve_options_variables_win_over_the_profile(profiles: dict[str, str]) -> None:
    found = resolve_options({}, {**profiles, "AWS_PROFILE": "team", "AWS_ACCESS_KEY_ID": "own"})
    assert found == {
        "access_key_id": "own",
        "region": "eu-west-1",
        "endpoint": "http://127.0.0.1:9000",
        "allow_http": "true",
    }


@pytest.mark.parametrize(
    ("profile", "reason"),
    [("nobody", "not found"), ("sso", "has no static keys"), ("half", "has no static keys")],
)
def test_open_bucket_with_a_profile_without_keys_is_refused(
    profiles: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str, reason: str
) -> None:
    for name, value in {**profiles, "AWS_PROFILE": profile}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match=f"AWS profile '{profile}' {reason}"):
        ObjectStore.open("s3://bucket/graph")
    ObjectStore.open("s3://bucket/graph", {"access_key_id": "a", "secret_access_key": "b"})
    ObjectStore.open(str(tmp_path / "local"))
