"""Secrets of AWS Secrets Manager. The library boto3 finds credentials and region in the usual places.

Needs the extra ``aws``. `AWS_ENDPOINT_URL_SECRETS_MANAGER` sets another endpoint, such as a VPC endpoint.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from omnigraph.errors import InvalidInput
from omnigraph.extras import requires
from omnigraph.server.logs import LOGGER

SECONDS_VARIABLE: Final = "OMNIGRAPH_AWS_SECRET_SECONDS"
_SECONDS: Final = 60.0
_CURRENT: Final = "AWSCURRENT"


def read_secret(name: str) -> str:
    """Return the text of the current version of a secret, given its name or ARN. Raises `InvalidInput`."""
    with _client(name) as client:
        found = client.get_secret_value(SecretId=name)
    text = found.get("SecretString")
    if not isinstance(text, str):
        raise InvalidInput(f"the AWS secret '{name}' is binary; store the JSON object as text")
    return text


def read_secret_version(name: str) -> str | None:
    """Return the id of the current version of a secret. The secret itself is not read. Raises `InvalidInput`."""
    with _client(name) as client:
        versions: Mapping[str, list[str]] = client.describe_secret(SecretId=name).get(
            "VersionIdsToStages", {}
        )
    return next((id_ for id_, stages in versions.items() if _CURRENT in stages), None)


@contextmanager
def _client(name: str) -> Iterator[Any]:
    with requires("aws", "reading tokens from AWS Secrets Manager"):
        from botocore.exceptions import BotoCoreError, ClientError
    try:
        yield _client_of(os.getpid())
    except (BotoCoreError, ClientError) as error:
        raise InvalidInput(
            f"the AWS secret '{name}' cannot be read: {error}",
            hint="check its name, AWS_REGION, and that the role may call secretsmanager:GetSecretValue and "
            "secretsmanager:DescribeSecret",
        ) from None


@cache
def _client_of(_process: int) -> Any:
    """Return the client of this process. A forked process must not use the connections of its parent."""
    with requires("aws", "reading tokens from AWS Secrets Manager"):
        import boto3
    return boto3.session.Session().client("secretsmanager")


@dataclass
class SecretVersion:
    """The version of a secret, read at most once in `seconds`, because every request to AWS costs money."""

    name: str
    seconds: float
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    _version: str | None = None
    _read_at: float | None = None

    def read(self) -> str | None:
        """Return the version as it is known."""
        now = self.clock()
        if self._read_at is None or now - self._read_at >= self.seconds:
            self._read_at = now
            try:
                self._version = read_secret_version(self.name)
            except InvalidInput as error:
                # The server continues with the tokens that it has, and still follows everything else.
                LOGGER.warning("cannot look for new tokens", extra={"fields": {"error": error.message}})
        return self._version


def read_interval(environment: Mapping[str, str]) -> float:
    """Return the number of seconds between two looks at a secret.

    >>> read_interval({}), read_interval({"OMNIGRAPH_AWS_SECRET_SECONDS": "0.5"})
    (60.0, 0.5)
    """
    text = environment.get(SECONDS_VARIABLE, "").strip()
    try:
        seconds = float(text or _SECONDS)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidInput(f"{SECONDS_VARIABLE} must be a number of seconds, got {text!r}")
    return seconds
