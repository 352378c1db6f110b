"""Random small graphs over a few rich schemas: parallel edges, self-loops, cycles, nulls and awkward values."""

from __future__ import annotations

import random
from functools import cache
from typing import Any, Final

from hypothesis import strategies as st

from omnigraph.lang.schema import Property
from omnigraph.lang.types import INT_RANGES, PropType, Scalar
from tests.differential.naive_graph import NaiveGraph, Record, catalog_of, graph_of

SOCIAL: Final = """
node Person {
  name: String @key
  age: I32?
  height: F64?
  tags: [String]?
  mood: enum(calm, glad, sad)?
  active: Bool?
  born: Date?
  seen: DateTime?
}
node Firm { code: I64 @key  name: String?  size: U32? }
node Note { text: String? @text  stars: I32  vec: Vector(2)?  wild: F64? }
edge Knows: Person -> Person { since: Date?  weight: F64? }
edge Likes: Person -> Person
edge WorksAt: Person -> Firm { role: String?  pay: U32 }
edge Wrote: Person -> Note
edge Cites: Note -> Note { page: I64 }
"""
STORE: Final = """
node Item {
  i32: I32
  i64: I64?
  u32: U32?
  u64: U64
  f32: F32?
  wild: F64?
  flag: Bool
  day: Date
  moment: DateTime?
  text: String
  kind: enum(a, b)
  i64s: [I64]?
  u32s: [U32]
  f64s: [F64]?
  flags: [Bool]?
  days: [Date]?
  moments: [DateTime]?
  texts: [String]?
  vec: Vector(3)?
}
node Slot { tenant: String  number: I32  note: String?  @key(tenant, number) }
edge Next: Item -> Item { rank: U64?  at: DateTime? }
edge Holds: Slot -> Item { count: I32? }
"""
CHAIN: Final = """
node Step { label: String?  weight: F32? }
edge Then: Step -> Step { cost: I32? }
"""
SCHEMAS: Final = (SOCIAL, STORE, CHAIN)
# Numbers of these properties are not finite or too far apart for their sum not to depend on its order.
UNSUMMABLE: Final = frozenset({"wild", "i64", "u64", "rank", "page", "code"})

MAX_NODES: Final = 12
MAX_EDGES: Final = 16
TEXTS: Final = (
    "", "a", "A", "ab", "Ann lee", "ann", "lee, ANN", "é", "e\u0301", "ß", "日本", "😀", "a%b", "a_b", "x'y", 'q"q',
    "\\",
)  # fmt: skip
DAYS: Final = ("0001-01-01", "1969-12-31", "1970-01-01", "2020-02-29", "2020-03-01", "9999-12-31")
MOMENTS: Final = (
    "0001-01-01T00:00:00.000Z",
    "1969-12-31T23:59:59.999Z",
    "1970-01-01T00:00:00.000Z",
    "2020-02-29T12:34:56.789Z",
    "9999-12-31T23:59:59.999Z",
)
# Sums of these are exact in any order.
CALM_FLOATS: Final = (0.0, 0.5, 1.0, 2.0, -1.5, 25.0)
WILD_FLOATS: Final = (*CALM_FLOATS, -0.0, 0.1, 2.0**53, "NaN", "Infinity", "-Infinity")
INTEGERS: Final = (
    0,
    1,
    2,
    -1,
    3,
    25,
    2**31 - 1,
    -(2**31),
    2**32 - 1,
    2**53,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
)


def scalar_values(type_: PropType, name: str = "") -> list[Any]:
    """JSON values of a type, few enough to meet again."""
    if type_.enum_values is not None:
        return list(type_.enum_values)
    match type_.scalar:
        case Scalar.STRING:
            return list(TEXTS)
        case Scalar.BOOL:
            return [False, True]
        case Scalar.DATE:
            return list(DAYS)
        case Scalar.DATETIME:
            return list(MOMENTS)
        case Scalar.F64:
            return list(WILD_FLOATS if name in UNSUMMABLE else CALM_FLOATS)
        case Scalar.F32 | Scalar.VECTOR:
            return list(CALM_FLOATS)
        case _:
            low, high = INT_RANGES[type_.scalar]
            return [number for number in INTEGERS if low <= number <= high]


@st.composite
def graphs(draw: st.DrawFn) -> NaiveGraph:
    """A graph over one of the schemas.

    What is drawn are the numbers of nodes and edges and a seed. Each row follows from the seed and its own number,
    so a failing example shrinks to fewer of the same rows.
    """
    text = draw(st.sampled_from(SCHEMAS))
    seed = draw(st.integers(0, 2**32))
    schema = catalog_of(text).schema
    records: list[Record] = []
    for node in schema.nodes:
        rows = [_data(node.properties, f"{seed}/{node.name}/{row}") for row in range(draw(_sizes(MAX_NODES)))]
        records.extend({"type": node.name, "data": data} for data in _unique(rows, node.key))
    ids = {name: list(found) for name, found in graph_of(text, records).nodes.items()}
    for edge in schema.edges:
        count = draw(_sizes(MAX_EDGES))
        for row in range(count if ids[edge.source] and ids[edge.target] else 0):
            chance = random.Random(f"{seed}/{edge.name}/{row}/ends")
            ends = {"from": chance.choice(ids[edge.source]), "to": chance.choice(ids[edge.target])}
            data = _data(edge.properties, f"{seed}/{edge.name}/{row}")
            records.append({"edge": edge.name, **ends, "data": data})
    return graph_of(text, records)


@cache
def _sizes(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most)


def _data(properties: tuple[Property, ...], seed: str) -> dict[str, Any]:
    chance = random.Random(seed)
    return {item.name: _value(item.type, item.name, chance) for item in properties}


def _value(type_: PropType, name: str, chance: random.Random) -> Any:
    if type_.nullable and chance.random() < 0.25:
        return None
    pool = scalar_values(type_, name)
    if type_.scalar is Scalar.VECTOR:
        return chance.choices(pool, k=type_.dim or 0)
    return chance.choices(pool, k=chance.randrange(4)) if type_.is_list else chance.choice(pool)


def _unique(rows: list[dict[str, Any]], key: tuple[str, ...] | None) -> list[dict[str, Any]]:
    if key is None:
        return rows
    return list({tuple(row[name] for name in key): row for row in rows}.values())
