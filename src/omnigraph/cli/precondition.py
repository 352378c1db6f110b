"""What a write says that was to happen only if its branch stood at a commit, and did not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from omnigraph.cli.render.output import complain, say_json
from omnigraph.errors import PreconditionFailed

# A lost precondition is nobody's mistake: scripts tell it from a failure by this code.
PRECONDITION_LOST = 4


@contextmanager
def told_precondition(*, json: bool) -> Iterator[None]:
    """A lost precondition ends the command as one readable block, or as JSON on stdout."""
    try:
        yield
    except PreconditionFailed as error:
        if json:
            say_json({"error": error.message, "precondition_failure": dict(error.details)})
        else:
            complain(error)
        raise typer.Exit(PRECONDITION_LOST) from error
