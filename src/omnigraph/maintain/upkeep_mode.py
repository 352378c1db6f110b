"""Whether a handle performs upkeep: an argument, or the variable `OMNIGRAPH_UPKEEP` for all handles of a
process."""

from __future__ import annotations

import os
from typing import Final, Literal, TypeAlias

from omnigraph.errors import InvalidInput

UpkeepMode: TypeAlias = Literal["auto", "off"]
VARIABLE: Final = "OMNIGRAPH_UPKEEP"


def resolve_mode(given: UpkeepMode | None) -> UpkeepMode:
    """Return the mode of a handle: the given one, else that of the environment, else ``auto``."""
    text = given or os.environ.get(VARIABLE) or "auto"
    if text == "auto":
        return "auto"
    if text == "off":
        return "off"
    source = "upkeep" if given else VARIABLE
    raise InvalidInput(f"{source}: expected 'auto' or 'off', got {text!r}")
