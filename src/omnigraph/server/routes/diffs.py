"""Routes that name states, and tell what is different between two of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import IO, Annotated, Any, TypeAlias

from fastapi import Depends
from starlette.responses import Response

from omnigraph.api.changes import ChangeFilter, Diff, EntityChange
from omnigraph.api.graph import Graph
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.graph.snapshot import Snapshot
from omnigraph.protocol import responses
from omnigraph.protocol.codec import END, NDJSON, dump_json, encode_snapshot
from omnigraph.protocol.requests import Moment
from omnigraph.server.http.request_context import Called
from omnigraph.server.http.routing import EXACTLY, REPEATABLE, Responses, graph_router, refuse_unknown
from omnigraph.server.routes.exports import TEXT
from omnigraph.server.routes.history import Wanted

router = graph_router("diffs")

_STREAM: Responses = {
    200: {"description": "Changes, one JSON object a line.", "content": {NDJSON: {}}},
}
_SIDES = frozenset({"before", "after", "before_commit", "after_commit"})


@dataclass(frozen=True, slots=True)
class Sides:
    """Two states by name, a branch before a commit; each with the commit that it was found at before, if it was."""

    before: str
    after: str
    before_commit: str | None = None
    after_commit: str | None = None

    def find(self, graph: Graph, wanted: dict[str, Any]) -> Diff:
        """The difference, once both states may be read; nothing of it is read yet."""
        chosen = ChangeFilter.of(**wanted)
        first, _ = _find(graph, self.before, self.before_commit)
        second, branch = _find(graph, self.after, self.after_commit)
        chosen.check_types(table.name for state in (first, second) for table in state.catalog.tables.values())
        return Diff(first, second, chosen, branch)


async def _sides(
    before: str, after: str, before_commit: str | None = None, after_commit: str | None = None
) -> Sides:
    return Sides(before, after, before_commit, after_commit)


NamedSides: TypeAlias = Annotated[Sides, Depends(_sides)]


@router.get("/state", response_model=responses.State, responses=EXACTLY)
async def state(call: Called, name: str | None = None, at: Moment | None = None) -> Response:
    """The commit that a name stands for now: a branch before a commit; or a moment of main."""
    named = name if at is None else at
    if named is None or (name is not None and at is not None):
        raise InvalidInput("one of name and at is needed")

    def work(graph: Graph) -> tuple[Snapshot, str | None]:
        # The difference of a state to itself is that state, admitted and named like any other.
        found = graph.diff(named, named)
        return found.after, found.branch

    return await call.read(
        work,
        lambda found: {"branch": found[1], "graph_commit_id": found[0].commit_id},
        lambda found: {"branch": found[1], "snapshot": encode_snapshot(found[0])},
    )


@router.get("/diff", response_class=Response, responses=_STREAM)
async def diff(call: Called, sides: NamedSides, wanted: Wanted) -> Response:
    """What is different between two states, in order. A stream that breaks off is incomplete."""
    refuse_unknown(call.request, _SIDES | REPEATABLE)
    show = dump_json if call.exact else _plain

    def produce(graph: Graph, file: IO[bytes]) -> None:
        for change in sides.find(graph, wanted):
            file.write(show(change) + b"\n")
        if call.exact:
            file.write(END)

    return await call.stream(produce, TEXT)


@router.get("/diff/stats", response_model=responses.DiffStats, responses=EXACTLY)
async def diff_stats(call: Called, sides: NamedSides, wanted: Wanted) -> Response:
    """How many changes of each operation there are between two states, by type."""
    refuse_unknown(call.request, _SIDES | REPEATABLE)

    def work(graph: Graph) -> dict[str, Any]:
        found = sides.find(graph, wanted)
        before, after = found.commits
        return {"before": before, "after": after, "branch": found.branch, "stats": found.stats()}

    return await call.read(work)


def _plain(change: EntityChange) -> bytes:
    return json.dumps(change.to_json(), ensure_ascii=False, separators=(",", ":")).encode()


def _find(graph: Graph, name: str, commit: str | None) -> tuple[Snapshot, str | None]:
    """The state of a name, once it may be read, and the branch when it is one.

    One that was found at a commit before is that commit, whatever has become of the name since.
    """
    try:
        found = graph.diff(name, name)
    except NotFound:
        if commit is None:
            raise
    else:
        if commit in (None, found.after.commit_id):
            return found.after, found.branch
    return graph.snapshot(at=commit), None
