"""Clients of a server, several in one process, each with a journal of its requests and responses.

    python -m bench.traffic_client '{"url": "http://127.0.0.1:8080", "folder": "…", "first": 0, "clients": 16, …}'

The process prints ``ready``, waits for a line on stdin, and lets its clients send random requests until the next
line. A client records a broken connection in its journal and continues.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import uvloop

from bench import traffic_graph as asked
from bench.traffic_http import HttpClient, NotAnswered, NotSent
from bench.traffic_journal import UNANSWERED, UNSENT, Journal

PATIENCE = 120.0
# Seconds to wait before retrying a refused connection: many immediate retries would slow the start of the server.
PAUSE = 0.5
RESENDS = 50
# Fraction of successful requests that are sent again.
_DOUBTS = 0.2
_HISTORY = 20

Answer: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Crowd:
    """The clients of one process. `total` counts those of all processes; the first ones write to main."""

    url: str
    folder: str
    first: int
    clients: int
    total: int
    writers: int
    seed: int
    # If not 0, the clients only insert, each on one of so many branches.
    lanes: int = 0

    def to_argument(self) -> str:
        """Return the JSON argument of the process."""
        return json.dumps(asdict(self))


class Client:
    """One client. It sends one request at a time, and writes only to its own pairs."""

    def __init__(self, crowd: Crowd, number: int, journal: Journal) -> None:
        self._crowd = crowd
        self._number = number
        self._journal = journal
        self._chance = random.Random(f"{crowd.seed}/{number}")
        actor = asked.ACTORS[number % len(asked.ACTORS)]
        headers = {"Authorization": f"Bearer {asked.token_of(actor)}"}
        self._http = HttpClient(f"{crowd.url}/graphs/{asked.GRAPH}", headers, PATIENCE)
        self._made = 0
        self._pairs: dict[str, int] = {}
        self._gone: list[str] = []
        self._sequence = 0
        self._cursor: str | None = None
        self._over = asyncio.Event()

    async def run(self, over: asyncio.Event) -> None:
        """Send random requests until the run ends. Each client starts with a different kind."""
        self._over = over
        if self._crowd.lanes:
            while not over.is_set():
                await self.insert_on_lane()
            return
        acts, weights = zip(*(WRITES + READS if self._number < self._crowd.writers else READS), strict=True)
        act = acts[self._number % len(acts)]
        while not over.is_set():
            await act(self)
            act = self._chance.choices(acts, weights)[0]

    # --- reading -----------------------------------------------------------------------------------------

    async def point(self) -> None:
        """Look up a person by name: one of the ring, one of an own pair, or a deleted one, and check the result."""
        chosen = self._chance.random()
        if chosen < 0.4 and self._pairs:
            pair, age = self._chance.choice(list(self._pairs.items()))
            name = asked.member(pair, self._chance.choice(asked.SIDES))
            expected: list[int | None] = [age]
        elif chosen < 0.5 and self._gone:
            name, expected = asked.member(self._chance.choice(self._gone), "a"), []
        else:
            name, expected = asked.ring_name(self._chance.randrange(asked.RING)), [None]
        found = await self._query("point", asked.POINT, {"n": name})
        if found is not None and [row["age"] for row in found["rows"]] != expected:
            self._journal.record_violation(f"{name} has {found['rows']}, and must have {expected}")

    async def hops(self) -> None:
        """Query two hops from a person of the ring, which never changes."""
        start = self._chance.randrange(asked.RING)
        found = await self._query("hops", asked.HOPS, {"n": asked.ring_name(start)})
        if found is None:
            return
        reached = {row["name"]: row["ways"] for row in found["rows"]}
        if reached != asked.ring_hops(start):
            self._journal.record_violation(f"from ring {start} one gets to {reached}")

    async def owned(self) -> None:
        """Query all people of a client. Every pair must be complete."""
        found = await self._query("owned", asked.OWNED, {"o": self._chance.randrange(self._crowd.total)})
        halves: dict[str, list[tuple[str, int]]] = {}
        for row in () if found is None else found["rows"]:
            halves.setdefault(row["pair"], []).append((row["side"], row["age"]))
        for pair, seen in halves.items():
            if sorted(side for side, _ in seen) != list(asked.SIDES) or len({age for _, age in seen}) != 1:
                self._journal.record_violation(f"pair {pair} was seen as {seen}")

    async def twins(self) -> None:
        """Query all edges of a client with the stored query. Both endpoints must be of one pair."""
        body = {"params": {"o": self._chance.randrange(self._crowd.total)}}
        found = await self._send("stored", "POST", "/queries/twins", json=body)
        for row in () if found is None else found["rows"]:
            if (row["pair"], row["age"]) != (row["other"], row["other_age"]):
                self._journal.record_violation(f"an edge was seen between {row}")

    async def snapshot(self) -> None:
        """Check the row counts of a snapshot: two people and one edge for each pair."""
        found = await self._send("snapshot", "GET", "/snapshot")
        if found is None:
            return
        counts = {item["type_name"]: item["entity_count"] for item in found["datasets"]}
        if counts["Person"] - asked.RING != 2 * (counts["Knows"] - 2 * asked.RING):
            self._journal.record_violation(f"a state has {counts}")
        self._came_to(found["graph_manifest_version"])

    async def commits(self) -> None:
        """List the newest commits of main. Each must be the parent of the one before it in the list."""
        found = await self._send("commits", "GET", f"/commits?limit={_HISTORY}")
        newest = [] if found is None else found["commits"][:_HISTORY]
        for newer, older in pairwise(newest):
            if newer["parent_commit_id"] != older["graph_commit_id"]:
                self._journal.record_violation(f"the history has {older} below {newer}")
        if newest:
            self._came_to(newest[0]["graph_manifest_version"])

    async def feed(self) -> None:
        """Poll the change feed of main from the last cursor."""
        query = "start=now" if self._cursor is None else f"cursor={self._cursor}"
        found = await self._send("feed", "GET", f"/changes?{query}")
        # A page that ends within a commit is not continued: the next poll returns the whole commit again.
        if found is not None and "cursor" in found:
            self._cursor = found["cursor"]

    # --- writing -----------------------------------------------------------------------------------------

    async def insert(self) -> None:
        """Insert a pair with an idempotency key. Without a response it is sent again, and must be applied once."""
        pair, age = self._new_pair()
        done = await self._mutate("insert", asked.INSERT, self._of(pair, age), [pair], age=age, resend=True)
        if not done:
            return
        self._pairs[pair] = age
        if self._chance.random() < _DOUBTS:
            await self._insert_again(pair, age, done["commit"]["graph_commit_id"])

    async def insert_on_lane(self) -> None:
        """Insert a pair on the branch of the client."""
        pair, age = self._new_pair()
        branch = asked.lane(self._number % self._crowd.lanes)
        await self._mutate("insert", asked.INSERT, self._of(pair, age), [pair], age=age, branch=branch)

    async def _insert_again(self, pair: str, age: int, made: str) -> None:
        """Send the same request again, as after a lost response. It must get the same response."""
        body = {"query": asked.INSERT, "params": self._of(pair, age), "idempotency_key": self._key(pair)}
        found = await self._send("again", "POST", "/mutate", json=body)
        if found and found["commit"]["graph_commit_id"] != made:
            self._journal.record_violation(f"pair {pair} was made by {made}, and again by {found['commit']}")

    async def load(self) -> None:
        """Load two pairs, by one of the two load routes."""
        (one, age), (two, _) = self._new_pair(), self._new_pair()
        records = [record for pair in (one, two) for record in asked.pair_records(pair, self._number, age)]
        text = "".join(json.dumps(record) + "\n" for record in records)
        what = {"pairs": [one, two], "age": age, "branch": "main"}
        if self._chance.random() < 0.5:
            body = {"data": text, "mode": "append"}
            done = await self._send("load", "POST", "/load", what, json=body)
        else:
            headers = {"Content-Type": "application/x-ndjson"}
            path = "/load/ndjson?mode=append"
            done = await self._send("load", "POST", path, what, content=text, headers=headers)
        if done:
            self._pairs |= {one: age, two: age}

    async def update(self) -> None:
        """Update the age of an own pair."""
        pair = self._some_pair()
        if pair is None:
            return await self.insert()
        before = self._pairs.pop(pair)
        self._made += 1
        params = {"p": pair, "age": self._made}
        done = await self._mutate("update", asked.UPDATE, params, [pair], age=self._made)
        if done is not None:
            self._pairs[pair] = before if done == {} else self._made

    async def delete(self) -> None:
        """Delete an own pair."""
        pair = self._some_pair()
        if pair is None:
            return await self.insert()
        before = self._pairs.pop(pair)
        done = await self._mutate("delete", asked.DELETE, {"p": pair}, [pair])
        if done == {}:
            self._pairs[pair] = before
        elif done is not None:
            self._gone.append(pair)

    async def count(self) -> None:
        """Increment a shared counter on a branch, on condition that it has not changed since it was read."""
        branch = asked.tally(self._chance.randrange(asked.TALLIES))
        found = await self._query("value", asked.VALUE, {"n": "clicks"}, branch=branch)
        if found is None:
            return
        params = {"n": "clicks", "v": found["rows"][0]["value"] + 1}
        headers = {"Omnigraph-If-Graph-Commit": found["graph_commit_id"]}
        body = {"query": asked.COUNT, "params": params, "branch": branch}
        what = {"branch": branch, "base": found["graph_commit_id"]}
        await self._send("count", "POST", "/mutate/if-graph-commit", what, json=body, headers=headers)

    async def branch_work(self) -> None:
        """Create a branch, write to it, and merge it into main with deletion in the same request."""
        pair, age = self._new_pair()
        branch = f"work/{pair}"
        made = await self._send("branch", "POST", "/branches", {"branch": branch}, json={"name": branch})
        if not made:
            return
        params = self._of(pair, age)
        done = await self._mutate("insert", asked.INSERT, params, [pair], age=age, branch=branch)
        if not done:
            return
        body = {"source": branch, "delete_branch": True}
        if await self._send(
            "merge", "POST", "/branches/merge", {"branch": branch, "pairs": [pair]}, json=body
        ):
            self._pairs[pair] = age

    # --- parts -------------------------------------------------------------------------------------------

    async def _query(self, op: str, text: str, params: Answer, branch: str = "main") -> Answer | None:
        body = {"query": text, "params": params, "branch": branch}
        return await self._send(op, "POST", "/query", {"branch": branch}, json=body) or None

    async def _mutate(
        self,
        op: str,
        text: str,
        params: Mapping[str, Any],
        pairs: list[str],
        *,
        age: int | None = None,
        branch: str = "main",
        resend: bool = False,
    ) -> Answer | None:
        body = {"query": text, "params": params, "branch": branch}
        what: dict[str, Any] = {"pairs": pairs, "age": age, "branch": branch}
        if resend:
            body["idempotency_key"] = what["key"] = self._key(pairs[0])
        done = await self._send(op, "POST", "/mutate", what, json=body)
        for _ in range(RESENDS if resend else 0):
            if done is not None or self._over.is_set():
                break
            done = await self._send(op, "POST", "/mutate", what, json=body)
        return done

    async def _send(
        self, op: str, method: str, path: str, what: Mapping[str, Any] | None = None, **request: Any
    ) -> Answer | None:
        """Return the body of a success, an empty body for a rejection, and None if the outcome is unknown."""
        number = self._journal.begin(op, what or {"branch": "main"})
        began = time.perf_counter()
        try:
            response = await self._http.request(method, path, **request)
        except (NotSent, NotAnswered) as error:
            never = isinstance(error, NotSent)
            ms = (time.perf_counter() - began) * 1000
            self._journal.end(number, status=UNSENT if never else UNANSWERED, ms=ms, text=repr(error))
            await asyncio.sleep(PAUSE)
            return None
        outcome: dict[str, Any] = {
            "status": response.status,
            "ms": (time.perf_counter() - began) * 1000,
        }
        if response.status != 200:
            self._journal.end(number, text=response.body[:300].decode(), **outcome)
            return {}
        body: Answer = response.json()
        self._journal.end(number, **outcome, **_commits_of(body, (what or {}).get("branch", "main")))
        return body

    def _came_to(self, sequence: int) -> None:
        if sequence < self._sequence:
            self._journal.record_violation(f"main went back from commit {self._sequence} to {sequence}")
        self._sequence = sequence

    def _new_pair(self) -> tuple[str, int]:
        self._made += 1
        return f"c{self._number}-{self._made}", self._made

    def _key(self, pair: str) -> str:
        return f"{self._crowd.seed}-{pair}"

    def _some_pair(self) -> str | None:
        return self._chance.choice(list(self._pairs)) if self._pairs else None

    def _of(self, pair: str, age: int) -> dict[str, Any]:
        return asked.pair_params(pair, self._number, age)


Act: TypeAlias = Callable[[Client], Awaitable[None]]
READS: tuple[tuple[Act, int], ...] = (
    (Client.point, 16),
    (Client.hops, 6),
    (Client.owned, 6),
    (Client.twins, 8),
    (Client.snapshot, 6),
    (Client.commits, 3),
    (Client.feed, 4),
    (Client.count, 12),
)
WRITES: tuple[tuple[Act, int], ...] = (
    (Client.insert, 16),
    (Client.load, 6),
    (Client.update, 8),
    (Client.delete, 4),
    (Client.branch_work, 4),
)


def _commits_of(body: Answer, branch: str) -> dict[str, Any]:
    """Return the commits that a response names: of a write, of a state that was read, of a change feed."""
    if body.get("commit") is not None:
        commit = body["commit"]["graph_commit_id"]
        return {"commit": commit, "seen": [(branch, commit)]}
    if "graph_commit_id" in body:
        return {"seen": [(branch, body["graph_commit_id"])]}
    if body.get("commits"):
        return {"seen": [(branch, body["commits"][0]["graph_commit_id"])]}
    if "blocks" in body and "cursor" in body:
        return {"fed": [block["cause"]["graph_commit_id"] for block in body["blocks"]]}
    return {}


async def run_crowd(crowd: Crowd) -> None:
    """Run all clients of the process until there is a line on stdin, or its end."""
    numbers = range(crowd.first, crowd.first + crowd.clients)
    with ExitStack() as stack:
        journals = [stack.enter_context(Journal(Path(crowd.folder), number)) for number in numbers]
        clients = [Client(crowd, number, journal) for number, journal in zip(numbers, journals, strict=True)]
        over = asyncio.Event()
        running = asyncio.gather(*(client.run(over) for client in clients))
        await asyncio.to_thread(sys.stdin.readline)
        over.set()
        await running


def main() -> None:
    """Run the client process."""
    crowd = Crowd(**json.loads(sys.argv[1]))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    uvloop.run(run_crowd(crowd))


if __name__ == "__main__":
    main()
