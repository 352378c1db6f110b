"""Storage options: credentials, endpoint, timeouts and retries.

Options are a flat mapping of strings, so that they can be sent to other processes and into Spark tasks. An option
that is not given has the value of the usual `AWS_*` variable, or of the profile that `AWS_PROFILE` names, in the
Python API, the command line, the server and Spark alike. This module is the only code below the surfaces that reads
the environment. A Spark driver resolves the options before it sends them to tasks, so that executors need no
variables.

| key | meaning | default |
|---|---|---|
| `access_key_id`, `secret_access_key`, `session_token` | credentials | those of the platform |
| `region` | region to sign for | `us-east-1` |
| `endpoint` | URL of an S3-compatible service | AWS |
| `allow_http` | `true` allows an endpoint without TLS | `true` for an endpoint with `http://` |
| `virtual_hosted` | `true` puts the bucket into the host name | `false` |
| `timeout`, `connect_timeout` | limits for one request: `500ms`, `30s`, `2m` | `30s`, `5s` |
| `max_retries`, `retry_timeout` | limits for all attempts of one call and for local locks | `5`, `60s` |
| `retry_backoff` | wait before the first retry; doubles with each retry, up to 20 times | `100ms` |
| `verify_reads` | `true` compares every file with its recorded digest when it is first opened | `false` |
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from omnigraph.errors import InvalidInput
from omnigraph.store.aws_profile import check_profile, profile_options

__all__ = [
    "RetryPolicy",
    "StorageOptions",
    "check_credentials",
    "check_options",
    "lance_options",
    "resolve_options",
    "s3_options",
]

StorageOptions: TypeAlias = Mapping[str, str]

# The name of each option in Lance; None for an option that Lance does not have.
_LANCE_NAMES: dict[str, str | None] = {
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "region": "aws_region",
    "endpoint": "aws_endpoint",
    "allow_http": "allow_http",
    "virtual_hosted": "aws_virtual_hosted_style_request",
    "timeout": "timeout",
    "connect_timeout": "connect_timeout",
    "max_retries": "client_max_retries",
    "retry_timeout": "client_retry_timeout",
    "retry_backoff": None,
    "verify_reads": None,
}
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m)$")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}

# The first variable that is set is used.
_VARIABLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("access_key_id", ("AWS_ACCESS_KEY_ID",)),
    ("secret_access_key", ("AWS_SECRET_ACCESS_KEY",)),
    ("session_token", ("AWS_SESSION_TOKEN",)),
    ("region", ("AWS_REGION", "AWS_DEFAULT_REGION")),
    ("endpoint", ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")),
    ("allow_http", ("AWS_ALLOW_HTTP",)),
)
# Keys of one set: a key of one identity with the token of another is refused by the store.
_CREDENTIALS = ("access_key_id", "secret_access_key", "session_token")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of one call: seconds for each request, number of retries and seconds for all attempts."""

    timeout: float
    connect_timeout: float
    max_retries: int
    retry_timeout: float
    backoff: float

    @property
    def max_backoff(self) -> float:
        return self.backoff * 20

    @classmethod
    def of(cls, options: StorageOptions) -> RetryPolicy:
        """Return the policy of checked options."""
        return cls(
            timeout=_seconds(options, "timeout", "30s"),
            connect_timeout=_seconds(options, "connect_timeout", "5s"),
            max_retries=_count(options, "max_retries", "5"),
            retry_timeout=_seconds(options, "retry_timeout", "60s"),
            backoff=_seconds(options, "retry_backoff", "100ms"),
        )


def s3_options(env: Mapping[str, str]) -> dict[str, str]:
    """Return the storage options that the usual `AWS_*` variables set; empty variables count as unset.

    What they do not set comes from the profile that `AWS_PROFILE` names, credentials as a whole. An endpoint with
    `http://` sets `allow_http`, unless `AWS_ALLOW_HTTP` is set.

    >>> s3_options({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_REGION": ""})
    {'endpoint': 'http://127.0.0.1:9000', 'allow_http': 'true'}
    """
    options: dict[str, str] = {}
    for option, variables in _VARIABLES:
        value = next((env[name] for name in variables if env.get(name)), None)
        if value is not None:
            options[option] = value
    profile = profile_options(env)
    if any(name in options for name in _CREDENTIALS):
        profile = {name: value for name, value in profile.items() if name not in _CREDENTIALS}
    options = {**profile, **options}
    if "allow_http" in options:
        options["allow_http"] = "true" if options["allow_http"].lower() in ("1", "true", "yes") else "false"
    return _with_http(options)


