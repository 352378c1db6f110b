"""The steps of a history of a small graph, and their effect in the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias
from zlib import crc32

from tests.model.merge_oracle import (
    Choice,
    Conflict,
    Conflicts,
    Place,
    Repository,
    Resolve,
    Row,
    Rows,
    Side,
    State,
    To,
    Type,
    Value,
)

SCHEMA: Final = """node Person { name: String @key  age: I32?  email: String? @unique  tags: [String]? }
node Team { title: String @key }
edge Knows: Person -> Person { weight: F64? }
edge Leads: Person -> Team @card(0..1)
"""
TYPES: Final = {
    "Person": Type("Person", unique=("email",)),
    "Team": Type("Team"),
    "Knows": Type("Knows", ends=("Person", "Person")),
    "Leads": Type("Leads", ends=("Person", "Team"), most=1),
}
KEYS: Final = {"Person": "name", "Team": "title"}


@dataclass(frozen=True)
class Fork:
    """Create a branch at the head of another."""

    name: str
    source: str


@dataclass(frozen=True)
class Load:
    """Load rows by type and id: new rows, or replacements. An empty load makes a commit too."""

    branch: str
    mode: Literal["append", "merge"]
    rows: Mapping[tuple[str, str], Row]


@dataclass(frozen=True)
class Put:
    """Insert or replace a person."""

    values: tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Age:
    """Change the age of the people with a name or an age."""

    age: int
    where: str
    equals: Value


@dataclass(frozen=True)
class Delete:
    """Delete rows with a value, and the edges of deleted nodes."""

    type_name: str
    where: str
    equals: Value


Statement: TypeAlias = Put | Age | Delete


@dataclass(frozen=True)
class Mutate:
    """A mutation query. It makes no commit if nothing matches."""

    branch: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Compact:
    """Optimize a branch, which changes no rows."""

    branch: str


@dataclass(frozen=True)
class Merge:
    """Merge a branch into another. ``each`` lists the conflicts first and resolves each separately."""

    source: str
    into: str
    resolve: Side | Literal["each"] | None = None


@dataclass(frozen=True)
class Revert:
    """Revert a commit on a branch: the head of a branch, or a number of first parents before it."""

    branch: str
    of: str
    back: int
    resolve: Side | None = None


Step: TypeAlias = Fork | Load | Mutate | Compact | Merge | Revert
History: TypeAlias = tuple[Step, ...]


def after(state: State, step: Load | Mutate) -> State:
    """Return the state after a valid write."""
    return mutated(state, step.statements) if isinstance(step, Mutate) else loaded(state, step.rows)


def is_refused(step: Load | Mutate, state: State) -> bool:
    """Return whether rows to insert exist already."""
    return (
        isinstance(step, Load)
        and step.mode == "append"
        and any(id_ in state[name] for name, id_ in step.rows)
    )


def loaded(state: State, rows: Mapping[tuple[str, str], Row]) -> State:
    """Return the state after a valid load."""
    after = {name: dict(found) for name, found in state.items()}
    for (name, id_), row in rows.items():
        after[name][id_] = row
    return after


def mutated(state: State, statements: Sequence[Statement]) -> State:
    """Return the state after the statements."""
    after = {name: dict(found) for name, found in state.items()}
    for item in statements:
        match item:
            case Put(values):
                after["Person"][str(dict(values)["name"])] = dict(values)
            case Age(age, where, equals):
                for id_, row in after["Person"].items():
                    if row[where] == equals:
                        after["Person"][id_] = {**row, "age": age}
            case Delete(name, where, equals):
                gone = {id_ for id_, row in after[name].items() if row[where] == equals}
                after = _without(after, name, gone)
    return after


def _without(state: Mapping[str, Rows], name: str, gone: set[str]) -> dict[str, dict[str, Row]]:
    """Return the state without some rows of a type and without their edges."""
    kept: dict[str, dict[str, Row]] = {}
    for type_ in TYPES.values():
        kept[type_.name] = dict(state[type_.name])
        ends = [end for end, node in zip(("from", "to"), type_.ends or ("", ""), strict=True) if node == name]
        for id_, row in state[type_.name].items():
            if (type_.name == name and id_ in gone) or any(row[end] in gone for end in ends):
                del kept[type_.name][id_]
    return kept


def commit_to_revert(repository: Repository, step: Revert) -> int:
    """Return the commit that a revert undoes; never the first one."""
    number = repository.heads[step.of]
    for _ in range(step.back):
        parents = repository.commits[number].parents
        if not parents or not repository.commits[parents[0]].parents:
            break
        number = parents[0]
    return number


def place_of(conflict: Conflict) -> Place:
    """Return the subject of a row conflict."""
    (id_,) = conflict.ids
    return conflict.type_name, id_, conflict.property


def settle(place: Place) -> Choice:
    """Return the resolution of a conflict for ``each``: a side, or another age. It is deterministic."""
    number = crc32("/".join(map(str, place)).encode())
    if place[2] == "age" and number % 3 == 0:
        return To(9)
    return "ours" if number % 2 else "theirs"


def foresee(repository: Repository, step: Step) -> None:
    """Apply a step to the model. With combined lanes every write has an effect in at least one lane."""
    match step:
        case Fork(name, source):
            repository.branch(name, source)
        case Load(branch) | Mutate(branch):
            repository.commit(branch, after(repository.state(branch), step))
        case Compact(branch):
            repository.commit(branch, repository.state(branch))
        case Merge(source, into, resolve):
            repository.merge(source, into, resolution(repository, step) if resolve == "each" else resolve)
        case Revert(branch, _, _, resolve):
            number = commit_to_revert(repository, step)
            if number in repository.distances(repository.heads[branch]):
                repository.revert(number, branch, resolve)


def resolution(repository: Repository, step: Merge) -> Resolve:
    """Return the resolutions of the present conflicts for ``each``, or None if there are none."""
    copy = replace(repository, commits=list(repository.commits), heads=dict(repository.heads))
    try:
        copy.merge(step.source, step.into)
    except Conflicts as error:
        return {place_of(item): settle(place_of(item)) for item in error.found if is_of_rows(item)}
    return None


def is_of_rows(conflict: Conflict) -> bool:
    """Return whether both sides changed one row, so that a side can be chosen."""
    return conflict.kind in ("divergent_insert", "divergent_update", "delete_vs_update")
