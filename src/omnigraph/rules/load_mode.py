"""The arguments of a load that are one of a few words."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

LoadMode: TypeAlias = Literal["append", "merge", "patch", "delete", "overwrite"]
LOAD_MODES: tuple[LoadMode, ...] = get_args(LoadMode)
# How the final rows of a load enter their tables. Patches and deletes are resolved to final rows first.
WriteMode: TypeAlias = Literal["append", "merge", "overwrite"]
# When a large load is indexed: in its commit, or by the next optimize.
IndexTime: TypeAlias = Literal["now", "later"]
