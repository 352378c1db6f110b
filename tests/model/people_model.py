"""A model of mutations and loads of people and their relations, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

SCHEMA = """node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: I32? }
edge Leads: Person -> Person @card(0..2) { since: I32? }
"""
EDGES = ("Knows", "Leads")
MOST_LED = 2

# Both ends, and a number that is unique among edges of mutations.
Edge: TypeAlias = tuple[str, str, int]
Verb: TypeAlias = Literal["put", "update", "delete", "Knows", "Leads", "cut"]
Mode: TypeAlias = Literal["append", "merge", "overwrite"]
Affected: TypeAlias = dict[str, dict[str, int]]
R = TypeVar("R")


class Refused(Exception):
    """The write violates a rule and has no effect."""


@dataclass(frozen=True)
class State:
    """The rows of each table. An edge of a load is identified by its id, another edge by its number."""

    people: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, Mapping[str, Edge]] = field(default_factory=lambda: {name: {} for name in EDGES})

    def tables(self) -> dict[str, Mapping[str, object]]:
        """Rows by type and identity."""
        return {"Person": self.people, **self.edges}


@dataclass(frozen=True)
class Statement:
    """One statement of a mutation. `to` is the other end of an edge, `value` an age or a number."""

    verb: Verb
    name: str
    value: int = 0
    to: str = ""

    def text(self) -> str:
        """Return the statement in the query language."""
        name = _quoted(self.name)
        match self.verb:
            case "put":
                return f"insert Person {{ name: {name}, age: {self.value} }}"
            case "update":
                return f"update Person set {{ age: {self.value} }} where name = {name}"
            case "delete":
                return f"delete Person where name = {name}"
            case "cut":
                return f"delete Knows where from = {name}"
        return f"insert {self.verb} {{ from: {name}, to: {_quoted(self.to)}, since: {self.value} }}"


def mutation(statements: Iterable[Statement]) -> str:
    """Return a mutation query of statements."""
    return "query change() { " + "\n".join(item.text() for item in statements) + " }"


def only_inserts(statements: Iterable[Statement]) -> bool:
    """Return whether the mutation can be prepared again on a branch that moved."""
    return all(item.verb in ("put", *EDGES) for item in statements)


def mutate(state: State, statements: Iterable[Statement]) -> State:
    """Return the state after a mutation."""
    people = dict(state.people)
    edges = {name: dict(found) for name, found in state.edges.items()}
    for item in statements:
        match item.verb:
            case "put":
                people[item.name] = item.value
            case "update":
                if item.name in people:
                    people[item.name] = item.value
            case "delete":
                if people.pop(item.name, None) is not None:
                    for found in edges.values():
                        _drop(found, [key for key, edge in found.items() if item.name in edge[:2]])
            case "cut":
                _drop(edges["Knows"], [key for key, edge in edges["Knows"].items() if edge[0] == item.name])
            case _:
                edges[item.verb][f"#{item.value}"] = (item.name, item.to, item.value)
    return _checked(State(people, edges))


@dataclass(frozen=True)
class Load:
    """A load: rows of people and of edges with ids; None for a type that is not in the input."""

    mode: Mode
    people: Sequence[tuple[str, int]] | None = None
    knows: Sequence[tuple[str, Edge]] | None = None

    def source(self) -> dict[str, list[dict[str, object]]]:
        """Return the input."""
        found: dict[str, list[dict[str, object]]] = {}
        if self.people is not None:
            found["Person"] = [{"name": name, "age": age} for name, age in self.people]
        if self.knows is not None:
            found["Knows"] = [
                {"id": key, "from": a, "to": b, "since": since} for key, (a, b, since) in self.knows
            ]
        return found


def load(state: State, load: Load) -> State:
    """Return the state after a load."""
    if load.people is not None and len(dict(load.people)) != len(load.people):
        raise Refused("two people have one key")
    people = _loaded(load.mode, state.people, load.people)
    knows = _loaded(load.mode, state.edges["Knows"], load.knows)
    return _checked(State(people, {**state.edges, "Knows": knows}))


def _loaded(mode: Mode, before: Mapping[str, R], rows: Sequence[tuple[str, R]] | None) -> dict[str, R]:
    if rows is None:
        return dict(before)
    new = dict(rows)
    if mode != "merge" and len(new) != len(rows):
        raise Refused("two rows have one id")
    if mode == "append" and new.keys() & before.keys():
        raise Refused("a row is there already")
    return new if mode == "overwrite" else {**before, **new}


def affected(before: State, after: State) -> Affected:
    """Return the counts of changed rows by type, without types that have none.

    A write that replaces a row must change it.
    """
    found = {}
    for name, old in before.tables().items():
        new = after.tables()[name]
        counts = {
            "inserted": len(new.keys() - old.keys()),
            "updated": sum(old[key] != new[key] for key in new.keys() & old.keys()),
            "deleted": len(old.keys() - new.keys()),
        }
        if any(counts.values()):
            found[name] = counts
    return found


def _checked(state: State) -> State:
    for found in state.edges.values():
        for source, target, _ in found.values():
            if source not in state.people or target not in state.people:
                raise Refused(f"an edge from {source} to {target} ends nowhere")
    sources = [edge[0] for edge in state.edges["Leads"].values()]
    if any(sources.count(source) > MOST_LED for source in sources):
        raise Refused("somebody leads too many")
    return state


def _drop(rows: dict[str, Edge], keys: Iterable[str]) -> None:
    for key in keys:
        del rows[key]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
