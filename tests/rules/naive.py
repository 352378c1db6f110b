"""The rules of section 10 once more, row by row over a whole image: slow, obvious and independent of Arrow."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import chain

from tests.catalog.test_identity import catalog_of
from tests.rules.states import Image

CATALOG = catalog_of("""
node P {
  age: I32?
  mail: String? @unique
  role: enum(a, b)?
  w: F64?
  @range(age, 0..9)
  @check(mail, "^[a-z]+$")
  @unique(age, w)
}
node C { name: String @key }
edge K: P -> P @card(1..2) { n: I32?  @unique(src, dst) }
edge J: P -> C @card(0..1) { n: I32? @unique }
""")
ENDS = {"edge:K": ("node:P", "node:P"), "edge:J": ("node:P", "node:C")}
UNIQUES: dict[str, list[tuple[str, ...]]] = {
    "node:P": [("mail",), ("age", "w")],
    "edge:K": [("src", "dst")],
    "edge:J": [("n",)],
}
CARDS: dict[str, tuple[int, int]] = {"edge:K": (1, 2), "edge:J": (0, 1)}

# Who breaks a rule: the table, the id, and what is said about it.
Broken = set[tuple[str, str, str]]
# A value that several rows hold: the table, the columns, and the ids.
Clashes = set[tuple[str, tuple[str, ...], frozenset[str]]]


def broken_rows(image: Image) -> Broken:
    found: Broken = set()
    for id_, row in image.get("node:P", {}).items():
        age, mail, role = row.get("age"), row.get("mail"), row.get("role")
        if age is not None and age < 0:
            found.add(("node:P", id_, f"@range violation on P.age: value {age} < min 0"))
        if age is not None and age > 9:
            found.add(("node:P", id_, f"@range violation on P.age: value {age} > max 9"))
        if mail is not None and not re.search(r"^[a-z]+\Z", mail):
            found.add(
                (
                    "node:P",
                    id_,
                    f"@check violation on P.mail: value '{mail}' does not match pattern '^[a-z]+$'",
                )
            )
        if role not in (None, "a", "b"):
            found.add(("node:P", id_, f"invalid enum value '{role}' for P.role (expected: a, b)"))
    for id_, row in image.get("node:C", {}).items():
        if row.get("name") is None:
            found.add(("node:C", id_, "non-nullable property 'name' has null or invalid values"))
    return found


def clashes(image: Image) -> Clashes:
    found: Clashes = set()
    for key, constraints in UNIQUES.items():
        for columns in constraints:
            holders = defaultdict(set)
            for id_, row in image.get(key, {}).items():
                value = tuple(row.get(name) for name in columns)
                if None not in value:
                    holders[value].add(id_)
            found |= {(key, columns, frozenset(ids)) for ids in holders.values() if len(ids) > 1}
    return found


def unresolved(image: Image) -> Broken:
    found: Broken = set()
    for key, types in ENDS.items():
        for id_, row in image.get(key, {}).items():
            for end, node in zip(("src", "dst"), types, strict=True):
                if row[end] not in image.get(node, {}):
                    found.add((key, id_, f"{end} '{row[end]}' not found in {node.removeprefix('node:')}"))
    return found


def miscounted(image: Image, changed: dict[str, set[str]]) -> Broken:
    """Of the sources whose edges changed, those that exist and have too many or too few."""
    found: Broken = set()
    for key, (least, most) in CARDS.items():
        name = key.removeprefix("edge:")
        for source in changed.get(key, set()):
            count = sum(row["src"] == source for row in image.get(key, {}).values())
            prefix = f"@card violation on edge {name}: source '{source}' has {count} edges"
            if count > most:
                found.add((key, source, f"{prefix} (max {most})"))
            elif count < least:
                found.add((key, source, f"{prefix} (min {least})"))
    return found


def is_valid(image: Image) -> bool:
    """Whether a state could have been committed. Too few edges are no fault of nodes that never had any."""
    sources = {key: {row["src"] for row in image.get(key, {}).values()} for key in CARDS}
    return not any(chain(broken_rows(image), clashes(image), unresolved(image), miscounted(image, sources)))
