"""Verification after a load test: the journals of all clients against the history and the state of the graph.

The changes of main, commit by commit, give the timeline of each pair: inserted, updated, deleted, both halves at
once. A timeline must match the journal of its client: an acknowledged write is in the reported commit, once; a
rejected write is absent; a write without a response is present or absent.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import omnigraph as og
from bench.traffic_graph import ACTORS, GRAPH, INSERT, RING, SIDES, TALLIES, VALUE, pair_params, tally
from bench.traffic_journal import UNANSWERED, UNSENT, Entry, Story
from omnigraph.graph.repository import Repository
from omnigraph.store.manifest.records import GENESIS_SEQUENCE, CommitRecord

REFUSALS = frozenset({409, 412, 429})
_PEOPLE = """query people() {
  match { $p: Person } return { $p.name as name, $p.pair as pair, $p.side as side, $p.age as age } }"""
_EDGES = """query edges() {
  match { $a: Person { side: "a" }  $a knows $b } return { $a.pair as pair, $b.pair as other, $b.side as side } }"""


@dataclass(frozen=True, slots=True)
class Event:
    """The effect of a commit on a pair. A deleted pair has no age."""

    op: str
    commit: str
    age: int | None = None


@dataclass(frozen=True)
class History:
    """The commits of a graph, and those of each branch from the first commit to the head."""

    commits: Mapping[str, CommitRecord]
    chains: Mapping[str, Sequence[CommitRecord]]

    def place(self, branch: str, commit: str) -> int | None:
        """Return the position of a commit on a branch, or None."""
        found = self.commits.get(commit)
        chain = self.chains[branch]
        at = -1 if found is None else found.sequence - GENESIS_SEQUENCE
        return at if 0 <= at < len(chain) and chain[at].id == commit else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result: all violations, and the number of verified objects."""

    wrong: tuple[str, ...]
    commits: int
    recovered: int
    seconds: float


def check_traffic(folder: Path, stories: Sequence[Story], *, killed: bool) -> Verdict:
    """Open the graph, compare it with the journals, and make one more write."""
    began = time.perf_counter()
    uri = str(folder / f"{GRAPH}.omni")
    with og.open(uri) as graph:
        history, wrong = _read_history(uri)
        timelines, more = read_timelines(graph, history)
        wrong += more
        for story in stories:
            wrong += [*story.wrong, *check_answers(story, killed=killed), *check_sight(story, history)]
        wrong += check_acknowledged(stories, history)
        wrong += check_timelines(stories, timelines, history)
        wrong += _check_state(graph, timelines)
        wrong += _check_tallies(graph, stories, history)
        wrong += _check_branches(stories, history)
        added = graph.mutate(INSERT, pair_params("after", -1, 0)).commit
        if added is None or added.parents != (history.chains["main"][-1].id,):
            wrong.append(f"the next write made {added}")
    recovered = sum(item.recovered for item in history.commits.values())
    return Verdict(tuple(wrong), len(history.commits), recovered, time.perf_counter() - began)


# --- what the graph says ------------------------------------------------------------------------------------


def _read_history(uri: str) -> tuple[History, list[str]]:
    repository = Repository.open(uri, mode="r")
    view = repository.manifest.refresh()
    stored = list(repository.manifest.all_commits(view))
    wrong = [f"commit {id_} is stored {n} times" for id_, n in _repeated(item.id for item in stored)]
    chains = {}
    for branch in repository.branches():
        chain = list(reversed(list(repository.commits(branch))))
        chains[branch] = chain
        numbers = [item.sequence for item in chain]
        if numbers != list(range(GENESIS_SEQUENCE, GENESIS_SEQUENCE + len(chain))):
            wrong.append(f"the chain of {branch} is broken: {numbers}")
        astray = {item.id for item in stored if item.incarnation == repository.head(branch).incarnation}
        astray -= {item.id for item in chain}
        if astray:
            wrong.append(f"commits of {branch} are not in its history: {sorted(astray)}")
    repository.close()
    return History({item.id: item for item in stored}, chains), wrong


def read_timelines(graph: og.Graph, history: History) -> tuple[dict[str, list[Event]], list[str]]:
    """Return the effects of the commits of main on each pair, in order, and the partial ones as violations."""
    timelines: dict[str, list[Event]] = defaultdict(list)
    wrong: list[str] = []
    for commit, changes in _read_changes(graph, history.chains["main"][1].id).items():
        parts: dict[tuple[str, str], list[tuple[str, int | None]]] = defaultdict(list)
        for change in changes:
            pair, part, age = _part(change)
            parts[change.op, pair].append((part, age))
        if not parts:
            wrong.append(f"commit {commit} changed nothing")
        for (op, pair), seen in parts.items():
            whole = [*SIDES] if op == "update" else [*SIDES, "edge"]
            ages = {age for part, age in seen if part != "edge"}
            if sorted(part for part, _ in seen) != whole or len(ages) != 1:
                wrong.append(f"commit {commit} did a part of {op} to pair {pair}: {seen}")
            timelines[pair].append(Event(op, commit, ages.pop() if ages else None))
    return timelines, wrong


