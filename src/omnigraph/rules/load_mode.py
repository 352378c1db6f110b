"""Load modes: append, merge, patch, delete and overwrite."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

LoadMode: TypeAlias = Literal["append", "merge", "patch", "delete", "overwrite"]
LOAD_MODES: tuple[LoadMode, ...] = get_args(LoadMode)
# How the final rows of a load enter their tables. Patches and deletes are resolved to final rows first.
WriteMode: TypeAlias = Literal["append", "merge", "overwrite"]
