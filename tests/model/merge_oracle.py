"""A model of branches, merges and reverts in memory. Every commit holds all of its rows.

It is written for obvious correctness. A row is a mapping from property to value, with ``from`` and ``to`` for an
edge. Commits are numbered in the order of their creation.

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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Value: TypeAlias = int | float | str | tuple[str, ...] | None
Row: TypeAlias = Mapping[str, Value]
Rows: TypeAlias = Mapping[str, Row]
State: TypeAlias = Mapping[str, Rows]
Side: TypeAlias = Literal["ours", "theirs"]
Label: TypeAlias = Literal["already_up_to_date", "fast_forward", "merged"]

# A value on which several merge bases disagree. It equals no value that a commit has.
UNKNOWN: Final = "the merge bases disagree"
# A row on whose existence they disagree.
UNKNOWN_ROW: Final[Row] = {"": UNKNOWN}

# The subject of a conflict: type, id, and property, or None for the whole row.
Place: TypeAlias = tuple[str, str, str | None]


@dataclass(frozen=True)
class To:
    """A resolution of a conflict with a new value."""

    value: Value


Choice: TypeAlias = Side | To
Resolve: TypeAlias = Side | Mapping[Place, Choice] | None


@dataclass(frozen=True)
class Type:
    """A node type, or an edge type if it has ends, with its unique properties and maximum out-degree."""

    name: str
    ends: tuple[str, str] | None = None
    unique: tuple[str, ...] = ()
    most: int | None = None


@dataclass(frozen=True)
class Conflict:
    """A conflict between two states.

    `ids` are the ids that may be reported, if any. If a rule is violated, the choice of a side sets all `entities`,
    each a type and an id, to their state on that side.
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
    """The merge has conflicts, and no branch moves."""

    def __init__(self, found: list[Conflict]) -> None:
        super().__init__(found)
        self.found = found


@dataclass(frozen=True)
class Change:
    """The change of one entity between two states."""

    type_name: str
    id: str
    op: Literal["insert", "update", "delete"]
    before: Row | None
    after: Row | None

    @property
    def changed(self) -> frozenset[str]:
        """Return the changed properties; all properties of an added or removed row."""
        before, after = self.before or {}, self.after or {}
        if self.op != "update":
            return frozenset(before) | frozenset(after)
        return frozenset(name for name in after if before[name] != after[name])


@dataclass(frozen=True)
class Merge:
    """The outcome of a merge and the number of its commit."""

    outcome: Label
    commit: int | None


@dataclass(frozen=True)
class Commit:
    """A state and its parents: first the branch, then the merged commit."""

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
        """Return the rows of a branch."""
        return self.commits[self.heads[branch]].state

    def branch(self, name: str, source: str) -> None:
        """Create a branch at the head of another."""
        self.heads[name] = self.heads[source]

    def commit(self, branch: str, state: State, merged: int | None = None) -> int:
        """Commit a state to a branch."""
        parents = (self.heads[branch],) if merged is None else (self.heads[branch], merged)
        self.commits.append(Commit(parents, state))
        self.heads[branch] = len(self.commits) - 1
        return self.heads[branch]

    def bases(self, ours: Iterable[int], theirs: int) -> list[int]:
        """Return the best common ancestors: common ancestors that are not ancestors of another one.

        Several commits as ours stand for a merge of them.
        """
        reached = {number for start in ours for number in self.distances(start)}
        common = reached & self.distances(theirs).keys()
        below = {number for other in common for number in self.distances(other) if number != other}
        return sorted(common - below)

    def base_state(self, ours: Iterable[int], theirs: int) -> State:
        """Return the merge base: the state of the best common ancestor, or of all of them merged.

        They are merged in turn, with their own merge base. What is in conflict there is undecided.
        """
        bases = self.bases(ours, theirs)
        merged = self.commits[bases[0]].state
        for place, number in enumerate(bases[1:], 1):
            base = self.base_state(bases[:place], number)
            merged = merge_bases(self.types, Sides(base, merged, self.commits[number].state))
        return merged

    def base_depth(self, ours: Sequence[int], theirs: int) -> int:
        """Return how deeply virtual merge bases are nested; 0 for one merge base."""
        bases = self.bases(ours, theirs)
        nested = [self.base_depth(bases[:place], bases[place]) for place in range(1, len(bases))]
        return 1 + max(nested) if nested else 0

    def distances(self, start: int) -> dict[int, int]:
        """Return every ancestor of a commit, including itself, with its shortest distance over all parents."""
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
        bases = self.bases([ours], theirs)
        if bases == [theirs]:
            return Merge("already_up_to_date", None)
        merged = self._merged(self.base_state([ours], theirs), ours, theirs, resolve)
        return Merge("fast_forward" if bases == [ours] else "merged", self.commit(into, merged, theirs))

    def revert(self, number: int, branch: str, resolve: Resolve = None) -> int | None:
        """Revert a commit on a branch, or raise `Conflicts`: merge its first parent with the commit as base.

        Returns None, without a commit, if nothing changes.
        """
        base = self.commits[number].state
        merged = self._merged(base, self.heads[branch], self.commits[number].parents[0], resolve)
        return None if merged == self.state(branch) else self.commit(branch, merged)

    def _merged(self, base: State, ours: int, theirs: int, resolve: Resolve) -> State:
        sides = Sides(base, self.commits[ours].state, self.commits[theirs].state)
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
    """The three states of a merge."""

    base: State
    ours: State
    theirs: State


