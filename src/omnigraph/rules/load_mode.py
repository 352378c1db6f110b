"""Load modes: append, merge and overwrite."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

LoadMode: TypeAlias = Literal["append", "merge", "overwrite"]
LOAD_MODES: tuple[LoadMode, ...] = get_args(LoadMode)
