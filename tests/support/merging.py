"""Does the steps of a history on a graph and in the model at once, and sees that the same comes of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation, InvalidInput, MergeConflicts
from omnigraph.graph.snapshot import Snapshot
from omnigraph.rules.violations import MAX_REPORTED
from tests.model.history_steps import (
    TYPES,
    Age,
    Compact,
    Delete,
    Fork,
    Load,
    Merge,
    Mutate,
    Put,
    Revert,
    Statement,
    Step,
    after,
    commit_to_revert,
    is_of_rows,
    is_refused,
    place_of,
    settle,
)
from tests.model.merge_oracle import (
    Change,
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
    Value,
    diff,
    violations,
)

# What a merge or a revert gave: a label and a commit; or the conflicts.
Given: TypeAlias = tuple[str, og.Commit | None] | tuple[dict[str, Any], ...]
_ENDS = {"src": "from", "dst": "to"}


@dataclass
class Replay:
    """A graph with branches of its own for one history, the model of it, and the commits they have in common.

    `read` remembers table versions that were read, which never change; several replays may share it.
    """

    graph: og.Graph
    prefix: str
    genesis: str
    read: dict[tuple[str, int], Rows] = field(default_factory=dict)
    repository: Repository = field(default_factory=lambda: Repository(TYPES))
    ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.ids:
            self.ids.append(self.genesis)

    def aside(self) -> Replay:
        """The same graph with a model of its own, so that what is done there, or fails, is forgotten here."""
        model = replace(
            self.repository, commits=list(self.repository.commits), heads=dict(self.repository.heads)
        )
        return replace(self, repository=model, ids=list(self.ids))

    def run(self, steps: Iterable[Step]) -> None:
        """Do the steps, and look at every branch after each."""
        for number, step in enumerate(steps):
            try:
                self.apply(step)
                self.check()
            except Exception as error:
                error.add_note(f"at step {number}: {step}")
                raise

    def apply(self, step: Step) -> None:
        """Do one step on both sides."""
        repository = self.repository
        match step:
            case Fork(name, source):
                self.graph.branches.create(self.prefix + name, at=self.ids[repository.heads[source]])
                repository.branch(name, source)
            case Load() | Mutate():
                self._write(step, repository.state(step.branch))
            case Compact(branch):
                compacted = self.graph.optimize(branch=self.prefix + branch).commit
                if compacted is not None:
                    self._committed(branch, repository.state(branch), compacted)
            case Merge(source, into, resolve):
                self.merge(source, into, None if resolve == "each" else resolve, resolve == "each")
            case Revert(branch, _, _, resolve):
                self.revert(commit_to_revert(repository, step), branch, resolve)

    def _write(self, step: Load | Mutate, before: State) -> None:
        state = after(before, step)
        if is_refused(step, before) or violations(TYPES, state):
            # A merge was refused that other lanes would have had, so that this write is one of those that fail.
            with pytest.raises(ConstraintViolation):
                self._real_write(step)
            return
        commit = self._real_write(step)
        if isinstance(step, Load):
            # A merge of rows that are all stored already makes no commit; a load without rows makes one.
            assert (commit is None) == (step.mode == "merge" and bool(step.rows) and before == state)
        if commit is None:
            assert before == state
        else:
            self._committed(step.branch, state, commit)

    def _real_write(self, step: Load | Mutate) -> og.Commit | None:
        branch = self.prefix + step.branch
        if isinstance(step, Load):
            return self.graph.load(records(step.rows), step.mode, branch=branch).commit
        if not step.statements:
            return None
        text = "query change() { " + "\n".join(map(statement_text, step.statements)) + " }"
        return self.graph.mutate(text, branch=branch).commit

    def merge(self, source: str, into: str, resolve: Resolve = None, each: bool = False) -> str:
        """Merge on both sides; how it went in a word. With `each`, what is in conflict is settled one by one."""
        given = self._real_merge(source, into, resolve if isinstance(resolve, str) else None)
        try:
            expected = self.repository.merge(source, into, resolve)
        except Conflicts as error:
            self._same_conflicts(error.found, given)
            if not each or not all(map(is_of_rows, error.found)):
                return "; ".join(sorted({item.kind for item in error.found}))
            return self._settled(source, into, given)
        self._same_outcome(expected.outcome, expected.commit, given)
        return expected.outcome

    def _settled(self, source: str, into: str, conflicts: Given) -> str:
        """The same merge again with every conflict settled."""
        found = [item for item in conflicts if isinstance(item, dict)]
        chosen = {item["id"]: settle(_place(item)) for item in found}
        given = self._real_merge(source, into, {id_: wire_choice(choice) for id_, choice in chosen.items()})
        resolve = {_place(item): chosen[item["id"]] for item in found}
        try:
            expected = self.repository.merge(source, into, resolve)
        except Conflicts as error:
            self._same_conflicts(error.found, given)
            return "; ".join(sorted({item.kind for item in error.found}))
        self._same_outcome(expected.outcome, expected.commit, given)
        return expected.outcome

    def _real_merge(self, source: str, into: str, resolve: Any) -> Given:
        try:
            done = self.graph.branches.merge(self.prefix + source, into=self.prefix + into, resolve=resolve)
        except MergeConflicts as error:
            return error.conflicts
        return done.outcome, done.commit

    def revert(self, number: int, branch: str, resolve: Side | None = None) -> None:
        """Undo a commit on both sides; one that the branch does not have is refused."""
        if number not in self.repository.distances(self.repository.heads[branch]):
            with pytest.raises(InvalidInput, match="not part of branch"):
                self.graph.revert(self.ids[number], branch=self.prefix + branch)
            return
        given: Given
        try:
            done = self.graph.revert(self.ids[number], branch=self.prefix + branch, resolve=resolve)
            given = done.outcome, done.commit
        except MergeConflicts as error:
            given = error.conflicts
        try:
            expected = self.repository.revert(number, branch, resolve)
        except Conflicts as error:
            self._same_conflicts(error.found, given)
            return
        if expected is None and isinstance(given[1], og.Commit):
            # Undoing a rewrite of equal values may bring back what was stored, but never other rows.
            expected = self.repository.commit(branch, self.repository.state(branch))
        self._same_outcome(None, expected, given)

    def _same_outcome(self, label: str | None, number: int | None, given: Given) -> None:
        assert isinstance(given[0], str), f"refused for {given}, where the model has no conflict"
        outcome, commit = given[0], given[1]
        assert label is None or outcome == label
        assert (commit is None) == (number is None)
        if isinstance(commit, og.Commit) and number is not None:
            self.ids.append(commit.id)
            assert commit.parents == tuple(self.ids[item] for item in self.repository.commits[number].parents)

    def _same_conflicts(self, expected: list[Conflict], given: Given) -> None:
        reported = [item for item in given if isinstance(item, dict)]
        assert reported, f"{given[0]}, where the model finds {expected}"
        assert len({item["id"] for item in reported}) == len(reported), "two conflicts have one id"
        if is_of_rows(expected[0]):
            told = [
                (*_named(item), *map(_said, (item["base"], item["ours"], item["theirs"])))
                for item in reported
            ]
            wanted = [(item.kind, *place_of(item), item.base, item.ours, item.theirs) for item in expected]
            assert sorted(told, key=str) == sorted(wanted, key=str)
            return
        assert {item["kind"] for item in reported} == {item.kind for item in expected}
        assert all(any(_is_about(given, item) for item in expected) for given in reported)
        # Violations of a constraint are listed up to a bound; histories of many lanes can exceed it.
        assert len(reported) <= MAX_REPORTED
        if len(reported) < MAX_REPORTED:
            assert all(any(_is_about(given, item) for given in reported) for item in expected)

    def _committed(self, branch: str, state: State, commit: og.Commit | None) -> None:
        assert commit is not None
        parent = self.ids[self.repository.heads[branch]]
        assert commit.parents == (parent,)
        self.repository.commit(branch, state)
        self.ids.append(commit.id)

    # --- looking -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every branch stands where the model says and holds what it says."""
        for branch in self.repository.heads:
            if branch != "main":
                self.check_branch(branch)

    def check_branch(self, branch: str) -> None:
        """The same of one branch."""
        number = self.repository.heads[branch]
        snapshot = self.graph.snapshot(self.prefix + branch)
        assert snapshot.commit_id == self.ids[number]
        assert self.state(snapshot) == self.repository.commits[number].state

    def state(self, snapshot: Snapshot) -> State:
        """All rows of a state."""
        found = {}
        for key, table in snapshot.catalog.tables.items():
            pin = snapshot.pin(key)
            at = (pin.path, pin.version)
            if at not in self.read:
                self.read[at] = rows_of(snapshot, key)
                assert len(self.read[at]) == pin.rows
            found[table.name] = self.read[at]
        return found

    def check_diff(self, before: int, after_: int) -> None:
        """The difference of two commits is what the model says."""
        commits = self.repository.commits
        expected = {
            (item.type_name, item.id): item for item in diff(commits[before].state, commits[after_].state)
        }
        given = list(self.graph.diff(self.ids[before], self.ids[after_]))
        assert {(item.type_name, item.id) for item in given} == expected.keys()
        assert len(given) == len(expected)
        for item in given:
            _same_change(expected[item.type_name, item.id], item)

    def drop(self, branch: str) -> None:
        """Delete a branch."""
        self.graph.branches.delete(self.prefix + branch)
        del self.repository.heads[branch]

    def close(self) -> None:
        """Delete the branches."""
        for branch in list(self.repository.heads):
            if branch != "main":
                self.drop(branch)


