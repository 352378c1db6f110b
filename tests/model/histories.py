"""Random histories of a small graph: branches, writes, compactions, merges in any direction, reverts.

A history is short, and its cost depends on the number of commits rather than rows. Histories with the same
sequence of steps are therefore run as one: each has a lane with its own ids, and every step acts on all lanes
at once. Rows of two lanes never interact, so each lane is merged as it would be alone. Lanes are combined if
their steps are equal except for the rows, and if the same steps are rejected for the same reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from random import Random
from typing import Final, Literal, TypeAlias

from tests.model.history_steps import (
    TYPES,
    Age,
    Compact,
    Delete,
    Fork,
    History,
    Load,
    Merge,
    Mutate,
    Put,
    Revert,
    Step,
    after,
    foresee,
    is_of_rows,
)
from tests.model.merge_oracle import Conflicts, Repository, Row, Side, State, Value, violations

NAMES: Final = ("Ana", "Bo", "Cy", "Di", "Ed", "Flo")
TITLES: Final = ("red", "blue")
AGES: Final = (None, 1, 2, 3)
WEIGHTS: Final = (None, 0.5, 1.5)
TAGS: Final[tuple[Value, ...]] = (None, (), ("x",), ("x", "y"))

_SIDES: Final[tuple[Side, ...]] = ("ours", "theirs")


# --- the course of a history --------------------------------------------------------------------------------

Kind: TypeAlias = Literal[
    "people",
    "new people",
    "knows",
    "leads",
    "teams",
    "mixed",
    "ages",
    "cull",
    "back",
    "age",
    "leave",
    "cut",
    "replace",
]
# Writes that can act on any number of lanes at once.
_WIDE: Final[Mapping[Kind, int]] = {
    "people": 6,
    "new people": 2,
    "knows": 5,
    "leads": 4,
    "teams": 1,
    "mixed": 3,
    "ages": 3,
    "cull": 4,
    "back": 3,
}
# Writes that need one statement for each lane.
_NARROW: Final[Mapping[Kind, int]] = {**_WIDE, "age": 4, "leave": 5, "cut": 4, "replace": 4}


@dataclass(frozen=True)
class Write:
    """A write without its rows."""

    branch: str
    kind: Kind


@dataclass(frozen=True)
class _Writes:
    random: Random
    kinds: Mapping[Kind, int]

    def on(self, branch: str) -> Write:
        return Write(branch, self.random.choices(list(self.kinds), list(self.kinds.values()))[0])


def plan_course(random: Random, kinds: Mapping[Kind, int]) -> list[Step | Write]:
    """Return the steps of a history without rows. The first three create the initial state."""
    write = _Writes(random, kinds)
    start: list[Step | Write] = [Fork("a", "main"), Write("a", "mixed"), Fork("b", "a")]
    if random.random() < 0.3:
        return [*start, *_criss_cross(random, write)]
    branches = ["a", "b"]
    theirs = write.on("b")
    steps: list[Step | Write] = [theirs]
    # Two sides with the same kind of write conflict most often.
    steps.append(replace(theirs, branch="a") if random.random() < 0.7 else write.on("a"))
    for _ in range(random.randint(0, 5)):
        draw = random.random()
        if draw < 0.58:
            steps.append(write.on(random.choice(branches)))
        elif draw < 0.80:
            steps.append(_merge(random, branches))
        elif draw < 0.88:
            steps.append(Compact(random.choice(branches)))
        elif draw < 0.94 and len(branches) < 4:
            name = "cd"[len(branches) - 2]
            steps.append(Fork(name, random.choice(branches)))
            branches.append(name)
        else:
            branch = random.choice(branches)
            of = branch if random.random() < 0.8 else random.choice(branches)
            steps.append(
                Revert(branch, of, random.randint(0, 2), random.choice((None, None, "ours", "theirs")))
            )
    return [*start, *steps, _merge(random, branches)]


def _criss_cross(random: Random, write: _Writes) -> Iterator[Step | Write]:
    """Merge branches into each other, so that their last merge has several merge bases.

    Each round merges the heads of the round before in both directions, so that later rounds have merge bases which
    have several merge bases themselves. In some histories a third branch is merged into both: three merge bases.
    """
    third = random.random() < 0.25
    if third:
        yield Fork("d", "a")
    for number in range(random.choice((1, 1, 1, 2, 2, 3))):
        yield from (write.on("a"), write.on("b"))
        heads = [f"a{number}", f"b{number}"]
        yield from (Fork(heads[0], "a"), Fork(heads[1], "b"))
        if third and number == 0:
            yield write.on("d")
            heads.append("d")
        for branch in "ab":
            sources = [head for head in heads if head[0] != branch]
            random.shuffle(sources)
            # Most merges take a side, because without the merge there is no criss-cross.
            yield from (Merge(head, branch, random.choice((None, "each", *_SIDES * 3))) for head in sources)
    for _ in range(random.randint(0, 3)):
        yield _later(random, write)
    yield _merge(random, ["a", "b"])


def _later(random: Random, write: _Writes) -> Step | Write:
    """Return a step after the merges: a write, or a revert, which may undo a merge or a merged change."""
    branch = random.choice("ab")
    if random.random() < 0.7:
        return write.on(branch)
    return Revert(branch, branch, random.randint(0, 2), random.choice((None, *_SIDES)))


def _merge(random: Random, branches: list[str]) -> Merge:
    source, into = random.sample(branches, 2)
    return Merge(source, into, random.choice((None, None, None, "ours", "theirs", "each")))


def merge_base_shapes(run: Run) -> Counter[tuple[int, int]]:
    """Count the merges of a history by their number of merge bases and the depth of nested ones.

    One merge base has depth 0, several have depth 1, and several with several merge bases of their own depth 2.
    """
    repository = Repository(TYPES)
    found: Counter[tuple[int, int]] = Counter()
    for step in run.steps:
        if isinstance(step, Merge):
            ours, theirs = [repository.heads[step.into]], repository.heads[step.source]
            found[len(repository.bases(ours, theirs)), repository.base_depth(ours, theirs)] += len(run.lanes)
        with suppress(Conflicts):
            foresee(repository, step)
    return found


# --- rows ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rower:
    """Chooses rows for one lane. All its ids have the same suffix."""

    random: Random
    suffix: str

    def fill(self, write: Write, state: State, before: State) -> Load | Mutate:
        """Return a write that the state allows, or an empty one after some attempts."""
        step = self._try(write, state, before)
        for _ in range(6):
            if not violations(TYPES, after(state, step)):
                return step
            step = self._try(write, state, before)
        return replace(step, statements=()) if isinstance(step, Mutate) else replace(step, rows={})

    def _try(self, write: Write, state: State, before: State) -> Load | Mutate:
        pick, people = self.random.choice, sorted(state["Person"]) or [self._name(False)]
        match write.kind:
            case "age":
                return Mutate(write.branch, (Age(pick((1, 2, 3)), "name", pick(people)),))
            case "ages":
                # Equal in every lane, because one statement acts on all of them.
                return Mutate(write.branch, (Age(2, "age", 1), Age(3, "age", 2)))
            case "leave":
                return Mutate(write.branch, (Delete("Person", "name", pick(people)),))
            case "cull":
                what = Delete("Knows", "weight", 0.5) if write.branch == "c" else Delete("Person", "age", 3)
                return Mutate(write.branch, (what,))
            case "cut":
                return Mutate(write.branch, (Delete(pick(("Knows", "Leads")), "from", pick(people)),))
            case "replace":
                name = pick(people)
                row = state["Person"].get(name) if self.random.random() < 0.5 else None
                put = Put(tuple((row or self._person(name)).items()))
                return Mutate(write.branch, (Delete("Person", "name", name), put))
            case "back":
                return Load(write.branch, "append", dict(self._back(state, before)))
        rows = dict(self._rows(write.kind, state, not before))
        if write.kind != "new people":
            return Load(write.branch, "merge", rows)
        return Load(
            write.branch, "append", {at: row for at, row in rows.items() if at[1] not in state[at[0]]}
        )

    def _rows(self, kind: Kind, state: State, first: bool) -> Iterator[tuple[tuple[str, str], Row]]:
        many = 8 if first else self.random.randint(1, 4)
        people = dict(state["Person"])
        teams = dict(state["Team"])
        if kind in ("people", "new people", "mixed"):
            for name in sorted({self._name(first) for _ in range(many)}):
                people[name] = self._changed("Person", people.get(name)) or self._person(name)
                yield ("Person", name), people[name]
        if kind == "teams" or (kind == "leads" and not teams) or first:
            title = self.random.choice(TITLES) + self.suffix
            teams[title] = {"title": title}
            yield ("Team", title), teams[title]
        if kind in ("knows", "mixed") and people:
            for number in sorted({self.random.randint(1, 4) for _ in range(many)}):
                id_ = f"k{number}{self.suffix}"
                yield ("Knows", id_), self._changed("Knows", state["Knows"].get(id_)) or self._edge(people)
        if (kind == "leads" or first) and people:
            ends = {"from": self._one(people), "to": self._one(teams)}
            yield ("Leads", f"l{self.random.randint(1, 3)}{self.suffix}"), ends

    def _back(self, state: State, before: State) -> Iterator[tuple[tuple[str, str], Row]]:
        """Return rows that the last commit deleted, unchanged or changed; edges only if both ends exist."""
        for name in before:
            for id_ in sorted(before[name].keys() - state[name].keys()):
                row = before[name][id_]
                yield (name, id_), (self._changed(name, row) if self.random.random() < 0.4 else None) or row

    def _changed(self, name: str, row: Row | None) -> Row | None:
        """Return the row with one value changed in most cases, which leads to merges by property."""
        if row is None or name in ("Team", "Leads") or self.random.random() < 0.3:
            return None
        new = self._person("") if name == "Person" else {"weight": self.random.choice(WEIGHTS)}
        key = self.random.choice([key for key in new if key != "name"])
        return {**row, key: new[key]}

    def _person(self, name: str) -> Row:
        email = self.random.choice((None, None, "x@", "y@", "z@"))
        return {
            "name": name,
            "age": self.random.choice(AGES),
            "email": None if email is None else email + self.suffix,
            "tags": self.random.choice(TAGS),
        }

    def _edge(self, people: Mapping[str, Row]) -> Row:
        return {"from": self._one(people), "to": self._one(people), "weight": self.random.choice(WEIGHTS)}

    def _one(self, rows: Mapping[str, Row]) -> str:
        return self.random.choice(sorted(rows))

    def _name(self, first: bool) -> str:
        """Return any name at first, later one of few, so that both sides change the same people."""
        few = not first and self.random.random() < 0.7
        return self.random.choice(NAMES[:2] if few else NAMES) + self.suffix


# --- histories ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """Histories to run as one: their lanes and the steps of all of them."""

    seed: int
    lanes: tuple[int, ...]
    steps: History

    def __str__(self) -> str:
        return f"{self.seed}:{','.join(map(str, self.lanes))}"


def runs(seed: int, lanes: Sequence[int], wide: bool) -> list[Run]:
    """Return the histories of a seed, with equal ones combined.

    Wide histories have only writes that act on many lanes at once.
    """
    course = plan_course(Random(seed), _WIDE if wide else _NARROW)
    made = [(signature, lane, steps) for lane in lanes for signature, steps in [_lane(seed, lane, course)]]
    found = []
    for _, group in groupby(sorted(made, key=lambda item: item[:2]), lambda item: item[0]):
        members = list(group)
        steps = tuple(_together(step) for step in zip(*(item[2] for item in members), strict=True))
        found.append(Run(seed, tuple(item[1] for item in members), steps))
    return found


def _lane(seed: int, lane: int, course: Sequence[Step | Write]) -> tuple[str, History]:
    """A history and the reasons of its rejected steps."""
    rower = Rower(Random(f"{seed}/{lane}"), f".{lane}")
    repository = Repository(TYPES)
    steps: list[Step] = []
    signature: list[str] = []
    for number, step in enumerate(course):
        if isinstance(step, Write):
            step = rower.fill(step, *_states(repository, step.branch))
        steps.append(step)
        try:
            foresee(repository, step)
        except Conflicts as error:
            first = error.found[0]
            signature.append(f"{number} {'rows' if is_of_rows(first) else first.kind}")
    return " ".join(signature), tuple(steps)


def _states(repository: Repository, branch: str) -> tuple[State, State]:
    """Return the state of a branch and its previous state, which is empty for the first commit."""
    head = repository.commits[repository.heads[branch]]
    return head.state, repository.commits[head.parents[0]].state if head.parents else {}


def _together(steps: Sequence[Step]) -> Step:
    first = steps[0]
    if isinstance(first, Load):
        rows = {at: row for step in steps if isinstance(step, Load) for at, row in step.rows.items()}
        return replace(first, rows=rows)
    if isinstance(first, Mutate):
        statements = [item for step in steps if isinstance(step, Mutate) for item in step.statements]
        return replace(first, statements=tuple(dict.fromkeys(statements)))
    return first
