"""`omnigraph login` and `omnigraph logout`: store and remove the bearer token of a server."""

from __future__ import annotations

import os
import sys
from typing import Annotated, TypeAlias

import typer

from omnigraph.cli.render.output import print_json, print_line, print_note
from omnigraph.cli.settings.config import load_config
from omnigraph.cli.settings.credentials import check_name, credentials_path, remove_token, store_token
from omnigraph.cli.target import JsonOption
from omnigraph.errors import InvalidInput

NameArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the server in your settings.")
]


def login(
    ctx: typer.Context,
    name: NameArgument,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TOKEN",
            help="Bearer token; default: read one line from stdin.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Store the bearer token of a server in the credentials file, which only you can read."""
    check_name(name)
    declared = name in load_config(ctx).servers
    path = credentials_path(os.environ)
    store_token(path, name, (_read_token(name) if token is None else token).strip())
    if not declared:
        print_note(
            f"note: no server named '{name}' in your settings; add it under servers: to use this token"
        )
    if json:
        print_json({"server": name, "credentials_path": str(path), "declared": declared})
    else:
        print_line(f"stored credential for '{name}' in {path}")


def logout(name: NameArgument, json: JsonOption = False) -> None:
    """Remove the stored token of a server. Succeeds if there is none."""
    path = credentials_path(os.environ)
    remove_token(path, name)
    if json:
        print_json({"server": name, "credentials_path": str(path)})
    else:
        print_line(f"removed credential for '{name}' from {path}")


def _read_token(name: str) -> str:
    if sys.stdin is None:
        raise InvalidInput("no token given", hint="pass --token, or one line on stdin")
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass(f"token for '{name}': ", sys.stderr)
    return sys.stdin.readline()