def _same_change(expected: Change, given: Any) -> None:
    assert given.op == expected.op
    assert given.kind == ("node" if TYPES[expected.type_name].ends is None else "edge")
    for told, row in ((given.before, expected.before), (given.after, expected.after)):
        assert (None if told is None else row_of(told)) == row
    if expected.op == "update":
        assert frozenset(given.changed) == expected.changed


def row_of(image: Mapping[str, Any]) -> Row:
    """An image of a change as the model has it."""
    values = {**image["properties"], **image.get("endpoints", {})}
    return {name: plain(value) for name, value in values.items()}


def _place(conflict: Mapping[str, Any]) -> Place:
    return conflict["type_name"], conflict["entity_id"], conflict["property"]


def _said(value: Any) -> Value | Row:
    """What a side has, as the model has it: the value of a property, or a whole row."""
    return row_of(value) if isinstance(value, dict) else plain(value)


def _named(conflict: Mapping[str, Any]) -> tuple[str, str, str, str | None]:
    assert conflict["entity_kind"] == ("node" if TYPES[conflict["type_name"]].ends is None else "edge")
    return conflict["kind"], *_place(conflict)


def _is_about(given: Mapping[str, Any], expected: Conflict) -> bool:
    """Whether a conflict that was reported is one that was expected, whoever of those involved is blamed."""
    if (given["kind"], given["type_name"]) != (expected.kind, expected.type_name):
        return False
    if expected.message is not None:
        return bool(given["message"] == expected.message)
    return given["entity_id"] in expected.ids


