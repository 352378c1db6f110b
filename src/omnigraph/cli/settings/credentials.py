"""Bearer tokens: the credentials file, and the token for a server."""

from __future__ import annotations

import configparser
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.api.files.local_files import file_error
from omnigraph.cli.settings.config import settings_directory
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.cli.settings.servers import ServerEntry

ANY_SERVER = "OMNIGRAPH_BEARER_TOKEN"
ONE_SERVER = "OMNIGRAPH_TOKEN_"
_TOKEN = "token"
_PRIVATE_FOLDER = 0o700
_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LARGEST = 1 << 20


def credentials_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the credentials file."""
    return settings_directory(environment) / "credentials"


def token_for(server: ServerEntry, environment: Mapping[str, str]) -> str | None:
    """Return the bearer token for a server, or None.

    The order is: the variable of the server, its section in the credentials file, the variable for all servers. A
    server without a name in the settings uses only the last.
    """
    if server.name is not None:
        variable = ONE_SERVER + server.name.upper().replace("-", "_")
        token = environment.get(variable) or read_tokens(credentials_path(environment)).get(server.name)
        if token:
            return token
    return environment.get(ANY_SERVER) or None


def read_tokens(path: Path) -> dict[str, str]:
    """Return the tokens of a credentials file by server name; a missing file has none.

    Raises `InvalidInput` if group or others have any permission on the file, or if it is not an INI file.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & _GROUP_AND_OTHERS:
                raise InvalidInput(
                    f"{path} is accessible to other users (mode {stat.S_IMODE(mode):04o})",
                    hint=f"restrict it to its owner: chmod 600 {path}",
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
        # The message of the parser is not used: it quotes the line, which may hold a token.
        raise InvalidInput(
            f"{path} is not a valid credentials file", hint="expected [NAME] sections with `token = ...`"
        ) from error
    return {name: value for name in parser.sections() if (value := parser.get(name, _TOKEN, fallback=""))}


def store_token(path: Path, name: str, token: str) -> None:
    """Store the token of a server, replacing an earlier one. The file is replaced atomically, with mode 0600."""
    from omnigraph.client.entry import check_token

    checked = check_token(token)
    assert checked is not None
    _write(path, {**read_tokens(path), check_name(name): checked})


def remove_token(path: Path, name: str) -> None:
    """Remove the token of a server. Idempotent."""
    tokens = read_tokens(path)
    if tokens.pop(check_name(name), None) is not None:
        _write(path, tokens)


def check_name(name: str) -> str:
    """Return the name. Raises `InvalidInput` if it cannot be a section name of the credentials file."""
    if not name.strip() or not name.isprintable() or name != name.strip() or "[" in name or "]" in name:
        raise InvalidInput(f"{name!r} is not a valid server name")
    return name


def _parser() -> configparser.RawConfigParser:
    # No default section, and no interpolation in tokens.
    return configparser.RawConfigParser(default_section="\0", delimiters=("=",), comment_prefixes=("#", ";"))


def _write(path: Path, tokens: Mapping[str, str]) -> None:
    parser = _parser()
    for name, token in sorted(tokens.items()):
        parser[name] = {_TOKEN: token}
    try:
        path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        # mkstemp creates the file with mode 0600, so that other users can never read the token.
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
