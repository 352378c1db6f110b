"""What a graph that a server has can tell of changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from omnigraph.api.baselines import write_lines
from omnigraph.api.change_reads import ChangeReads
from omnigraph.api.changes import ChangeFilter, Diff, EntityChange, Kind, Op, State, check_state, outline
from omnigraph.api.commits import Commit, by_type_name, id_of
from omnigraph.client.request_names import filter_of, lines_of, lines_to_end, moment, segment
from omnigraph.errors import StorageError
from omnigraph.graph.argument_checks import require_text
from omnigraph.protocol.codec import decode, decode_snapshot

if TYPE_CHECKING:
    from omnigraph.changes.baseline import Baseline
    from omnigraph.changes.change_pages import ChangePage
    from omnigraph.changes.feed import FeedPage
    from omnigraph.client.transport import Transport
    from omnigraph.graph.snapshot import Snapshot


class RemoteChangeReads(ChangeReads):
    """The calls of a `RemoteGraph` that tell changes."""

    _transport: Transport
    _opened: dict[str, Any]

    def diff(
        self,
        before: State,
        after: State,
        *,
        kinds: Sequence[Kind] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[Op] | None = None,
    ) -> Diff:
        """What is different between two states; see `Graph.diff`. Each iteration is a request of its own."""
        wanted = ChangeFilter.of(kinds, types, ops)
        first, _ = self._state(before)
        second, branch = self._state(after)
        wanted.check_types(table.name for state in (first, second) for table in state.catalog.tables.values())
        named = {
            "before": _name(before, first),
            "before_commit": first.commit_id,
            "after": _name(after, second),
            "after_commit": second.commit_id,
        }
        return RemoteDiff(first, second, wanted, branch, transport=self._transport, named=named)

    def changes(
        self,
        commit_id: str | Commit,
        *,
        kinds: Sequence[Kind] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[Op] | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ChangePage:
        """What a commit changed, a page of it; see `Graph.changes`."""
        from omnigraph.changes.change_pages import ChangePage

        params = {**filter_of(kinds, types, ops), "limit": limit, "page_token": page_token}
        path = f"/commits/{segment(id_of(commit_id))}/changes"
        return self._transport.call("GET", path, partial(decode, ChangePage), params=params)

    def feed(
        self,
        *,
        branch: str = "main",
        start: str = "now",
        cursor: str | None = None,
        page_token: str | None = None,
        limit: int | None = None,
        max_commits: int = 128,
        kinds: Sequence[Kind] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[Op] | None = None,
    ) -> FeedPage:
        """The changes of a branch, commit by commit; see `Graph.feed`."""
        from omnigraph.changes.feed import FeedPage

        params = {
            **filter_of(kinds, types, ops),
            "branch": require_text("branch", branch),
            # What is not said excludes nothing.
            "start": None if start == "now" else start,
            "cursor": cursor,
            "page_token": page_token,
            "limit": limit,
            "max_commits": max_commits,
        }
        return self._transport.call("GET", "/changes", partial(decode, FeedPage), params=params)

    def baseline(
        self,
        target: str | Path | IO[str],
        *,
        branch: str = "main",
        kinds: Sequence[Kind] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[Op] | None = None,
    ) -> Baseline:
        """Write a state and the cursor to go on from; see `Graph.baseline`."""
        body = {"branch": require_text("branch", branch), **filter_of(kinds, types, ops)}
        with self._transport.stream("POST", "/changes/baseline", body=body) as chunks:
            lines = _BaselineLines(chunks)
            write_lines(target, lines, self._opened["storage_options"] or {})
        return lines.found

    def _state(self, named: State) -> tuple[Snapshot, str | None]:
        """The state that is meant, and the branch when it was named by one."""
        found = check_state(named)
        if isinstance(found, datetime):
            params = {"at": moment(found)}
        else:
            params = {"name": found if isinstance(found, str) else found.commit_id}
        return self._transport.call(
            "GET",
            "/state",
            lambda found: (decode_snapshot(found["snapshot"]), found["branch"]),
            params=params,
        )


@dataclass(frozen=True)
class RemoteDiff(Diff):
    """A difference that a server tells: of the states that were asked for, also when a branch has moved on."""

    transport: Transport = field(kw_only=True, repr=False, compare=False)
    named: Mapping[str, str] = field(kw_only=True, repr=False, compare=False)

    def __iter__(self) -> Iterator[EntityChange]:
        with self.transport.stream("GET", "/diff", params=self._asked()) as chunks:
            for lines in lines_to_end(chunks):
                # Many at a time are read in a third of the time.
                yield from decode(list[EntityChange], _document(b"[%s]" % b",".join(lines.splitlines())))

    __repr__ = Diff.__repr__

    def stats(self) -> dict[str, Mapping[str, int]]:
        """How many changes of each operation there are, by type; types without any are left out."""
        return self.transport.call(
            "GET",
            "/diff/stats",
            lambda found: decode(dict[str, Mapping[str, int]], found["stats"]),
            params=self._asked(),
        )

    def to_json(self) -> dict[str, Any]:
        """Which entities changed, without their values: edges before nodes, by type name. It is held in memory."""
        versions = {
            str(table.type_id): str(state.pin(key).version)
            for state in (self.before, self.after)
            for key, table in state.catalog.tables.items()
        }
        counts: dict[str, Counter[str]] = {}
        changes: list[dict[str, Any]] = []
        for change in sorted(self, key=lambda change: (change.kind != "edge", change.type_name)):
            key = f"{change.kind}:{change.type_name}"
            counts.setdefault(key, Counter(insert=0, update=0, delete=0))[change.op] += 1
            changes.append(outline(change, versions[change.type_id]))
        return {
            **self.heading(),
            "changes": changes,
            "stats": by_type_name({key: dict(found) for key, found in counts.items()}),
        }

    def _asked(self) -> dict[str, Any]:
        wanted = self.wanted
        return {**self.named, **filter_of(wanted.kinds or None, wanted.types or None, wanted.ops or None)}


class _BaselineLines:
    """The lines of a baseline as they come; `found` is what the last one says, once it has been read."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._last = b""

    def __iter__(self) -> Iterator[bytes]:
        for lines in lines_of(self._chunks):
            self._last = lines
            yield lines
        _ = self.found

    @property
    def found(self) -> Baseline:
        """The commit that was written out, and the cursor; without them the rest is worth nothing."""
        from omnigraph.changes.baseline import Baseline

        last = self._last.splitlines()[-1:]
        said = _document(last[0]) if last else None
        if not isinstance(said, dict) or "baseline" not in said:
            raise StorageError("the baseline ended before its last record", transient=True)
        return decode(Baseline, said["baseline"])


def _document(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise StorageError("the server sent a line that is not JSON") from error


def _name(named: State, found: Snapshot) -> str:
    """What a state is called when it is asked for again: a moment by the commit that was found there."""
    return named if isinstance(named, str) else found.commit_id
