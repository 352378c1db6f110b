"""Load modes: how the rows of a load meet the rows that are committed."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

LoadMode: TypeAlias = Literal["append", "merge", "overwrite"]
LOAD_MODES: tuple[LoadMode, ...] = get_args(LoadMode)
