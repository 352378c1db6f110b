"""Named profiles of the AWS configuration files: static keys, region and endpoint.

`AWS_PROFILE` names a profile in `~/.aws/credentials` and `~/.aws/config`, or in the files that
`AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE` name. Profiles that get their keys elsewhere (single sign-on,
roles, credential processes) are not supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from configparser import ConfigParser, Error
from pathlib import Path

from omnigraph.errors import InvalidInput

_OPTIONS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}


def profile_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the storage options of the profile that `AWS_PROFILE` names; none without a profile.

    Keys in the credentials file win over those in the configuration file.
    """
    name = profile_name(environment)
    if name is None:
        return {}
    found: dict[str, str] = {}
    for path, section in _sections(environment, name):
        for key, value in _read(path).get(section, {}).items():
            if key in _OPTIONS and value:
                found[_OPTIONS[key]] = value
    return found


def profile_name(environment: Mapping[str, str]) -> str | None:
    """Return the name of the profile, or None."""
    return environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or None


def check_profile(environment: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Raise `InvalidInput` if the credentials must come from a profile that has no static keys."""
    name = profile_name(environment)
    if name is None or "access_key_id" in options:
        return
    known = any(section in _read(path) for path, section in _sections(environment, name))
    reason = "has no static keys" if known else "not found"
    raise InvalidInput(
        f"AWS profile '{name}' {reason}",
        details={"profile": name},
        hint="add `aws_access_key_id` and `aws_secret_access_key` to the profile, or set variables with "
        f"`eval $(aws configure export-credentials --profile {name} --format env)`",
    )


def _sections(environment: Mapping[str, str], name: str) -> list[tuple[Path, str]]:
    """Return the files and the section of a profile in each of them; the later one wins."""
    home = environment.get("HOME") or environment.get("USERPROFILE") or ""
    config = environment.get("AWS_CONFIG_FILE") or "~/.aws/config"
    credentials = environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    return [
        (_path(config, home), name if name == "default" else f"profile {name}"),
        (_path(credentials, home), name),
    ]


def _path(text: str, home: str) -> Path:
    return Path(home, text[2:]) if text.startswith("~/") else Path(text)


def _read(path: Path) -> dict[str, dict[str, str]]:
    """Return the sections of a file; none if it does not exist."""
    parser = ConfigParser(interpolation=None, default_section="\0", strict=False)
    try:
        parser.read_string(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, Error) as error:
        raise InvalidInput(f"cannot read the AWS profiles in {path}: {error}") from error
    return {section: dict(parser[section]) for section in parser.sections()}