def _read_changes(graph: og.Graph, first: str) -> dict[str, list[Any]]:
    """Return the changes of each commit of main after the first, in order."""
    changes: dict[str, list[Any]] = defaultdict(list)
    # The first commit inserted the ring.
    page = graph.feed(start=f"after:{first}", max_commits=512)
    while True:
        for block in page.blocks:
            # The end of a page can be inside a commit.
            changes[block.cause.graph_commit_id].extend(block.changes)
        if page.caught_up:
            return changes
        if page.next_page_token is None:
            page = graph.feed(cursor=page.cursor, max_commits=512)
        else:
            page = graph.feed(page_token=page.next_page_token)


def _part(change: Any) -> tuple[str, str, int | None]:
    """Return the pair that a change affects, which part of it, and its new age."""
    if change.kind == "edge":
        source = (change.after or change.before)["endpoints"]["from"]
        return str(source).rpartition("-")[0], "edge", None
    pair, _, side = change.id.rpartition("-")
    return pair, side, None if change.after is None else change.after["properties"]["age"]


# --- against what clients were told -------------------------------------------------------------------------


def check_answers(story: Story, *, killed: bool) -> Iterator[str]:
    """Yield unexpected statuses. Allowed are success, conflict and, if the server was killed, no response."""
    allowed = REFUSALS | {200} | ({UNANSWERED, UNSENT} if killed else set())
    for entry in story.entries:
        if entry.status not in allowed:
            yield f"client {story.client}: {entry.op} {entry.what} got {entry.status}: {entry.text}"
        elif "already has id" in entry.text:
            # No other client inserts this pair, so the existing one is its own.
            yield f"client {story.client}: {entry.op} {entry.what} was done and then refused: {entry.text}"


def check_sight(story: Story, history: History) -> Iterator[str]:
    """Yield violations of monotonic reads, and gaps in a change feed."""
    reached: dict[str, int] = {}
    fed: list[int] = []
    for entry in story.entries:
        for branch, commit in entry.seen:
            if branch not in history.chains:
                continue
            place = history.place(branch, commit)
            if place is None:
                yield f"client {story.client} saw commit {commit}, which {branch} does not have"
            elif place < reached.get(branch, 0):
                yield f"client {story.client} saw {branch} go back from {reached[branch]} to {place}"
            reached[branch] = max(reached.get(branch, 0), place or 0)
        fed += [-1 if place is None else place for place in (history.place("main", id_) for id_ in entry.fed)]
    if fed and fed != list(range(fed[0], fed[0] + len(fed))):
        yield f"client {story.client} was fed {fed}"


def check_acknowledged(stories: Sequence[Story], history: History) -> list[str]:
    """Return violations of acknowledged commits: each exists once, with the reported branch, actor and parent."""
    told = [entry for story in stories for entry in story.entries if entry.commit is not None]
    times = _repeated(str(entry.commit) for entry in told if entry.op != "again")
    wrong = [f"commit {id_} was acknowledged {n} times" for id_, n in times]
    for entry in told:
        branch, found = entry.what["branch"], history.commits.get(str(entry.commit))
        if found is None:
            wrong.append(f"LOST: {entry} was acknowledged")
        elif branch in history.chains and history.place(branch, found.id) is None:
            wrong.append(f"LOST: {entry} is not on {branch}")
        elif (found.branch, found.actor) != (branch, ACTORS[entry.client % len(ACTORS)]):
            wrong.append(f"{entry} is recorded as {found}")
        elif "base" in entry.what and found.parent != entry.what["base"]:
            wrong.append(f"{entry} stands on {found.parent}")
    return wrong


def check_timelines(
    stories: Sequence[Story], timelines: Mapping[str, Sequence[Event]], history: History
) -> Iterator[str]:
    """Yield pairs whose timeline does not match the journal of their client, and writes that no client sent."""
    known: set[str] = set()
    for story in stories:
        sent: dict[str, list[Entry]] = defaultdict(list)
        for entry in story.entries:
            for pair in entry.what.get("pairs", ()):
                sent[pair].append(entry)
            made = {_made_by(timelines, pair) for pair in entry.what.get("pairs", ())}
            if entry.op == "load" and len(made) != 1:
                yield f"the pairs of {entry} were made by {made}"
        known |= sent.keys()
        for pair, entries in sent.items():
            yield from _check_pair(pair, entries, timelines.get(pair, ()), history)
    for pair in timelines.keys() - known:
        yield f"pair {pair} was not written by any client: {timelines[pair]}"


