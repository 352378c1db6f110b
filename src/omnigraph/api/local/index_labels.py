"""The index labels of the rows of a pandas DataFrame, for errors about these rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from omnigraph.errors import ConstraintViolation, InvalidInput

_NAMED: Final = 3


def name_index_labels(error: InvalidInput | ConstraintViolation, source: Any) -> None:
    """Add the index labels of the rows that an error is about: to its violations as `index`, and to its hint.

    Does nothing if the rows are not those of a DataFrame, or if its labels are their positions.
    """
    frames = (
        {name: rows for name, rows in source.items() if _has_labels(rows)}
        if isinstance(source, Mapping)
        else {}
    )
    if not frames:
        return
    found: list[str] = []
    listed = []
    for item in error.violations:
        label = _label(frames, str(item.get("type", "")), item)
        listed.append(item if label is None else {**item, "index": label[1]})
        found += [] if label is None else [f"{label[0]} has the index {label[1]!r}"]
    error.violations = tuple(listed)
    location = error.location
    if not found and location is not None and location.row is not None:
        label = _label(frames, location.type or "", {"row": location.row})
        found += [] if label is None else [f"{label[0]} has the index {label[1]!r}"]
    if found:
        more = ", …" if len(found) > _NAMED else ""
        labels = ", ".join(found[:_NAMED]) + more
        error.hint = f"{error.hint}; {labels}" if error.hint else labels


def _has_labels(rows: Any) -> bool:
    """Return whether rows are a DataFrame of pandas whose index is not the positions of the rows."""
    kind = type(rows)
    if kind.__module__.partition(".")[0] != "pandas" or kind.__name__ != "DataFrame":
        return False
    return list(rows.index) != list(range(len(rows)))


def _label(frames: Mapping[str, Any], type_name: str, item: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return the place that a message names, such as ``row 2``, and the label of that row."""
    frame = frames.get(type_name.rpartition(":")[2], frames.get(type_name))
    for unit in ("row", "line"):
        number = item.get(unit)
        if frame is not None and isinstance(number, int) and 1 <= number <= len(frame):
            label = frame.index[number - 1]
            # A number of numpy prints as its type and value.
            return f"{unit} {number}", label.item() if hasattr(label, "item") else label
    return None
