"""The operator's tokens: a file that nobody else can read, and which token a server gets."""

from __future__ import annotations

import configparser
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.api.files import file_error
from omnigraph.cli.settings.config import home_of
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.cli.settings.servers import Server

ANY_SERVER = "OMNIGRAPH_BEARER_TOKEN"
ONE_SERVER = "OMNIGRAPH_TOKEN_"
_TOKEN = "token"
_PRIVATE_FOLDER = 0o700
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LARGEST = 1 << 20


def credentials_path(environment: Mapping[str, str]) -> Path:
    """Where the tokens are."""
    return home_of(environment) / "credentials"


def token_for(server: Server, environment: Mapping[str, str]) -> str | None:
    """The token for a server: its variable, its section of the file, or the variable for every server.

    Only the last is for a server that the operator has no name for.
    """
    if server.name is not None:
        variable = ONE_SERVER + server.name.upper().replace("-", "_")
        token = environment.get(variable) or read_tokens(credentials_path(environment)).get(server.name)
        if token:
            return token
    return environment.get(ANY_SERVER) or None


def read_tokens(path: Path) -> dict[str, str]:
    """The tokens of a file by server; none when there is no file.

    Raises `InvalidInput` when group or others may do anything with the file, and when it is no INI.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & _OF_OTHERS:
                raise InvalidInput(
                    f"{path} may be used by others than its owner (mode {stat.S_IMODE(mode):04o})",
                    hint=f"chmod 600 {path}",
                    details={"path": str(path)},
                )
            data = file.read(_LARGEST)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise file_error("read", str(path), error) from error
    parser = _parser()
    try:
        parser.read_string(data.decode("utf-8"), str(path))
    except (configparser.Error, UnicodeDecodeError) as error:
        # What the parser says would show the line, which may be a token.
        raise InvalidInput(
            f"{path} is not a file of credentials", hint="[NAME] and token = ... below"
        ) from error
    return {name: value for name in parser.sections() if (value := parser.get(name, _TOKEN, fallback=""))}


def store_token(path: Path, name: str, token: str) -> None:
    """Keep the token of a server in place of what was kept for it; the file appears whole, and private."""
    from omnigraph.client.entry import check_token

    checked = check_token(token)
    assert checked is not None
    _write(path, {**read_tokens(path), check_name(name): checked})


def remove_token(path: Path, name: str) -> None:
    """Forget the token of a server. Nothing is written when there is none."""
    tokens = read_tokens(path)
    if tokens.pop(check_name(name), None) is not None:
        _write(path, tokens)


def check_name(name: str) -> str:
    """A name that a server can have in a file of credentials, or `InvalidInput`."""
    if not name.strip() or not name.isprintable() or name != name.strip() or "[" in name or "]" in name:
        raise InvalidInput(f"{name!r} cannot be the name of a server")
    return name


def _parser() -> configparser.RawConfigParser:
    # No section is special, and nothing in a token stands for something else.
    return configparser.RawConfigParser(default_section="\0", delimiters=("=",), comment_prefixes=("#", ";"))


def _write(path: Path, tokens: Mapping[str, str]) -> None:
    parser = _parser()
    for name, token in sorted(tokens.items()):
        parser[name] = {_TOKEN: token}
    try:
        path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        # Made for its owner alone, so that a token is never where others could read it.
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        draft = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                parser.write(file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise file_error("write", str(path), error) from error
