"""What branches, merges and reverts are, without storage: every commit holds all its rows, and looking is enough.

Written to be obviously right. A row is a mapping from property to value, with ``from`` and ``to`` for an edge;
commits are numbered in the order they are made.

>>> people = Repository({"Person": Type("Person")})
>>> people.branch("work", "main")
>>> people.commit("work", {"Person": {"Ana": {"age": 3}}})
1
>>> people.merge("work", "main").outcome
'fast_forward'
>>> people.state("main")
{'Person': {'Ana': {'age': 3}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Value: TypeAlias = int | float | str | tuple[str, ...] | None
Row: TypeAlias = Mapping[str, Value]
Rows: TypeAlias = Mapping[str, Row]
State: TypeAlias = Mapping[str, Rows]
Side: TypeAlias = Literal["ours", "theirs"]
Label: TypeAlias = Literal["already_up_to_date", "fast_forward", "merged"]

# What a conflict is about: type, id, and the property, or None for the whole row.
Place: TypeAlias = tuple[str, str, str | None]


@dataclass(frozen=True)
class To:
    """Settle a conflict with a value of its own."""

    value: Value


Choice: TypeAlias = Side | To
Resolve: TypeAlias = Side | Mapping[Place, Choice] | None


@dataclass(frozen=True)
class Type:
    """A node type, or an edge type where it has ends: which values are unique, how many edges leave one node."""

    name: str
    ends: tuple[str, str] | None = None
    unique: tuple[str, ...] = ()
    most: int | None = None


@dataclass(frozen=True)
class Conflict:
    """Why two states do not merge.

    `ids` are those that may be blamed, none when nobody is. Where a rule is broken, choosing a side gives all
    `entities`, each a type and an id, the state that they have there.
    """

    kind: str
    type_name: str
    ids: frozenset[str]
    property: str | None = None
    message: str | None = None
    base: Value | Row = None
    ours: Value | Row = None
    theirs: Value | Row = None
    entities: frozenset[tuple[str, str]] = frozenset()


class Conflicts(Exception):
    """The merge is refused and nothing moves."""

    def __init__(self, found: list[Conflict]) -> None:
        super().__init__(found)
        self.found = found


@dataclass(frozen=True)
class Change:
    """What became of one entity from one state to another."""

    type_name: str
    id: str
    op: Literal["insert", "update", "delete"]
    before: Row | None
    after: Row | None

    @property
    def changed(self) -> frozenset[str]:
        """The properties with another value; all of a row that came or went."""
        before, after = self.before or {}, self.after or {}
        if self.op != "update":
            return frozenset(before) | frozenset(after)
        return frozenset(name for name in after if before[name] != after[name])


@dataclass(frozen=True)
class Merge:
    """What came of a merge, and the number of its commit."""

    outcome: Label
    commit: int | None


@dataclass(frozen=True)
class Commit:
    """A state and where it comes from: first the branch it was made on, then what was merged into it."""

    parents: tuple[int, ...]
    state: State


@dataclass
class Repository:
    """Commits by number, and branches by name. Commit 0 is empty."""

    types: Mapping[str, Type]
    commits: list[Commit] = field(default_factory=list)
    heads: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.commits:
            self.commits.append(Commit((), {name: {} for name in self.types}))
            self.heads["main"] = 0

    def state(self, branch: str) -> State:
        """The rows of a branch."""
        return self.commits[self.heads[branch]].state

    def branch(self, name: str, source: str) -> None:
        """Make a branch where another one stands."""
        self.heads[name] = self.heads[source]

    def commit(self, branch: str, state: State, merged: int | None = None) -> int:
        """Put a state on top of a branch."""
        parents = (self.heads[branch],) if merged is None else (self.heads[branch], merged)
        self.commits.append(Commit(parents, state))
        self.heads[branch] = len(self.commits) - 1
        return self.heads[branch]

    def base(self, ours: int, theirs: int) -> int:
        """The common ancestor that no other one descends from; the nearest of several, then the newest."""
        near, far = self.distances(ours), self.distances(theirs)
        common = near.keys() & far.keys()
        below = {number for other in common for number in self.distances(other) if number != other}
        return min(common - below, key=lambda number: (near[number] + far[number], -number))

    def distances(self, start: int) -> dict[int, int]:
        """Every ancestor of a commit, itself included, with its shortest distance over all parents."""
        found = {start: 0}
        ring = [start]
        while ring:
            ring = [parent for number in ring for parent in self.commits[number].parents]
            ring = [number for number in dict.fromkeys(ring) if number not in found]
            found.update(dict.fromkeys(ring, max(found.values()) + 1))
        return found

    def merge(self, source: str, into: str, resolve: Resolve = None) -> Merge:
        """Merge a branch into another, or raise `Conflicts`."""
        ours, theirs = self.heads[into], self.heads[source]
        base = self.base(ours, theirs)
        if theirs == base:
            return Merge("already_up_to_date", None)
        merged = self._merged(base, ours, theirs, resolve)
        return Merge("fast_forward" if ours == base else "merged", self.commit(into, merged, theirs))

    def revert(self, number: int, branch: str, resolve: Resolve = None) -> int | None:
        """Undo a commit on a branch, or raise `Conflicts`: merge its first parent as if from the commit itself.

        None, and no commit, where that changes nothing.
        """
        merged = self._merged(number, self.heads[branch], self.commits[number].parents[0], resolve)
        return None if merged == self.state(branch) else self.commit(branch, merged)

    def _merged(self, base: int, ours: int, theirs: int, resolve: Resolve) -> State:
        sides = Sides(*(self.commits[number].state for number in (base, ours, theirs)))
        merged, found = merge_states(sides, resolve)
        if found:
            raise Conflicts(found)
        while found := violations(self.types, merged, sides):
            settled = settle_rules(sides, merged, found, resolve)
            if settled == merged:
                raise Conflicts(found)
            merged = settled
        return merged


# --- three states -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sides:
    """The states of a merge."""

    base: State
    ours: State
    theirs: State


def merge_states(sides: Sides, resolve: Resolve) -> tuple[State, list[Conflict]]:
    """What both sides made of the base, and the conflicts that nothing settles."""
    found: list[Conflict] = []
    merged: dict[str, dict[str, Row]] = {}
    base, ours, theirs = sides.base, sides.ours, sides.theirs
    for name in ours:
        merged[name] = {}
        ids = base[name].keys() | ours[name].keys() | theirs[name].keys()
        for id_ in sorted(ids):
            rows = (base[name].get(id_), ours[name].get(id_), theirs[name].get(id_))
            row = _merge_rows(name, id_, rows, resolve, found)
            if row is not None:
                merged[name][id_] = row
    return merged, found


def _merge_rows(
    name: str,
    id_: str,
    rows: tuple[Row | None, Row | None, Row | None],
    resolve: Resolve,
    found: list[Conflict],
) -> Row | None:
    base, ours, theirs = rows
    if ours == theirs or base == theirs:
        return ours
    if base == ours:
        return theirs
    if ours is None or theirs is None:
        match _choice(resolve, (name, id_, None)):
            case "ours":
                return ours
            case "theirs":
                return theirs
        found.append(Conflict("delete_vs_update", name, frozenset([id_]), None, None, base, ours, theirs))
        return None
    kind = "divergent_insert" if base is None else "divergent_update"
    merged: dict[str, Value] = {}
    for key in ours:
        mine, other = ours[key], theirs[key]
        before = None if base is None else base[key]
        if mine == other or (base is not None and before == other):
            merged[key] = mine
        elif base is not None and before == mine:
            merged[key] = other
        else:
            match _choice(resolve, (name, id_, key)):
                case "ours":
                    merged[key] = mine
                case "theirs":
                    merged[key] = other
                case To(value):
                    merged[key] = value
                case None:
                    found.append(Conflict(kind, name, frozenset([id_]), key, None, before, mine, other))
    return merged


def _choice(resolve: Resolve, place: Place) -> Choice | None:
    return resolve.get(place) if isinstance(resolve, Mapping) else resolve


def settle_rules(sides: Sides, merged: State, found: list[Conflict], resolve: Resolve) -> State:
    """The state where everything that breaks a rule is as it is on the side that was chosen, if one was."""
    if not isinstance(resolve, str):
        return merged
    chosen = sides.ours if resolve == "ours" else sides.theirs
    settled = {name: dict(rows) for name, rows in merged.items()}
    for name, id_ in sorted(item for conflict in found for item in conflict.entities):
        settled[name].pop(id_, None)
        if id_ in chosen[name]:
            settled[name][id_] = chosen[name][id_]
    return settled


# --- one state ----------------------------------------------------------------------------------------------


def violations(types: Mapping[str, Type], state: State, sides: Sides | None = None) -> list[Conflict]:
    """What is wrong with a state: all findings of the first rule that finds any.

    With the sides that it was merged from, they tell which entities are to be settled.
    """
    for rule in RULES:
        found = [item for type_ in types.values() for item in rule(type_, state, sides)]
        if found:
            return found
    return []


def unique_violations(type_: Type, state: State, _: Sides | None) -> list[Conflict]:
    """Values that two rows hold."""
    found = []
    for name in type_.unique:
        values = {row[name] for row in state[type_.name].values()} - {None}
        for value in values:
            ids = frozenset(id_ for id_, row in state[type_.name].items() if row[name] == value)
            if len(ids) > 1:
                entities = frozenset((type_.name, id_) for id_ in ids)
                found.append(Conflict("unique_violation", type_.name, ids, name, entities=entities))
    return found


def orphan_edges(type_: Type, state: State, _: Sides | None) -> list[Conflict]:
    """Ends of edges where no node is."""
    found = []
    for end, node in zip(("from", "to"), type_.ends or (), strict=False):
        for id_, row in state[type_.name].items():
            if row[end] not in state[node]:
                entities = frozenset([(type_.name, id_), (node, str(row[end]))])
                found.append(Conflict("orphan_edge", type_.name, frozenset([id_]), end, entities=entities))
    return found


def cardinality_violations(type_: Type, state: State, sides: Sides | None) -> list[Conflict]:
    """Nodes that too many edges leave."""
    if type_.most is None:
        return []
    found = []
    sources = [row["from"] for row in state[type_.name].values()]
    for source in dict.fromkeys(sources):
        count = sources.count(source)
        if count > type_.most:
            what = f"source '{source}' has {count} edges (max {type_.most})"
            message = f"@card violation on edge {type_.name}: {what}"
            entities = frozenset() if sides is None else _changed_edges(type_.name, source, sides)
            found.append(
                Conflict("cardinality_violation", type_.name, frozenset(), None, message, entities=entities)
            )
    return found


def _changed_edges(name: str, source: Value, sides: Sides) -> frozenset[tuple[str, str]]:
    """The edges that leave a node, or left it, and that a side changed."""
    states = (sides.base[name], sides.ours[name], sides.theirs[name])
    found = set()
    for id_ in {id_ for rows in states for id_ in rows}:
        images = [rows.get(id_) for rows in states]
        leaves = any(image is not None and image["from"] == source for image in images)
        if leaves and not images[0] == images[1] == images[2]:
            found.add((name, id_))
    return frozenset(found)


RULES: Final = (unique_violations, orphan_edges, cardinality_violations)


# --- two states ---------------------------------------------------------------------------------------------


def diff(before: State, after: State) -> list[Change]:
    """What became of every entity that is not the same."""
    found = []
    for name in after:
        for id_ in sorted(before[name].keys() | after[name].keys()):
            old, new = before[name].get(id_), after[name].get(id_)
            if old is None:
                found.append(Change(name, id_, "insert", old, new))
            elif new is None:
                found.append(Change(name, id_, "delete", old, new))
            elif old != new:
                found.append(Change(name, id_, "update", old, new))
    return found
