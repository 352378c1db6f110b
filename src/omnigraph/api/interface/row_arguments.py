"""The types of the arguments of methods that read or change the rows of one type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

# One row or several, as dicts of properties.
Rows: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]
# One id or several.
Ids: TypeAlias = str | int | Sequence[str | int]
FrameLibrary: TypeAlias = Literal["pandas", "polars", "arrow"]
