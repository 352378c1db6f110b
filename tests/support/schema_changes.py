"""Changes of one schema, the rows they start from, and what a graph holds."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import omnigraph as og

START = """\
node Person {
  name: String @key
  age: I32?
  mood: enum(good, bad)?
  code: String
  tags: [String]?
  photo: Blob?
  place: Vector(2)
}
node Firm { slug: String @key }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Firm { role: String }
"""
PEOPLE = ("ann", "bob", "cyd")


def person(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "code": name.upper(), "place": [1.0, 2.0], **more}


ROWS = {
    "Person": [
        person(name, age=20 + number, mood="good", tags=["a", name], photo="base64:aGk=")
        for number, name in enumerate(PEOPLE)
    ],
    "Firm": [{"slug": "x"}],
    "Knows": [{"from": "ann", "to": "bob", "since": "2020-01-31"}],
    "WorksAt": [{"from": "ann", "to": "x", "role": "cook"}],
}


def edited(*edits: tuple[str, str]) -> str:
    """The first schema with some of its text replaced; each must be there."""
    text = START
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


def grown(*properties: str) -> str:
    """The first schema with some more properties of people."""
    return edited(("  age: I32?\n", "".join(f"  {item}\n" for item in ("age: I32?", *properties))))


@dataclass(frozen=True)
class Case:
    """A change, its steps, what a person becomes by it, and a row that fits it afterwards."""

    text: str
    steps: tuple[str, ...]
    ann: dict[str, Any]
    row: dict[str, Any] = field(default_factory=lambda: person("dan"))
    type: str = "Person"
    backfill: dict[str, Any] = field(default_factory=dict)
    allow_data_loss: bool = False

    def another(self, name: str) -> dict[str, Any]:
        """The row under another name."""
        given = {"name": name, "email": name} if "email" in self.row else {"name": name}
        return {**self.row, **given}

    def apply(self, graph: og.Graph, **options: Any) -> og.SchemaApplied:
        """Make the change."""
        return graph.schema.apply(
            self.text, backfill=self.backfill, allow_data_loss=self.allow_data_loss, **options
        )


ANN = {
    "id": "ann",
    "name": "ann",
    "age": 20,
    "mood": "good",
    "code": "ANN",
    "tags": ["a", "ann"],
    "photo": "base64:aGk=",
    "place": [1.0, 2.0],
}


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in ANN.items() if name not in names}


CASES = {
    "add_type": Case(START + "node City { name: String @key }\nedge In: Person -> City\n", ("add_type",) * 2, ANN),
    "add_property": Case(
        grown("email: String?", "marks: [I64]?", "at: Vector(3)?", "pic: Blob?"),
        ("add_property",) * 4,
        {**ANN, "email": None, "marks": None, "at": None, "pic": None},
        person("dan", email="d", marks=[1], at=[1, 2, 3], pic="base64:aGk="),
    ),
    "rename_type": Case(
        edited(
            ("node Person {", 'node Human @rename_from("Person") {'),
            ("Person -> Person", "Human -> Human"),
            ("Person -> Firm", "Human -> Firm"),
        ),
        ("rename_type",),
        ANN,
        type="Human",
    ),
    "rename_property": Case(
        edited(("age: I32?", 'years: I32? @rename_from("age")')),
        ("rename_property",),
        {**without("age"), "years": 20},
        person("dan", years=3),
    ),
    "add_constraint": Case(edited(("age: I32?", "age: I32? @index")), ("add_constraint",), ANN),
    "extend_enum": Case(
        edited(("enum(good, bad)", "enum(good, bad, odd)")), ("extend_enum",), ANN, person("dan", mood="odd")
    ),
    "update_metadata": Case(
        edited(("node Firm {", 'node Firm @description("where people work") {')), ("update_type_metadata",), ANN
    ),
    "update_property_metadata": Case(
        edited(("age: I32?", 'age: I32? @description("in years")')), ("update_property_metadata",), ANN
    ),
    "drop_property": Case(
        edited(("  mood: enum(good, bad)?\n", ""), ("  photo: Blob?\n", "")),
        ("drop_property",) * 2,
        without("mood", "photo"),
    ),
    "drop_required": Case(
        edited(("  code: String\n", ""), ("  place: Vector(2)\n", ""), (" { role: String }", "")),
        ("drop_property",) * 3,
        without("code", "place"),
        {"name": "dan"},
    ),
    "drop_type": Case(
        edited(("node Firm { slug: String @key }\n", ""), ("edge WorksAt: Person -> Firm { role: String }\n", "")),
        ("drop_type",) * 2,
        ANN,
    ),
    "backfill_values": Case(
        grown("level: I32", "day: Date", "kind: enum(x, y)", "at: Vector(2)", "pic: Blob", "on: Bool?").replace(
            "{ since: Date? }", "{ since: Date?  weight: F64 }"
        ),
        ("add_property",) * 7,
        {
            **ANN,
            "level": 7,
            "day": "2020-01-31",
            "kind": "y",
            "at": [0.0, 1.0],
            "pic": "base64:aGk=",
            "on": None,
        },
        person("dan", level=1, day="2021-01-31", kind="x", at=[1, 1], pic="base64:aGk="),
        backfill={
            "Person.level": 7,
            "Person.day": "2020-01-31",
            "Person.kind": "y",
            "Person.at": [0, 1],
            "Person.pic": "base64:aGk=",
            "Knows.weight": 1,
        },
    ),
    "backfill_expressions": Case(
        grown("email: String @unique", "old: I64?", "self: String", "shade: String", "day: Date").replace(
            "  age: I32?\n", ""
        ),
        (*("add_property",) * 5, "add_constraint", "drop_property"),
        {**without("age"), "email": "ANN", "old": 20, "self": "ann", "shade": "red", "day": "2020-01-31"},
        person("dan", email="d", self="dan", shade="s", day="2021-01-31"),
        backfill={
            "Person.email": og.expr("$this.code"),
            "Person.old": {"expr": "$this.age"},
            "Person.self": og.expr("$this"),
            "Person.shade": og.expr('"red"'),
            "Person.day": og.expr('date("2020-01-31")'),
        },
    ),
    "hard_drop_property": Case(
        edited(("  code: String\n", ""), ("  photo: Blob?\n", "  photo: Blob?\n  email: String\n")),
        ("add_property", "drop_property"),
        {**without("code"), "email": "ANN"},
        {"name": "dan", "place": [1.0, 2.0], "email": "d"},
        backfill={"Person.email": og.expr("$this.code")},
        allow_data_loss=True,
    ),
}  # fmt: skip


def lines(graph: og.Graph, **state: Any) -> list[str]:
    """Everything in a state, in an order of its own."""
    file = StringIO()
    graph.export(file, **state)
    return sorted(file.getvalue().splitlines())


def count(graph: og.Graph, type_name: str, **state: Any) -> int:
    return sum(json.loads(line).get("type") == type_name for line in lines(graph, **state))


def stored(graph: og.Graph) -> set[str]:
    """The files of the tables."""
    root = Path(graph.uri.removeprefix("file://"))
    return {
        str(path) for folder in ("nodes", "edges") for path in (root / folder).rglob("*") if path.is_file()
    }


def make(place: Path) -> og.Graph:
    """A graph with the first schema and rows."""
    made = og.init(str(place), START, durability="os", actor="ana")
    made.load(ROWS)
    return made
