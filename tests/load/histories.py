"""Generated change histories, and a naive replay of them: row by row over a whole image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.rules import naive
from tests.rules.naive import ENDS
from tests.rules.states import Image, Row

_FULL = {
    "node:P": ("age", "mail", "w"),
    "node:C": ("name",),
    "edge:K": ("src", "dst", "n"),
    "edge:J": ("src", "dst", "n"),
}


@dataclass(frozen=True)
class Change:
    """One change of a row: insert, replace, patch or delete, with its place in the source's order."""

    key: str
    op: str
    seq: int
    row: Row

    def record(self) -> dict[str, Any]:
        """Return the change as a graph record with the fields ``op`` and ``seq``."""
        kind, _, name = self.key.partition(":")
        ends = {
            end: self.row[column] for end, column in (("from", "src"), ("to", "dst")) if column in self.row
        }
        data = {column: value for column, value in self.row.items() if column not in ("src", "dst")}
        tag = "type" if kind == "node" else "edge"
        return {tag: name, **ends, "op": self.op, "seq": self.seq, "data": data}


def people(number: int) -> str:
    return f"p{number}"


_ids = {
    "node:P": st.integers(0, 3).map(people),
    "node:C": st.integers(0, 2).map(lambda number: f"c{number}"),
    "edge:K": st.integers(0, 3).map(lambda number: f"k{number}"),
    "edge:J": st.integers(0, 2).map(lambda number: f"j{number}"),
}
_values = {
    "age": st.sampled_from([None, None, 1, 2, 12]),
    "mail": st.sampled_from([None, "a", "b", "c"]),
    "w": st.sampled_from([None, 0.0, -0.0, 0.5]),
    "n": st.sampled_from([None, None, 1, 2]),
}


@st.composite
def changes(draw: st.DrawFn, *, is_patch: bool) -> Change:
    """A change of a few possible rows, with repeated and late orders."""
    key = draw(st.sampled_from(sorted(_FULL)))
    id_ = draw(_ids[key])
    seq = draw(st.integers(0, 5))
    op = draw(st.sampled_from("IUUcurDd"))
    row: Row = {"id": id_}
    if op in "Dd":
        return Change(key, op, seq, row)
    for name in _FULL[key]:
        if is_patch and draw(st.booleans()) and name != "name":
            continue
        if name == "name":
            row[name] = id_
        elif name in ("src", "dst"):
            row[name] = draw(_ids[ENDS[key][name == "dst"]])
        else:
            row[name] = draw(_values[name])
    return Change(key, op, seq, row)


class Refused(Exception):
    """The resulting state breaks a rule."""


def replay(
    before: Image, history: list[Change], *, is_patch: bool
) -> tuple[Image, dict[str, dict[str, int]]]:
    """Return the state after a load of these changes, and the counts of rows by table; raise `Refused`."""
    after = {key: {id_: dict(row) for id_, row in rows.items()} for key, rows in before.items()}
    by_row: dict[tuple[str, str], list[Change]] = {}
    for change in sorted(history, key=lambda item: item.seq):
        by_row.setdefault((change.key, change.row["id"]), []).append(change)
        if naive.broken_rows({change.key: {"": {"name": "c", **change.row}}}):
            raise Refused
    for (key, id_), items in by_row.items():
        state: Row | None = before.get(key, {}).get(id_)
        for change in items:
            if change.op in "Dd":
                state = None
            else:
                kept = {} if state is None or not is_patch else state
                state = {**dict.fromkeys(_FULL[key]), **kept, **change.row}
        if state is None:
            after[key].pop(id_, None)
        else:
            after[key][id_] = state
    written = {key: {id_ for table, id_ in by_row if table == key and id_ in after[key]} for key in after}
    for key, ends in ENDS.items():
        for end, node in zip(("src", "dst"), ends, strict=True):
            gone = set(before[node]) - set(after[node])
            for id_, row in list(after[key].items()):
                if row[end] in gone and id_ not in written[key]:
                    del after[key][id_]
    _check(before, after)
    return after, _affected(before, after)


def _check(before: Image, after: Image) -> None:
    incomplete = any(
        row[end] is None for key in ENDS for row in after[key].values() for end in ("src", "dst")
    )
    if incomplete or naive.broken_rows(after) or naive.clashes(after) or naive.unresolved(after):
        raise Refused
    sources = {}
    for key, (source, _) in ENDS.items():
        touched = {
            row["src"]
            for old, new in ((before, after), (after, before))
            for id_, row in old[key].items()
            if new[key].get(id_) != row
        }
        sources[key] = touched & set(after[source])
    if naive.miscounted(after, sources):
        raise Refused


def _affected(before: Image, after: Image) -> dict[str, dict[str, int]]:
    counts = {}
    for key, rows in after.items():
        old = before[key]
        counts[key] = {
            "inserted": len(rows.keys() - old.keys()),
            "updated": sum(exact(row) != exact(old[id_]) for id_, row in rows.items() if id_ in old),
            "deleted": len(old.keys() - rows.keys()),
        }
    return {key: found for key, found in counts.items() if any(found.values())}


def exact(row: Row) -> dict[str, str]:
    """The values of a row without nulls, as texts that tell the two zeros apart."""
    return {name: repr(value) for name, value in row.items() if value is not None}
