"""The changes of a remote graph."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from omnigraph.api.files.baseline_files import write_lines
from omnigraph.api.files.export_files import ExportTarget
from omnigraph.api.interface.change_reads import ChangeReads
from omnigraph.api.results.changes import ChangeFilter, Diff, EntityChange, State, check_state
from omnigraph.client.request_names import filter_params, segment, timestamp
from omnigraph.client.streamed_lines import lines_of, lines_to_end
from omnigraph.errors import StorageError
from omnigraph.graph.argument_checks import require_text
from omnigraph.protocol.codec import decode, decode_snapshot

if TYPE_CHECKING:
    from omnigraph.changes.baseline import Baseline
    from omnigraph.changes.change_pages import ChangePage
    from omnigraph.changes.feed import FeedPage, FeedRequest
    from omnigraph.client.transport import Transport
    from omnigraph.graph.snapshot import Snapshot


class RemoteChangeReads(ChangeReads):
    """`ChangeReads` on a server."""

    _transport: Transport
    _connection: dict[str, Any]

    def _diff(self, before: State, after: State, change_filter: ChangeFilter) -> Diff:
        first, _ = self._find_state(before)
        second, branch = self._find_state(after)
        change_filter.check_types(
            table.name for state in (first, second) for table in state.catalog.tables.values()
        )
        states = {
            "before": _state_name(before, first),
            "before_commit": first.commit_id,
            "after": _state_name(after, second),
            "after_commit": second.commit_id,
        }
        return RemoteDiff(first, second, change_filter, branch, transport=self._transport, states=states)

    def _changes(
        self, commit_id: str, change_filter: ChangeFilter, limit: int | None, page_token: str | None
    ) -> ChangePage:
        from omnigraph.changes.change_pages import ChangePage

        params = {**filter_params(change_filter), "limit": limit, "page_token": page_token}
        path = f"/commits/{segment(commit_id)}/changes"
        return self._transport.call("GET", path, partial(decode, ChangePage), params=params)

    def _feed(self, request: FeedRequest, limit: int | None) -> FeedPage:
        from omnigraph.changes.feed import FeedPage

        params = {
            **filter_params(request.change_filter),
            "branch": require_text("branch", request.branch),
            # The default is omitted because the server refuses a start together with a cursor.
            "start": None if request.start == "now" else request.start,
            "cursor": request.cursor,
            "page_token": request.page_token,
            "limit": limit,
            "max_commits": request.max_commits,
        }
        return self._transport.call("GET", "/changes", partial(decode, FeedPage), params=params)

    def _baseline(self, target: ExportTarget, branch: str, change_filter: ChangeFilter) -> Baseline:
        body = {"branch": require_text("branch", branch), **filter_params(change_filter)}
        with self._transport.stream("POST", "/changes/baseline", body=body) as chunks:
            lines = _BaselineLines(chunks)
            write_lines(target, lines, self._connection["storage_options"] or {})
        return lines.baseline

    def _find_state(self, state: State) -> tuple[Snapshot, str | None]:
        """Return the snapshot of a state, and its branch if a branch named it."""
        resolved = check_state(state)
        if isinstance(resolved, datetime):
            params = {"at": timestamp(resolved)}
        else:
            params = {"name": resolved if isinstance(resolved, str) else resolved.commit_id}
        return self._transport.call(
            "GET",
            "/state",
            lambda answer: (decode_snapshot(answer["snapshot"]), answer["branch"]),
            params=params,
        )


@dataclass(frozen=True, repr=False)
class RemoteDiff(Diff):
    """A `Diff` on a server. Each iteration is one request for the same two commits, even if a branch has moved."""

    transport: Transport = field(kw_only=True, compare=False)
    states: Mapping[str, str] = field(kw_only=True, compare=False)

    def __iter__(self) -> Iterator[EntityChange]:
        with self.transport.stream("GET", "/diff", params=self._params()) as chunks:
            for lines in lines_to_end(chunks):
                # Decoding many lines as one array takes a third of the time.
                yield from decode(list[EntityChange], _parse_json(b"[%s]" % b",".join(lines.splitlines())))

    def stats(self) -> dict[str, Mapping[str, int]]:
        return self.transport.call(
            "GET",
            "/diff/stats",
            lambda answer: decode(dict[str, Mapping[str, int]], answer["stats"]),
            params=self._params(),
        )

    def _params(self) -> dict[str, Any]:
        return {**self.states, **filter_params(self.change_filter)}


class _BaselineLines:
    """The lines of a baseline as they arrive. `baseline` is the last record and is available after iteration."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._last = b""

    def __iter__(self) -> Iterator[bytes]:
        for lines in lines_of(self._chunks):
            self._last = lines
            yield lines
        _ = self.baseline

    @property
    def baseline(self) -> Baseline:
        """The commit and the cursor. Raises `StorageError` if the stream ended before them."""
        from omnigraph.changes.baseline import Baseline

        last = self._last.splitlines()[-1:]
        record = _parse_json(last[0]) if last else None
        if not isinstance(record, dict) or "baseline" not in record:
            raise StorageError("the baseline ended before its last record", transient=True)
        return decode(Baseline, record["baseline"])


def _parse_json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise StorageError("the server sent a line that is not JSON") from error


def _state_name(state: State, snapshot: Snapshot) -> str:
    """Return the name of a state in later requests: the given name, or the commit that it resolved to."""
    return state if isinstance(state, str) else snapshot.commit_id
