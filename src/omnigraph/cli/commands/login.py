"""`omnigraph login` and `omnigraph logout`: tokens of servers, kept for later commands."""

from __future__ import annotations

import os
import sys
from typing import Annotated, TypeAlias

import typer

from omnigraph.cli.render.output import note, say, say_json
from omnigraph.cli.scope import JsonOption
from omnigraph.cli.settings.config import config_of
from omnigraph.cli.settings.credentials import check_name, credentials_path, remove_token, store_token
from omnigraph.errors import InvalidInput

NameArgument: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The server, by its name.")]


def login(
    ctx: typer.Context,
    name: NameArgument,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="TOKEN", help="The token; else one line of stdin is.", show_default=False
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Keep the token of a server in a file that only you can read."""
    check_name(name)
    declared = name in config_of(ctx).servers
    path = credentials_path(os.environ)
    store_token(path, name, (_ask(name) if token is None else token).strip())
    if not declared:
        note(f"note: no server is called '{name}' in your settings; add it under servers: to use this token")
    if json:
        say_json({"server": name, "credentials_path": str(path), "declared": declared})
    else:
        say(f"stored credential for '{name}' in {path}")


def logout(name: NameArgument, json: JsonOption = False) -> None:
    """Forget the token of a server. Nothing happens when there is none."""
    path = credentials_path(os.environ)
    remove_token(path, name)
    if json:
        say_json({"server": name, "credentials_path": str(path)})
    else:
        say(f"removed credential for '{name}' from {path}")


def _ask(name: str) -> str:
    if sys.stdin is None:
        raise InvalidInput("no token given", hint="pass --token, or one line on stdin")
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass(f"token for '{name}': ", sys.stderr)
    return sys.stdin.readline()
