"""The cascade of a quarantine once more, record by record over whole images: slow and obvious, without SQL."""

from __future__ import annotations

from omnigraph.rules.load_mode import WriteMode
from tests.load.test_spilling_load import KEYED, Records, changed
from tests.rules.naive import CARDS, ENDS, UNIQUES
from tests.rules.states import Image, Row

# The positions of records by table.
Left = dict[str, set[int]]


def settled(before: Image, mode: WriteMode, records: Records) -> tuple[Left, bool]:
    """The records that are left out, and whether the others may be loaded.

    The records that break a rule of the first stage with violations are left out together, until none does.
    """
    left: Left = {}
    while True:
        found = at_fault(before, mode, records, left)
        if found is None:
            return left, False
        if not any(found.values()):
            return left, True
        for key, positions in found.items():
            left.setdefault(key, set()).update(positions)


def at_fault(before: Image, mode: WriteMode, records: Records, left: Left) -> Left | None:
    """The records of the first stage with violations: none if no rule is violated, None if none is to blame."""
    kept = {
        key: {at: row for at, row in enumerate(found) if at not in left.get(key, ())}
        for key, found in records.items()
    }
    last = {key: last_records(key, mode, rows) for key, rows in kept.items()}
    after = {key: dict(found) for key, found in before.items()}
    for key, rows in last.items():
        if mode == "overwrite":
            after[key] = {}
        after.setdefault(key, {}).update({row["id"]: row for row in rows.values()})
    for found in (
        {key: repeated(key, kept[key], last[key], stored_rows(key, mode, before)) for key in records},
        {key: not_unique(key, mode, before, last[key]) for key in records},
        {key: unresolved(key, last[key], after) for key in records},
    ):
        if any(found.values()):
            return found
    if mode == "overwrite" and orphaned(after, records):
        return None
    remaining = {key: [row for _, row in sorted(rows.items())] for key, rows in last.items()}
    wrong = miscounted(after, changed(before, after, mode, remaining))
    if not wrong:
        return {}
    found = {key: excess(key, mode, before, last[key], sources) for key, sources in wrong.items()}
    return found if any(found.values()) else None


def last_records(key: str, mode: WriteMode, rows: dict[int, Row]) -> dict[int, Row]:
    if mode != "merge" or key in KEYED:
        return rows
    last = {row["id"]: at for at, row in rows.items()}
    return {at: rows[at] for at in last.values()}


def values_of(row: Row, columns: tuple[str, ...]) -> tuple[object, ...] | None:
    values = tuple(row.get(name) for name in columns)
    return None if None in values else values


def stored_rows(key: str, mode: WriteMode, before: Image) -> dict[str, Row]:
    """The stored rows that return when their records are left out."""
    return before.get(key, {}) if mode == "merge" else {}


def later(
    rows: dict[int, Row],
    columns: tuple[str, ...],
    held: set[tuple[object, ...]],
    stored: dict[str, Row],
) -> set[int]:
    """The records with values that are held, or that an earlier record has or one that has them already."""

    def order(item: tuple[int, Row]) -> tuple[bool, int]:
        at, row = item
        own = stored.get(row["id"])
        return own is None or values_of(own, columns) != values_of(row, columns), at

    found, seen = set(), set(held)
    for at, row in sorted(rows.items(), key=order):
        values = values_of(row, columns)
        if values is not None:
            if values in seen:
                found.add(at)
            seen.add(values)
    return found


def repeated(key: str, kept: dict[int, Row], last: dict[int, Row], stored: dict[str, Row]) -> set[int]:
    if len(last) == len(kept):
        return set()
    return {at for columns in UNIQUES.get(key, []) for at in later(kept, columns, set(), stored)}


def not_unique(key: str, mode: WriteMode, before: Image, rows: dict[int, Row]) -> set[int]:
    stored = stored_rows(key, mode, before)
    found = later(rows, ("id",), set(), stored)
    if mode == "append":
        found |= {at for at, row in rows.items() if row["id"] in before.get(key, {})}
    written = {row["id"] for row in rows.values()}
    for columns in UNIQUES.get(key, []):
        old = before.get(key, {}).items() if mode != "overwrite" else ()
        held = {values for id_, row in old if id_ not in written and (values := values_of(row, columns))}
        found |= later(rows, columns, held, stored)
    return found


def unresolved(key: str, rows: dict[int, Row], after: Image) -> set[int]:
    ends = zip(("src", "dst"), ENDS.get(key, ()), strict=False)
    return {at for end, node in ends for at, row in rows.items() if row[end] not in after.get(node, {})}


def orphaned(after: Image, records: Records) -> bool:
    """Whether committed edges of types that the input does not name have lost a node."""
    return any(
        row[end] not in after.get(node, {})
        for key, types in ENDS.items()
        if key not in records
        for end, node in zip(("src", "dst"), types, strict=True)
        for row in after.get(key, {}).values()
    )


def miscounted(after: Image, sources: dict[str, set[str]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for key, (least, most) in CARDS.items():
        for source in sources.get(key, ()):
            count = sum(row["src"] == source for row in after.get(key, {}).values())
            if not least <= count <= most:
                found.setdefault(key, {})[source] = count
    return found


def excess(
    key: str, mode: WriteMode, before: Image, rows: dict[int, Row], sources: dict[str, int]
) -> set[int]:
    least, most = CARDS[key]
    old = before.get(key, {}) if mode == "merge" else {}
    found: set[int] = set()
    for source, count in sources.items():
        own = {at: row for at, row in rows.items() if row["src"] == source}
        if count < least:
            moved = {at for at, row in rows.items() if old.get(row["id"], row)["src"] == source}
            found |= own.keys() | {at for at in moved if rows[at]["src"] != source}
            continue

        def is_new(at: int, of: str = source) -> bool:
            return rows[at]["id"] not in old or old[rows[at]["id"]]["src"] != of

        order = sorted(own, key=lambda at: (is_new(at), at))
        found |= set(order[max(0, most - (count - len(own))) :])
    return found