def resolve_options(
    options: StorageOptions | None, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return explicit options, completed with those that the `AWS_*` variables of `environment` set.

    An explicit option wins. Explicit credentials replace those of the environment as a whole. An endpoint with
    `http://` sets `allow_http`, unless it is set. `environment` is by default that of the process.

    >>> resolve_options({"access_key_id": "mine"}, {"AWS_SESSION_TOKEN": "other", "AWS_REGION": "eu-west-1"})
    {'region': 'eu-west-1', 'access_key_id': 'mine'}
    >>> resolve_options({"endpoint": "http://127.0.0.1:9000"}, {})
    {'endpoint': 'http://127.0.0.1:9000', 'allow_http': 'true'}
    """
    explicit = dict(options or {})
    environment = os.environ if environment is None else environment
    found = s3_options(environment)
    if any(name in explicit for name in _CREDENTIALS):
        found = {name: value for name, value in found.items() if name not in _CREDENTIALS}
    if "endpoint" in explicit and not environment.get("AWS_ALLOW_HTTP"):
        # It belongs to the endpoint of the environment.
        found.pop("allow_http", None)
    return _with_http({**found, **explicit})


def check_credentials(options: StorageOptions) -> None:
    """Raise `InvalidInput` if the credentials for S3 must come from a profile that does not have them."""
    check_profile(os.environ, options)


def _with_http(options: dict[str, str]) -> dict[str, str]:
    if "allow_http" not in options and options.get("endpoint", "").lower().startswith("http://"):
        options["allow_http"] = "true"
    return options


def check_options(options: StorageOptions) -> None:
    """Raise `InvalidInput` for an unknown key, which would otherwise be ignored silently, and for a bad value."""
    unknown = sorted(set(options) - set(_LANCE_NAMES))
    if unknown:
        raise InvalidInput(
            f"unknown storage option `{unknown[0]}`",
            details={"known": sorted(_LANCE_NAMES)},
            hint=f"known options: {', '.join(sorted(_LANCE_NAMES))}",
        )
    for name in ("allow_http", "virtual_hosted", "verify_reads"):
        if options.get(name, "true") not in ("true", "false"):
            raise InvalidInput(f'storage option `{name}`: expected true or false, got "{options[name]}"')
    RetryPolicy.of(options)


def lance_options(options: StorageOptions) -> dict[str, str]:
    """Return the options in the form of Lance's `storage_options`.

    >>> lance_options({"endpoint": "http://127.0.0.1:9000", "allow_http": "true", "retry_timeout": "1500ms"})
    {'aws_endpoint': 'http://127.0.0.1:9000', 'allow_http': 'true', 'client_retry_timeout': '2'}
    """
    check_options(options)
    translated = {}
    for option, value in options.items():
        name = _LANCE_NAMES[option]
        if name is not None:
            # Lance takes only this duration as a number of whole seconds.
            whole = option == "retry_timeout"
            translated[name] = str(max(1, round(_seconds(options, option, value)))) if whole else value
    return translated


def _seconds(options: StorageOptions, name: str, default: str) -> float:
    text = options.get(name, default)
    match = _DURATION.match(text)
    if match is None:
        raise InvalidInput(
            f'storage option `{name}`: expected a duration, got "{text}"', hint="write 500ms, 30s or 2m"
        )
    return float(match.group(1)) * _UNITS[match.group(2)]


def _count(options: StorageOptions, name: str, default: str) -> int:
    text = options.get(name, default)
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(f'storage option `{name}`: expected a whole number, got "{text}"')
    return int(text)
