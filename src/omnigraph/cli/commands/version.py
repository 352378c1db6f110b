"""`omnigraph version`: print the installed version and the version of its storage format."""

from __future__ import annotations

import typer

from omnigraph import __version__
from omnigraph.cli.render.output import print_line
from omnigraph.protocol.result_bodies import INTERNAL_SCHEMA_VERSION


def version() -> None:
    """Print the version of omnigraph and the version of the storage format."""
    print_line(f"omnigraph {__version__}")
    print_line(f"internal-schema {INTERNAL_SCHEMA_VERSION}")


def print_version_and_exit(requested: bool) -> None:
    """Handle `--version`: print the version before any command is parsed, and exit."""
    if requested:
        version()
        raise typer.Exit()
