"""`omnigraph version`: print the installed version and the version of its storage format."""

from __future__ import annotations

from omnigraph import __version__
from omnigraph.cli.failures import reported_failures
from omnigraph.cli.render.output import print_line


def version() -> None:
    """Print the version of omnigraph and the version of the storage format that it writes."""
    from omnigraph.graph import format_version

    print_line(f"omnigraph {__version__}")
    print_line(f"internal-schema {format_version.CURRENT}")


def main() -> None:
    """Run `omnigraph version` without the parser of the command line."""
    with reported_failures():
        version()
