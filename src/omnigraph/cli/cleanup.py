"""`omnigraph cleanup`: give back the space of old versions."""

from __future__ import annotations

import typer


def cleanup(ctx: typer.Context) -> None:
    """Stub."""
