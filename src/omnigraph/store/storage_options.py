"""What storage needs to know besides the address: credentials, endpoint, timeouts and retries.

Options are a flat mapping of strings, so that they travel unchanged to other processes and into Spark tasks.
This module and everything else in `store` takes them as an argument and reads no environment; a surface
collects the environment once with `s3_options(os.environ)`. The native libraries below do look at `AWS_*`
variables of their own accord for what the mapping leaves open; what it states always wins.

| key | meaning | default |
|---|---|---|
| `access_key_id`, `secret_access_key`, `session_token` | credentials | the platform's own |
| `region` | region to sign for | `us-east-1` |
| `endpoint` | URL of an S3-compatible service | AWS |
| `allow_http` | `true` permits an endpoint without TLS | `false` |
| `virtual_hosted` | `true` puts the bucket into the host name | `false` |
| `timeout`, `connect_timeout` | limits of one request: `500ms`, `30s`, `2m` | `30s`, `5s` |
| `max_retries`, `retry_timeout` | limits of all attempts at one call, local locks included | `5`, `60s` |
| `retry_backoff` | pause before the first retry; it doubles, up to 20 times this | `100ms` |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from omnigraph.errors import InvalidInput

__all__ = ["RetryPolicy", "StorageOptions", "check_options", "lance_options", "s3_options"]

StorageOptions: TypeAlias = Mapping[str, str]

# Each option by the name that Lance has for it; what Lance cannot be told is None.
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
}
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m)$")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}

# The first variable that is set wins.
_VARIABLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("access_key_id", ("AWS_ACCESS_KEY_ID",)),
    ("secret_access_key", ("AWS_SECRET_ACCESS_KEY",)),
    ("session_token", ("AWS_SESSION_TOKEN",)),
    ("region", ("AWS_REGION", "AWS_DEFAULT_REGION")),
    ("endpoint", ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")),
    ("allow_http", ("AWS_ALLOW_HTTP",)),
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The bounds of one call: seconds for a request, attempts and seconds for all of them."""

    timeout: float
    connect_timeout: float
    max_retries: int
    retry_timeout: float
    backoff: float

    @property
    def longest_pause(self) -> float:
        return self.backoff * 20

    @classmethod
    def of(cls, options: StorageOptions) -> RetryPolicy:
        """The policy that checked options ask for."""
        return cls(
            timeout=_seconds(options, "timeout", "30s"),
            connect_timeout=_seconds(options, "connect_timeout", "5s"),
            max_retries=_count(options, "max_retries", "5"),
            retry_timeout=_seconds(options, "retry_timeout", "60s"),
            backoff=_seconds(options, "retry_backoff", "100ms"),
        )


def s3_options(env: Mapping[str, str]) -> dict[str, str]:
    """The storage options that the usual `AWS_*` variables ask for; empty variables count as unset.

    An endpoint that says `http://` is taken at its word unless `AWS_ALLOW_HTTP` forbids it.

    >>> s3_options({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_REGION": ""})
    {'endpoint': 'http://127.0.0.1:9000', 'allow_http': 'true'}
    """
    found: dict[str, str] = {}
    for option, variables in _VARIABLES:
        value = next((env[name] for name in variables if env.get(name)), None)
        if value is not None:
            found[option] = value
    if "allow_http" in found:
        found["allow_http"] = "true" if found["allow_http"].lower() in ("1", "true", "yes") else "false"
    elif found.get("endpoint", "").lower().startswith("http://"):
        found["allow_http"] = "true"
    return found


def check_options(options: StorageOptions) -> None:
    """Refuse what cannot be understood: an unknown key would otherwise be silently without effect."""
    unknown = sorted(set(options) - set(_LANCE_NAMES))
    if unknown:
        raise InvalidInput(f"unknown storage option `{unknown[0]}`", details={"known": sorted(_LANCE_NAMES)})
    for name in ("allow_http", "virtual_hosted"):
        if options.get(name, "true") not in ("true", "false"):
            raise InvalidInput(f"storage option `{name}` is `{options[name]}`, not true or false")
    RetryPolicy.of(options)


def lance_options(options: StorageOptions) -> dict[str, str]:
    """The same options as Lance's `storage_options`.

    >>> lance_options({"endpoint": "http://127.0.0.1:9000", "allow_http": "true", "retry_timeout": "1500ms"})
    {'aws_endpoint': 'http://127.0.0.1:9000', 'allow_http': 'true', 'client_retry_timeout': '2'}
    """
    check_options(options)
    translated = {}
    for option, value in options.items():
        name = _LANCE_NAMES[option]
        if name is not None:
            # Lance counts this one, and only this one, in whole seconds.
            whole = option == "retry_timeout"
            translated[name] = str(max(1, round(_seconds(options, option, value)))) if whole else value
    return translated


def _seconds(options: StorageOptions, name: str, default: str) -> float:
    text = options.get(name, default)
    match = _DURATION.match(text)
    if match is None:
        raise InvalidInput(
            f"storage option `{name}` is `{text}`, not a duration", hint="write 500ms, 30s or 2m"
        )
    return float(match.group(1)) * _UNITS[match.group(2)]


def _count(options: StorageOptions, name: str, default: str) -> int:
    text = options.get(name, default)
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(f"storage option `{name}` is `{text}`, not a count")
    return int(text)