def wire_choice(choice: Choice) -> Any:
    """A choice as the API takes it."""
    return {"value": choice.value} if isinstance(choice, To) else choice


def plain(value: Any) -> Value:
    """A value as the model has it."""
    found: Value = tuple(value) if isinstance(value, list) else value
    return found


def rows_of(snapshot: Snapshot, key: str) -> dict[str, Row]:
    """The rows of a table as the model has them."""
    table = snapshot.table(key)
    scanned = snapshot.scan(key)
    columns = {
        _ENDS.get(column.name, column.name): scanned.column(column.physical).to_pylist()
        for column in table.columns
    }
    ids = columns.pop("id")
    rows: dict[str, Row] = {
        id_: {name: plain(values[place]) for name, values in columns.items()} for place, id_ in enumerate(ids)
    }
    assert len(rows) == len(ids), "an id occurs twice"
    return rows


def records(rows: Mapping[tuple[str, str], Row]) -> list[dict[str, Any]]:
    """Rows as a load takes them."""
    found: list[dict[str, Any]] = []
    for (name, id_), row in rows.items():
        data = {key: list(item) if isinstance(item, tuple) else item for key, item in row.items()}
        if TYPES[name].ends is None:
            found.append({"type": name, "data": data})
        else:
            ends = {end: data.pop(end) for end in ("from", "to")}
            found.append({"edge": name, **ends, "data": {"id": id_, **data}})
    return found


def statement_text(statement: Statement) -> str:
    """A statement in the query language."""
    match statement:
        case Put(values):
            given = ", ".join(f"{name}: {_literal(value)}" for name, value in values if value is not None)
            return f"insert Person {{ {given} }}"
        case Age(age, where, equals):
            return f"update Person set {{ age: {age} }} where {where} = {_literal(equals)}"
        case Delete(name, where, equals):
            return f"delete {name} where {where} = {_literal(equals)}"


def _literal(value: Value) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)
