"""The progress callback of long operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

# Called with the name of a stage and the number of rows that the stage has processed so far.
Progress: TypeAlias = Callable[[str, int], None]
