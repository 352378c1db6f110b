"""The graphs of the Studio tests and screenshots: a small company with branches, and a large one."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

import omnigraph as og

SCHEMA = """\
// People, their teams and what they publish.

interface Named {
  name: String @index @description("What people call it")
}

node Person @description("Someone who works here") implements Named {
  handle: String @key
  role: enum(engineer, designer, researcher, manager)
  joined: Date?
  salary: I64?
  @check(handle, "^[a-z]+$")
}

node Team implements Named {
  slug: String @key
  budget: F64?
  @range(budget, 0..)
}

node Project implements Named {
  code: String @key
  status: enum(planned, active, done)
}

node Paper {
  doi: String @key
  title: String @text
  year: I32
  @range(year, 1900..2100)
}

node Place implements Named {
  slug: String @key
}

edge Knows: Person -> Person {
  since: Date?
}

edge MemberOf: Person -> Team @card(0..2) {
  since: Date?
}

edge Leads: Person -> Project
edge Runs: Team -> Project
edge Wrote: Person -> Paper
edge Cites: Paper -> Paper
edge BasedIn: Team -> Place
"""
QUERIES = """\
query people_in_team($team: String) @description("The members of a team, by name.") {
  match {
    $t: Team { slug: $team }
    $p memberOf $t
  }
  return { $p.name as name, $p.role as role }
  order { $p.name }
}

query leaderless_projects() @description("Check: every project has a leader.") {
  match {
    $p: Project
    not { $who leads $p }
  }
  return { $p.code as code }
  order { $p.code }
}

query hire($handle: String, $name: String) @description("Adds a person.") {
  insert Person { handle: $handle, name: $name, role: "engineer" }
}
"""
FIRST = [
    "Ada",
    "Ben",
    "Cleo",
    "Dara",
    "Emil",
    "Fay",
    "Gus",
    "Hana",
    "Ivo",
    "Jun",
    "Kira",
    "Leo",
    "Mara",
    "Nils",
    "Oda",
    "Pia",
]
LAST = ["Ash", "Berg", "Cole", "Dahl", "Eng", "Ford", "Gray", "Holm"]
TEAMS = ["Storage", "Query", "Search", "Spark", "Design", "Docs"]
PLACES = ["Zurich", "Oslo", "Porto"]
TOPICS = ["branches", "vectors", "merges", "indexes", "schemas", "streams", "graphs", "tables"]


def records() -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the small graph, the same in every run."""
    chance = random.Random(7)
    people = [
        {
            "handle": f"{first}{last}".lower(),
            "name": f"{first} {last}",
            "role": chance.choice(["engineer", "engineer", "designer", "researcher", "manager"]),
            "joined": f"20{chance.randint(18, 25)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}",
            "salary": 60_000 + 500 * chance.randint(0, 120),
        }
        for first in FIRST
        for last in chance.sample(LAST, 3)
    ]
    handles = [item["handle"] for item in people]
    teams = [{"slug": name.lower(), "name": name, "budget": 1e5 * chance.randint(2, 9)} for name in TEAMS]
    slugs = [item["slug"] for item in teams]
    projects = [
        {
            "code": f"P{number:02}",
            "name": f"Project {number}",
            "status": chance.choice(["planned", "active", "done"]),
        }
        for number in range(1, 11)
    ]
    papers = [
        {
            "doi": f"10.1/{number:03}",
            "title": f"On {chance.choice(TOPICS)} and {chance.choice(TOPICS)}",
            "year": chance.randint(2015, 2026),
        }
        for number in range(30)
    ]
    dois = [str(item["doi"]) for item in papers]
    return {
        "Person": people,
        "Team": teams,
        "Project": projects,
        "Paper": papers,
        "Place": [{"slug": name.lower(), "name": name} for name in PLACES],
        "Knows": [{"from": a, "to": b} for a in handles for b in chance.sample(handles, 2) if a != b],
        "MemberOf": [{"from": one, "to": chance.choice(slugs)} for one in handles],
        "Leads": [{"from": chance.choice(handles), "to": item["code"]} for item in projects[:-1]],
        "Runs": [{"from": chance.choice(slugs), "to": item["code"]} for item in projects],
        "Wrote": [{"from": one, "to": doi} for doi in dois for one in chance.sample(handles, 2)],
        "Cites": [{"from": a, "to": b} for a in dois for b in chance.sample(dois, 2) if a > b],
        "BasedIn": [{"from": slug, "to": chance.choice(PLACES).lower()} for slug in slugs],
    }


def make_company(uri: str) -> None:
    """Create the small graph: some commits, a merged branch, and a branch `raises` that conflicts with main."""
    with og.init(uri, SCHEMA, actor="ann") as graph:
        graph.load(records(), message="Import the company")
        raise_ = (
            "query raise($who: String, $to: I64) { update Person set { salary: $to } where handle = $who }"
        )
        people = [row["handle"] for row in records()["Person"][:8]]
        graph.mutate(raise_, {"who": people[0], "to": 91_000}, message="Adjust one salary", actor="bob")
        graph.branches.create("hiring", actor="bob")
        graph.mutate(
            'query hire() { insert Person { handle: "zoe", name: "Zoe Holm", role: "engineer" } }',
            branch="hiring",
            message="Hire Zoe",
            actor="bob",
        )
        graph.mutate(raise_, {"who": people[1], "to": 88_000}, message="Adjust another salary")
        graph.branches.merge("hiring", message="Merge hiring", actor="ann")
        graph.branches.create("raises", actor="bob")
        for handle, amount in zip(people[2:6], (81_000, 82_000, 83_000, 84_000), strict=True):
            graph.mutate(
                raise_, {"who": handle, "to": amount}, branch="raises", message=f"Raise {handle}", actor="bob"
            )
        graph.mutate(
            'query add() { insert Project { code: "P99", name: "Moonshot", status: "planned" } }',
            branch="raises",
            message="Plan the moonshot",
            actor="bob",
        )
        for handle, amount in zip(people[2:4], (79_000, 78_500), strict=True):
            graph.mutate(raise_, {"who": handle, "to": amount}, message=f"Correct {handle}", actor="ann")
        graph.tags.create("audited", message="The state that was audited")


LARGE_SCHEMA = """\
node Item { code: String @key  size: I64 }
node Reading { at: I64  value: F64 }
edge Near: Item -> Item
"""


def make_large(uri: str, items: int = 2_000, readings: int = 200_000) -> None:
    """Create a graph with many nodes and edges of one type and many rows of another."""
    chance = random.Random(11)
    # Clusters, so that the picture has a shape.
    ends = [(number, number - number % 40) for number in range(items)]
    ends += [(number, number - 40) for number in range(40, items, 40) if chance.random() < 0.8]
    ends += [(chance.randrange(items), chance.randrange(items)) for _ in range(items // 10)]
    with og.init(uri, LARGE_SCHEMA) as graph:
        graph.load(
            {
                "Item": pa.table(
                    {"code": [f"i{number:04}" for number in range(items)], "size": list(range(items))}
                ),
                "Near": pa.table(
                    {"from": [f"i{a:04}" for a, _ in ends], "to": [f"i{b:04}" for _, b in ends]}
                ),
                "Reading": pa.table(
                    {
                        "at": pa.array(range(readings), pa.int64()),
                        "value": pa.array([float(n % 97) for n in range(readings)]),
                    }
                ),
            }
        )
