"""What must hold of a graph after traffic: the journals of all clients against its history and its state.

The changes of main, commit by commit, are the timelines of its pairs: made, changed, removed, always whole. A
timeline is what the journal of the pair's client allows: what was acknowledged stands at the commit that was told,
once; what was refused does not stand; what was never answered stands or does not.
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
    """What a commit did to a pair. A pair that is removed has no age."""

    op: str
    commit: str
    age: int | None = None


@dataclass(frozen=True)
class History:
    """The commits of a graph, and those of each branch from the first to the head."""

    commits: Mapping[str, CommitRecord]
    chains: Mapping[str, Sequence[CommitRecord]]

    def place(self, branch: str, commit: str) -> int | None:
        """Where a commit stands on a branch; None if it does not."""
        found = self.commits.get(commit)
        chain = self.chains[branch]
        at = -1 if found is None else found.sequence - GENESIS_SEQUENCE
        return at if 0 <= at < len(chain) and chain[at].id == commit else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found: everything that is wrong, and how much there was to look at."""

    wrong: tuple[str, ...]
    commits: int
    recovered: int
    seconds: float


def check_traffic(folder: Path, stories: Sequence[Story], *, killed: bool) -> Verdict:
    """Open the graph itself, compare it with what clients were told, and write to it once more."""
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
    """What main's commits did to each pair, in order, and which of them did only a part of it."""
    timelines: dict[str, list[Event]] = defaultdict(list)
    wrong: list[str] = []
    # The first commit after the beginning is the one that made the ring.
    page = graph.feed(start=f"after:{history.chains['main'][1].id}", max_commits=512)
    while True:
        for block in page.blocks:
            commit = block.cause.graph_commit_id
            parts: dict[tuple[str, str], list[tuple[str, int | None]]] = defaultdict(list)
            for change in block.changes:
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
        if page.caught_up:
            return timelines, wrong
        if page.next_page_token is None:
            page = graph.feed(cursor=page.cursor, max_commits=512)
        else:
            page = graph.feed(page_token=page.next_page_token)


def _part(change: Any) -> tuple[str, str, int | None]:
    """The pair that a change is about, which part of it, and its age from then on."""
    if change.kind == "edge":
        source = (change.after or change.before)["endpoints"]["from"]
        return str(source).rpartition("-")[0], "edge", None
    pair, _, side = change.id.rpartition("-")
    return pair, side, None if change.after is None else change.after["properties"]["age"]


# --- against what clients were told -------------------------------------------------------------------------


def check_answers(story: Story, *, killed: bool) -> Iterator[str]:
    """Nothing but answers and refusals by conflict; without kills every request has its answer."""
    allowed = REFUSALS | {200} | ({UNANSWERED, UNSENT} if killed else set())
    for entry in story.entries:
        if entry.status not in allowed:
            yield f"client {story.client}: {entry.op} {entry.what} got {entry.status}: {entry.text}"
        elif "already has id" in entry.text:
            # Nobody else makes it, so the one that is there is its own.
            yield f"client {story.client}: {entry.op} {entry.what} was done and then refused: {entry.text}"


def check_sight(story: Story, history: History) -> Iterator[str]:
    """A branch never goes back under a client, and a feed leaves nothing out."""
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
    """Every commit that was told is there: once, where it was said to be, by whom, on top of what was asked for."""
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
    """What happened to each pair is what its client's journal allows, and nothing happened that nobody sent."""
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
        yield f"pair {pair} is nobody's: {timelines[pair]}"


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
    """The requests of a pair, those that were sent again under one key as one."""
    attempts = [entry for entry in entries if "key" in entry.what]
    if attempts:
        yield min(attempts, key=lambda entry: (not entry.is_done, not entry.is_open))
    for entry in entries:
        if "key" not in entry.what:
            yield entry


def _made_by(timelines: Mapping[str, Sequence[Event]], pair: str) -> str | None:
    return next((event.commit for event in timelines.get(pair, ())), None)


def _check_state(graph: og.Graph, timelines: Mapping[str, Sequence[Event]]) -> Iterator[str]:
    """The newest state is where the timelines end."""
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
    """A counter stands at what was acknowledged, and at most what was never answered more; one commit for each."""
    for branch in (tally(number) for number in range(TALLIES)):
        value = graph.query(VALUE, {"n": "clicks"}, branch=branch).rows()[0]["value"]
        sent = [e for s in stories for e in s.entries if e.op == "count" and e.what["branch"] == branch]
        done, doubtful = sum(e.is_done for e in sent), sum(e.is_open for e in sent)
        commits = len(history.chains[branch]) - 2
        if not done <= value <= done + doubtful or value != commits:
            yield f"LOST: {branch} is {value} by {commits} commits; {done} were told, {doubtful} left open"


def _check_branches(stories: Sequence[Story], history: History) -> Iterator[str]:
    """A branch that was merged is gone; one that nobody tried to merge stands where its last write put it."""
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
