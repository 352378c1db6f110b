"""What stands between a command and the data of others: the line that names the target, and consent."""

from __future__ import annotations

import sys

from omnigraph.cli.render.output import note
from omnigraph.cli.scope import Target
from omnigraph.errors import InvalidInput


def announce(target: Target) -> None:
    """Say which graph is about to be written, unless asked to be quiet."""
    if not target.chosen.quiet:
        where = "served" if target.is_served else f"direct, {'local' if target.is_local else 'remote'}"
        note(f"omnigraph {target.command} → {target.uri} ({where})")


def require_consent(target: Target, *, json: bool) -> None:
    """Go on only if the user agrees to a destructive write to what is not on this machine, or is served.

    `--yes` agrees in advance. On a terminal the user is asked; a program, which `--json` is for, is not.
    """
    if target.is_local or target.chosen.yes:
        return
    if json or sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInput(
            f"`{target.command}` is destructive and {target.uri} is not local: it needs consent",
            hint="pass --yes",
            details={"uri": target.uri},
        )
    if sys.stderr is not None:
        sys.stderr.write(f"`{target.command}` is destructive. Go on with {target.uri}? [y/N] ")
        sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InvalidInput("not confirmed: nothing was changed")