def _check_pair(
    pair: str, entries: Sequence[Entry], timeline: Sequence[Event], history: History
) -> Iterator[str]:
    left = list(timeline)
    for entry in _settled(entries):
        if entry.what["branch"] != "main" and entry.op != "merge":
            continue
        op = "insert" if entry.op in ("load", "merge") else entry.op
        event = left[0] if left else None
        fits = event is not None and event.op == op
        if event is not None and fits and entry.op == "merge":
            record = history.commits[event.commit]
            head = next(item.commit for item in entries if item.op == "insert")
            fits = record.operation == "merge" and record.merged_parent == head
        if entry.is_done:
            if event is None or not fits or entry.commit not in (None, event.commit):
                yield f"LOST: {entry} of pair {pair} was acknowledged, and there is {timeline}"
                return
            left.pop(0)
        elif entry.is_open and fits:
            left.pop(0)
    if left:
        yield f"pair {pair} has {left}, which its client was refused or never sent: {entries}"


def _settled(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Return the requests of a pair. Requests with the same idempotency key count as one."""
    attempts = [entry for entry in entries if "key" in entry.what]
    if attempts:
        yield min(attempts, key=lambda entry: (not entry.is_done, not entry.is_open))
    for entry in entries:
        if "key" not in entry.what:
            yield entry


def _made_by(timelines: Mapping[str, Sequence[Event]], pair: str) -> str | None:
    return next((event.commit for event in timelines.get(pair, ())), None)


def _check_state(graph: og.Graph, timelines: Mapping[str, Sequence[Event]]) -> Iterator[str]:
    """Yield differences between the newest state and the ends of the timelines."""
    expected = {pair: _age(events) for pair, events in timelines.items() if events[-1].op != "delete"}
    rows = graph.query(_PEOPLE).rows()
    halves = {(row["pair"], row["side"], row["age"]) for row in rows if row["pair"] is not None}
    if len(rows) - RING != len(halves) or halves != {
        (pair, side, age) for pair, age in expected.items() for side in SIDES
    }:
        yield f"the people of main are not those of its history: {len(rows)} rows, {len(expected)} pairs"
    edges = graph.query(_EDGES).rows()
    if sorted(row["pair"] for row in edges) != sorted(expected) or any(
        (row["other"], row["side"]) != (row["pair"], "b") for row in edges
    ):
        yield f"{len(edges)} edges join the halves of {len(expected)} pairs"


def _age(events: Sequence[Event]) -> int | None:
    return events[-1].age


def _check_tallies(graph: og.Graph, stories: Sequence[Story], history: History) -> Iterator[str]:
    """Yield counters that differ from the acknowledged increments, plus at most those without a response."""
    for branch in (tally(number) for number in range(TALLIES)):
        value = graph.query(VALUE, {"n": "clicks"}, branch=branch).rows()[0]["value"]
        sent = [e for s in stories for e in s.entries if e.op == "count" and e.what["branch"] == branch]
        done, doubtful = sum(e.is_done for e in sent), sum(e.is_open for e in sent)
        commits = len(history.chains[branch]) - 2
        if not done <= value <= done + doubtful or value != commits:
            yield f"LOST: {branch} is {value} by {commits} commits; {done} were told, {doubtful} left open"


def _check_branches(stories: Sequence[Story], history: History) -> Iterator[str]:
    """Yield merged branches that still exist, and other branches that are not at their last write."""
    for story in stories:
        last: dict[str, Entry] = {}
        for entry in story.entries:
            if str(entry.what.get("branch")).startswith("work/"):
                last[entry.what["branch"]] = entry
        for branch, entry in last.items():
            chain = history.chains.get(branch)
            if entry.op == "merge" and entry.is_done and chain is not None:
                yield f"{entry}: the branch is still there"
            if entry.op != "merge" and entry.is_done and chain is None:
                yield f"LOST: {entry}: the branch is not there"
            if chain is not None and entry.commit is not None and chain[-1].id != entry.commit:
                yield f"{entry}: the branch stands at {chain[-1].id}"


def _repeated(ids: Iterable[str]) -> list[tuple[str, int]]:
    return [(id_, times) for id_, times in Counter(ids).items() if times > 1]
