"""Resolutions of merge conflicts: a side or a value for each conflict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from omnigraph.errors import InvalidInput
from omnigraph.merge.conflicts import MergeConflict
from omnigraph.merge.merge_base import SIDES, MergeSide

# A side for all conflicts, or by conflict id a side or {"value": ...}.
Resolve: TypeAlias = str | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ResolvedValue:
    """A value that replaces those of both sides."""

    value: Any


@dataclass(frozen=True, slots=True)
class Resolutions:
    """A side for all conflicts, and a side or a value for single ones."""

    default: MergeSide | None = None
    by_id: Mapping[str, MergeSide | ResolvedValue] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set, compare=False, repr=False)

    @classmethod
    def of(cls, resolve: Resolve) -> Resolutions:
        """Check and convert the argument of a merge: a side, or a mapping of conflict ids to resolutions.

        The id ``*`` stands for every conflict that is not named.

        >>> Resolutions.of({"4be2": "theirs", "*": "ours"}).default
        'ours'
        """
        if resolve is None:
            return cls()
        if isinstance(resolve, str):
            return cls(default=_check_side("the resolution", resolve))
        if not isinstance(resolve, Mapping):
            raise InvalidInput(
                "a resolution must be 'ours', 'theirs', or a mapping of conflict ids to resolutions"
            )
        by_id = {id_: _check_resolution(id_, item) for id_, item in resolve.items()}
        default = by_id.pop("*", None)
        if isinstance(default, ResolvedValue):
            raise InvalidInput(
                "the resolution of '*' must be 'ours' or 'theirs', not a value",
                hint="give each conflict its own value by its id",
            )
        return cls(default, by_id)

    def resolve(self, conflict: MergeConflict) -> MergeSide | ResolvedValue | None:
        """Return the resolution of a conflict, or None."""
        self._used.add(conflict.id)
        resolution = self.by_id.get(conflict.id, self.default)
        if isinstance(resolution, ResolvedValue) and not conflict.takes_value:
            raise InvalidInput(
                f"conflict {conflict.id} ({conflict.kind}) concerns a whole entity and takes no value",
                details={"conflict": conflict.to_json()},
                hint="resolve it with 'ours' or 'theirs'",
            )
        return resolution

    def check_ids(self) -> None:
        """Raise `InvalidInput` for an id that no conflict has had.

        A mistyped id must not leave its conflict to the default.
        """
        unknown = self.unknown_ids()
        if unknown:
            raise InvalidInput(
                f"this merge has no conflict {', '.join(unknown)}",
                details={"unknown_conflicts": unknown},
                hint="list the conflicts with a dry run; the id of a conflict changes with its values",
            )

    def unknown_ids(self) -> list[str]:
        """Return the ids that no conflict has had so far."""
        return sorted(self.by_id.keys() - self._used)


def _check_resolution(id_: str, resolution: Any) -> MergeSide | ResolvedValue:
    if isinstance(resolution, Mapping) and set(resolution) == {"value"}:
        return ResolvedValue(resolution["value"])
    if isinstance(resolution, str):
        return _check_side(f"the resolution of conflict {id_}", resolution)
    raise InvalidInput(f"the resolution of conflict {id_} must be 'ours', 'theirs' or {{\"value\": ...}}")


def _check_side(subject: str, text: str) -> MergeSide:
    for side in SIDES:
        if text == side:
            return side
    raise InvalidInput(f"{subject} must be 'ours' or 'theirs', got '{text}'")