def merge_states(sides: Sides, resolve: Resolve) -> tuple[State, list[Conflict]]:
    """Return the merged changes of both sides, and the unresolved conflicts."""
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
        image = None if base is None or base is UNKNOWN_ROW else _known(base)
        found.append(Conflict("delete_vs_update", name, frozenset([id_]), None, None, image, ours, theirs))
        return None
    kind = "divergent_insert" if base is None else "divergent_update"
    merged: dict[str, Value] = {}
    for key in ours:
        mine, other = ours[key], theirs[key]
        before = None if base is None else UNKNOWN if base is UNKNOWN_ROW else base[key]
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
                    shown = None if before is UNKNOWN else before
                    found.append(Conflict(kind, name, frozenset([id_]), key, None, shown, mine, other))
    return merged


# --- several merge bases ------------------------------------------------------------------------------------


def merge_bases(types: Mapping[str, Type], sides: Sides) -> State:
    """Return the virtual merge base of two merge bases. What is in conflict is undecided, never chosen."""
    base, ours, theirs = sides.base, sides.ours, sides.theirs
    merged: dict[str, dict[str, Row]] = {}
    for name in ours:
        merged[name] = {}
        for id_ in sorted(base[name].keys() | ours[name].keys() | theirs[name].keys()):
            row = _merge_base_rows(base[name].get(id_), ours[name].get(id_), theirs[name].get(id_))
            if row is not None:
                merged[name][id_] = row
    while True:
        before = {name: dict(rows) for name, rows in merged.items()}
        for rule in RULES:
            decided = _decided(merged)
            for item in [item for type_ in types.values() for item in rule(type_, decided, sides)]:
                for name, id_ in item.entities:
                    if item.kind == "unique_violation" and item.property is not None:
                        merged[name][id_] = {**merged[name][id_], item.property: UNKNOWN}
                    else:
                        merged[name][id_] = UNKNOWN_ROW
            if merged != before:
                break
        else:
            return merged


def _merge_base_rows(base: Row | None, ours: Row | None, theirs: Row | None) -> Row | None:
    decided = base is not UNKNOWN_ROW and (base is None or UNKNOWN not in base.values())
    if ours == theirs or (decided and base == theirs):
        return ours
    if decided and base == ours:
        return theirs
    if ours is None or theirs is None or ours is UNKNOWN_ROW or theirs is UNKNOWN_ROW:
        return UNKNOWN_ROW
    merged: dict[str, Value] = {}
    for key in ours:
        before = UNKNOWN if base is None or base is UNKNOWN_ROW else base[key]
        if ours[key] == theirs[key] or (before is not UNKNOWN and before == theirs[key]):
            merged[key] = ours[key]
        elif before is not UNKNOWN and before == ours[key]:
            merged[key] = theirs[key]
        else:
            merged[key] = UNKNOWN
    return merged


def _decided(state: State) -> State:
    """Return a state without undecided rows, and with null for undecided values."""
    return {
        name: {id_: _known(row) for id_, row in rows.items() if row is not UNKNOWN_ROW}
        for name, rows in state.items()
    }


def _known(row: Row) -> Row:
    return {name: None if value is UNKNOWN else value for name, value in row.items()}


def _choice(resolve: Resolve, place: Place) -> Choice | None:
    return resolve.get(place) if isinstance(resolve, Mapping) else resolve


def settle_rules(sides: Sides, merged: State, found: list[Conflict], resolve: Resolve) -> State:
    """Return the state with all entities that violate a rule taken from the chosen side, if there is one."""
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
    """Return the violations of the first violated rule.

    With the sides of the merge, they include the entities to resolve.
    """
    for rule in RULES:
        found = [item for type_ in types.values() for item in rule(type_, state, sides)]
        if found:
            return found
    return []


def unique_violations(type_: Type, state: State, _: Sides | None) -> list[Conflict]:
    """Return unique values that two rows have."""
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
    """Return edges with a missing node."""
    found = []
    for end, node in zip(("from", "to"), type_.ends or (), strict=False):
        for id_, row in state[type_.name].items():
            if row[end] is not None and row[end] not in state[node]:
                entities = frozenset([(type_.name, id_), (node, str(row[end]))])
                found.append(Conflict("orphan_edge", type_.name, frozenset([id_]), end, entities=entities))
    return found


def cardinality_violations(type_: Type, state: State, sides: Sides | None) -> list[Conflict]:
    """Return nodes with too many outgoing edges."""
    if type_.most is None:
        return []
    found = []
    sources = [row["from"] for row in state[type_.name].values()]
    for source in dict.fromkeys(source for source in sources if source is not None):
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
    """Return the present and former outgoing edges of a node that a side changed."""
    states = (sides.base[name], sides.ours[name], sides.theirs[name])
    found = set()
    for id_ in {id_ for rows in states for id_ in rows}:
        images = [rows.get(id_) for rows in states]
        leaves = any(image is not None and image.get("from") == source for image in images)
        if leaves and not images[0] == images[1] == images[2]:
            found.add((name, id_))
    return frozenset(found)


RULES: Final = (unique_violations, orphan_edges, cardinality_violations)


# --- two states ---------------------------------------------------------------------------------------------


def diff(before: State, after: State) -> list[Change]:
    """Return the change of every entity that differs."""
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
