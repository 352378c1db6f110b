"""`omnigraph version`: what is installed, and which storage format it writes."""

from __future__ import annotations

import typer

from omnigraph import __version__
from omnigraph.cli.render.output import say
from omnigraph.protocol.result_bodies import INTERNAL_SCHEMA_VERSION


def version() -> None:
    """Print the version, and the version of the storage format."""
    say(f"omnigraph {__version__}")
    say(f"internal-schema {INTERNAL_SCHEMA_VERSION}")


def print_version_and_exit(wanted: bool) -> None:
    """The `--version` option: what `version` prints, before any command is looked at."""
    if wanted:
        version()
        raise typer.Exit()
