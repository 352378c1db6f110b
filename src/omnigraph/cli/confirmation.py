"""Write safety: the line that names the graph before a write, and the confirmation of destructive writes."""

from __future__ import annotations

import sys

from omnigraph.cli.render.output import print_note
from omnigraph.cli.target import GraphTarget
from omnigraph.errors import InvalidInput


def announce(target: GraphTarget) -> None:
    """Print the graph that is about to be written on stderr, unless `--quiet` is set."""
    if not target.chosen.quiet:
        where = "served" if target.is_served else f"direct, {'local' if target.is_local else 'remote'}"
        print_note(f"omnigraph {target.command} → {target.uri} ({where})")


def require_consent(target: GraphTarget, *, json: bool) -> None:
    """Require confirmation of a destructive write to a graph that is not local.

    `--yes` confirms. Otherwise the user is prompted on a terminal. Raises `InvalidInput` if the user declines, if
    stdin is not a terminal, and with `--json`.
    """
    if target.is_local or target.chosen.yes:
        return
    if json or sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInput(
            f"`{target.command}` is destructive and {target.uri} is not local: confirmation required",
            hint="pass --yes to confirm",
            details={"uri": target.uri},
        )
    if sys.stderr is not None:
        sys.stderr.write(f"`{target.command}` is destructive. Continue with {target.uri}? [y/N] ")
        sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InvalidInput("not confirmed: nothing was changed")
