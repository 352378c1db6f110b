"""Generated change logs of several node and edge types, and a naive replay of them: one row at a time.

A log is a list of batches that a load accepts. Rows arrive late, so that their order is before that of rows which
came earlier, and again, in the same batch or in a later one. A row has the columns of all types, as a routed table.
"""

from __future__ import annotations

import json
import random
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

SCHEMA: Final = """
node City { name: String @key  kind: String?  size: I64?  seq: I64? }
node Person { name: String @key  age: I32?  size: I64?  seq: I64? }
edge Lives: Person -> City { since: I32?  size: I64?  seq: I64?  @key(src, dst) }
edge Knows: Person -> Person @card(0..2) { since: I32?  size: I64?  seq: I64?  @key(src, dst) }
"""
# No row gives `size`: a merge makes it null and a patch keeps it.
FIELDS: Final = (
    "entity STRING, op STRING, seq LONG, name STRING, kind STRING, age INT, "
    "`from` STRING, `to` STRING, since INT"
)
_PROPERTIES: Final = {
    "City": ("name", "kind", "seq"),
    "Person": ("name", "age", "seq"),
    "Lives": ("since", "seq"),
    "Knows": ("since", "seq"),
}
ENDS: Final = {"Lives": ("Person", "City"), "Knows": ("Person", "Person")}
_NODES: Final = 6
_MOST_FRIENDS: Final = 2

Row: TypeAlias = dict[str, Any]
# Rows by type and id.
State: TypeAlias = dict[tuple[str, str], Row]


class Refused(Exception):
    """The state after a batch breaks a rule."""


def key_of(change: Row) -> tuple[str, str]:
    """The type and the id of the row that a change is about."""
    name = change["entity"]
    ends = (change["from"], change["to"]) if name in ENDS else None
    return name, change["name"] if ends is None else json.dumps(ends, separators=(",", ":"))


def replay(before: State, batch: list[Row], *, is_patch: bool) -> State:
    """The state after a batch. Raises `Refused` if it breaks a rule."""
    after = deepcopy(before)
    written = set()
    for change in sorted(batch, key=lambda item: item["seq"]):
        key = key_of(change)
        if change["seq"] < (before.get(key, {}).get("seq") or 0):
            continue
        written.add(key)
        if change["op"] == "d":
            after.pop(key, None)
            continue
        given = {name: change[name] for name in _PROPERTIES[key[0]]}
        ends = {"from": change["from"], "to": change["to"]} if key[0] in ENDS else {}
        kept = after.get(key, {}) if is_patch else {}
        after[key] = {**kept, **given, **ends}
    gone = {key for key in before if key not in after}
    for (name, id_), row in list(after.items()):
        if name in ENDS and (name, id_) not in written:
            ends_of = zip(ENDS[name], (row["from"], row["to"]), strict=True)
            if any(end in gone for end in ends_of):
                del after[name, id_]
    _check(after)
    return after


def _check(state: State) -> None:
    friends: dict[str, int] = {}
    for (name, _), row in state.items():
        if name in ENDS:
            friends[row["from"]] = friends.get(row["from"], 0) + (name == "Knows")
            if any(end not in state for end in zip(ENDS[name], (row["from"], row["to"]), strict=True)):
                raise Refused
    if any(count > _MOST_FRIENDS for count in friends.values()):
        raise Refused


@dataclass
class ChangeLog:
    """A log made of a seed: its batches, the state before them and the state after each."""

    seed: int
    batches: list[list[Row]] = field(default_factory=list)
    states: list[State] = field(default_factory=list)

    @property
    def is_patch(self) -> bool:
        """Whether the changes patch rows; otherwise they replace them."""
        return self.seed % 2 == 1

    @property
    def effective(self) -> int:
        """The number of batches that change something."""
        return sum(before != after for before, after in zip(self.states, self.states[1:], strict=False))

    def counts(self) -> dict[str, int]:
        """The numbers of rows by operation, and of late and repeated ones."""
        counts = dict.fromkeys(("rows", "inserts", "updates", "deletes", "late", "repeated"), 0)
        newest, seen = 0, set()
        for change in (change for batch in self.batches for change in batch):
            kind = {"c": "inserts", "r": "inserts", "u": "updates", "d": "deletes"}[change["op"]]
            counts["rows"] += 1
            counts[kind] += 1
            counts["repeated"] += change["seq"] in seen
            counts["late"] += change["seq"] < newest and change["seq"] not in seen
            newest = max(newest, change["seq"])
            seen.add(change["seq"])
        return counts

    def write(self, folder: Path) -> None:
        """Write each batch as a file, the later ones with later times."""
        import os

        folder.mkdir()
        for number, batch in enumerate(self.batches):
            path = folder / f"{number:04d}.json"
            path.write_text("".join(f"{json.dumps(change)}\n" for change in batch), encoding="utf-8")
            os.utime(path, (1_750_000_000 + number, 1_750_000_000 + number))


def start_records() -> list[Row]:
    """The records of the graph before the log."""
    data = {"size": 7, "seq": 1}
    return [
        *({"type": "City", "data": {"name": f"c{n}", "kind": "start", **data}} for n in range(2)),
        *({"type": "Person", "data": {"name": f"p{n}", "age": n, **data}} for n in range(3)),
        {"edge": "Lives", "from": "p0", "to": "c0", "data": {"since": 0, **data}},
        {"edge": "Knows", "from": "p0", "to": "p1", "data": {"since": 0, **data}},
    ]


def make_log(seed: int, batches: int, rows: int) -> ChangeLog:
    """Generate a log of so many batches with up to so many rows each."""
    generator = random.Random(seed)
    log = ChangeLog(seed)
    state: State = {}
    for record in start_records():
        data = record["data"]
        if "type" in record:
            state[record["type"], data["name"]] = dict(data)
        else:
            ends = {"from": record["from"], "to": record["to"]}
            state[key_of({"entity": record["edge"], **ends})] = {**ends, **data}
    log.states.append(state)
    earlier: list[Row] = []
    seq = 10
    while len(log.batches) < batches:
        batch: list[Row] = []
        for _ in range(rows):
            seq += 2
            # An odd order is that of a late row: no other row has it.
            late = generator.randrange(9, seq, 2)
            repeated = generator.random() < 0.2 and bool(earlier)
            is_late = generator.random() < 0.25 and all(late != change["seq"] for change in earlier)
            change = generator.choice(earlier) if repeated else _change(generator, late if is_late else seq)
            try:
                after = replay(state, [*batch, change], is_patch=log.is_patch)
            except Refused:
                continue
            batch.append(change)
            earlier.append(change)
        if batch:
            generator.shuffle(batch)
            state = after = replay(state, batch, is_patch=log.is_patch)
            log.batches.append(batch)
            log.states.append(after)
    return log


def _change(generator: random.Random, seq: int) -> Row:
    entity = generator.choice(["City", "Person", "Lives", "Lives", "Knows"])
    nodes = {"City": "c", "Person": "p"}
    row: Row = dict.fromkeys(("name", "kind", "age", "from", "to", "since"))
    row |= {"entity": entity, "op": generator.choice("ccuurd"), "seq": seq}
    if entity in ENDS:
        row["from"], row["to"] = (f"{nodes[end]}{generator.randrange(_NODES)}" for end in ENDS[entity])
    else:
        row["name"] = f"{nodes[entity]}{generator.randrange(_NODES)}"
    if row["op"] != "d":
        values: dict[str, Row] = {
            "City": {"kind": generator.choice([None, "a", "b"])},
            "Person": {"age": seq % 50},
        }
        row |= values.get(entity, {"since": generator.choice([None, seq])})
    return row
