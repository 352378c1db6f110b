"""A graph of every property type, in several fragments with deleted rows, and ways to look at its exports."""

from __future__ import annotations

import json
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import omnigraph as og

SCHEMA = """
node Thing {
  name: String @key
  flag: Bool?
  small: I32?
  big: I64?
  count: U32?
  large: U64?
  ratio: F32?
  exact: F64?
  day: Date?
  moment: DateTime?
  kind: enum(red, green)?
  place: Vector(3)?
  data: Blob?
  tags: [String]?
  days: [Date]?
  moments: [DateTime]?
  sizes: [U64]?
  ratios: [F32]?
}
node Note { text: String }
node Empty { name: String @key }
edge Likes: Thing -> Thing { since: Date?  weight: F64? }
edge About: Note -> Thing
edge Never: Thing -> Empty
"""
# A base of external blobs, with this file as an object.
EXTERNAL = (f"{Path(__file__).parent.as_uri()}/",)
DELETE = "query drop($n: String) { delete Thing where name = $n }"
# Control characters, quotes and a line separator that JSON leaves alone.
ODD = 'a"b\\c\n\r\t\x00\x1f\x7f\u2028 \u00e9\U0001f600'


def thing(number: int) -> dict[str, Any]:
    """A row; every third has no value but its key."""
    if number % 3 == 0:
        return {"name": f"t{number:03}"}
    blob = f"{EXTERNAL[0]}exports.py" if number % 2 else "base64:AAEC/w=="
    return {
        "name": f"t{number:03}",
        "flag": number % 2 == 0,
        "small": -number,
        "big": 2**63 - 1 - number,
        "count": 2**32 - 1,
        "large": 2**64 - 1 - number,
        "ratio": 0.1 * number,
        "exact": 1e300 / number,
        "day": -number * 1_000,
        "moment": 1_700_000_000_123 * (-1) ** number,
        "kind": "red",
        "place": [0.1, -2.0, number],
        "data": blob,
        "tags": [] if number % 5 == 0 else [ODD, "", str(number)],
        "days": ["1969-12-31", number],
        "moments": [-1, number],
        "sizes": [2**64 - 1, 0],
        "ratios": [0.1, 3e38],
    }


def fill(graph: og.Graph) -> str:
    """Two loads, then deletions on `main` and more rows on the branch `more`; the commit of the first load."""
    first = graph.load({"Thing": [thing(number) for number in range(40)]}).commit
    assert first is not None
    notes = [{"id": f"n{number}", "text": f"{ODD}{number}"} for number in range(10)]
    likes = [{"from": f"t{number:03}", "to": f"t{number + 1:03}", "since": number} for number in range(1, 60)]
    about = [{"from": f"n{number}", "to": f"t{number:03}"} for number in range(1, 10)]
    rows = {"Thing": [thing(number) for number in range(40, 70)], "Note": notes}
    graph.load({**rows, "Likes": likes, "About": about})
    graph.branches.create("more")
    graph.load({"Thing": [thing(number) for number in range(70, 75)]}, branch="more")
    for number in (0, 8, 69):
        graph.mutate(DELETE, {"n": f"t{number:03}"})
    snapshot = graph.snapshot()
    pin = snapshot.pin("node:Thing")
    fragments = snapshot.tables.open(pin.path, pin.version).get_fragments()
    assert len(fragments) > 1
    assert any(fragment.metadata.deletion_file is not None for fragment in fragments)
    return first.id


def text_of(graph: og.Graph, **state: Any) -> str:
    """Everything in a state, in the order that only depends on it."""
    written = StringIO()
    graph.export(written, **state)
    return written.getvalue()


def files_of(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def source_of(folder: Path | str, form: str, types: set[str] | None = None) -> Any:
    """What loads an export back."""
    if form == "ndjson":
        return str(folder)
    keys = {"Thing": "nodes", "Note": "nodes", "Empty": "nodes", "Likes": "edges", "About": "edges"}
    keys["Never"] = "edges"
    return {
        name: f"{str(folder).rstrip('/')}/{group}/{name}/"
        for name, group in keys.items()
        if types is None or name in types
    }


def rows_in(folder: Path, form: str) -> dict[str, Counter[str]]:
    """The rows of every type in an export, however they are spread over files."""
    found: dict[str, Counter[str]] = {}
    for name in files_of(folder):
        if form == "ndjson" and name.endswith(".ndjson"):
            lines = (folder / name).read_text(encoding="utf-8").split("\n")[:-1]
            kind, type_name, _ = name.split("-")
            assert all(json.loads(line)["type" if kind == "node" else "edge"] == type_name for line in lines)
            found.setdefault(f"{kind}:{type_name}", Counter()).update(lines)
        if form == "parquet" and name.endswith(".parquet"):
            group, type_name, _ = name.split("/")
            table: pa.Table = pq.read_table(folder / name, partitioning=None)
            found.setdefault(f"{group[:-1]}:{type_name}", Counter()).update(map(repr, table.to_pylist()))
    return found
