"""The exit code and output of a write whose `--if-commit` precondition failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from omnigraph.cli.render.output import print_error, print_json
from omnigraph.errors import PreconditionFailed

# Distinct from a failure, so that a script can read the branch again and retry.
PRECONDITION_LOST = 4


@contextmanager
def report_lost_precondition(*, json: bool) -> Iterator[None]:
    """Print `PreconditionFailed` on stderr, or as JSON on stdout, and exit with `PRECONDITION_LOST`."""
    try:
        yield
    except PreconditionFailed as error:
        if json:
            print_json({"error": error.message, "precondition_failure": dict(error.details)})
        else:
            print_error(error)
        raise typer.Exit(PRECONDITION_LOST) from error
