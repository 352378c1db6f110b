"""`RemoteGraph`: a graph whose calls a server answers, with the results and errors of one that is opened here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from omnigraph.api.commits import (
    At,
    Commit,
    Index,
    Optimized,
    Receipt,
    Recovery,
    Repair,
    check_limit,
    id_of,
    state_at,
)
from omnigraph.api.exports import ExportFormat, ExportRequest
from omnigraph.api.files import read_query
from omnigraph.api.graph import Graph, check_retention
from omnigraph.api.loads import LoadReceipt
from omnigraph.api.merges import Merged, Resolve
from omnigraph.api.result import Result
from omnigraph.client.branches import RemoteBranches
from omnigraph.client.changes import RemoteChangeReads
from omnigraph.client.request_names import condition, params_of, place_of, segment
from omnigraph.client.schemas import RemoteSchemaView
from omnigraph.client.server_decisions import Acting, refuse_spark
from omnigraph.client.stored_query_calls import QueryEntry, StoredCalls
from omnigraph.client.transport import ROWS, Transport, rows_of
from omnigraph.engine.engine_choice import Engine
from omnigraph.graph.argument_checks import check_text, require_text
from omnigraph.load.load_request import LoadRequest, Rejects
from omnigraph.protocol.codec import decode, decode_snapshot, plain
from omnigraph.rules.load_mode import LoadMode

if TYPE_CHECKING:
    from omnigraph.graph.snapshot import Snapshot


class RemoteGraph(RemoteChangeReads, Graph):
    """A handle on a graph that a server has. Safe to share between threads; it pickles to its address and token.

    The token decides who acts, so `actor` of a call may only repeat it. A snapshot tells what a state consists of,
    and can be named in other calls; its rows are read by queries. Only `load` and `export` call `progress`.
    """

    def __init__(self, transport: Transport, actor: str | None, opened: Mapping[str, Any]) -> None:
        # Not the constructor of `Graph`: here is no storage, and every member that would need it is another one.
        self._transport = transport
        self._acting = Acting(actor)
        self._opened = dict(opened)
        self._is_view = False
        self.branches = RemoteBranches(transport, self._acting)
        self.schema = RemoteSchemaView(transport, self._acting)
        self._stored = StoredCalls(transport)

    def __reduce__(self) -> tuple[Any, ...]:
        from omnigraph.client.entry import reconnect

        return reconnect, (dict(self._opened),)

    def __enter__(self) -> RemoteGraph:
        return self

    def __repr__(self) -> str:
        return f"RemoteGraph({self.uri!r})"

    @property
    def uri(self) -> str:
        """The graph's address on the server."""
        return self._transport.url

    @property
    def actor(self) -> str | None:
        """Whom the token acts for; None where the server asks for none."""
        return self._acting.actor

    def acting_as(self, actor: str | None) -> RemoteGraph:
        """The same handle, for the same actor: `InvalidInput` for another one. Closing it does nothing."""
        view = RemoteGraph(self._transport, self._acting.check(actor), self._opened)
        view._is_view = True
        return view

    def close(self) -> None:
        """Let go of the connections. Calls after this are refused; closing twice is closing once."""
        if not self._is_view:
            self._transport.close()

    # --- stored queries ----------------------------------------------------------------------------------

    def queries(self) -> list[QueryEntry]:
        """The queries that the server keeps for this graph, by name."""
        return self._stored.list()

    def invoke(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str = "main",
        at: At = None,
        if_commit: str | None = None,
        expect_mutation: bool | None = None,
    ) -> Result | Receipt:
        """Run a stored query: a `Result` from one that reads, a `Receipt` from one that writes.

        `at` is for reads and `if_commit` for mutations, as for `query` and `mutate`. With `expect_mutation` one of
        the other kind is `InvalidInput` and not run. Whoever may invoke none gets `NotFound` for every name.
        """
        return self._stored.invoke(name, params, branch, at, if_commit, expect_mutation)

    # --- reading -----------------------------------------------------------------------------------------

    def query(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
        engine: Engine = "auto",
        spark: Any = None,
    ) -> Result:
        """Run a read on one consistent state; see `Graph.query`. The server decides how."""
        refuse_spark(engine, spark)
        body = _asked(self._transport, source, params, name, branch, at)
        return self._transport.request("POST", "/query", rows_of, body=body, headers=ROWS)

    def dataframe(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
        spark: Any = None,
    ) -> Any:
        """The rows of a read as a DataFrame of Spark. They have come from the server when this returns."""
        from omnigraph.spark.engine.result_frame import result_frame
        from omnigraph.spark.session import session_for

        found = self.query(source, params, name=name, branch=branch, at=at)
        return result_frame(session_for(spark), found.table, found.types)

    def explain(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
    ) -> str:
        """How the server would run a read; see `Graph.explain`."""
        body = _asked(self._transport, source, params, name, branch, at)
        return self._transport.call("POST", "/explain", lambda found: decode(str, found["plan"]), body=body)

    def get(
        self,
        type_name: str,
        id: str | int,  # noqa: A002 - the name is part of the API
        *,
        branch: str = "main",
        at: At = None,
    ) -> dict[str, Any] | None:
        """One node or edge by its id, or None; see `Graph.get`."""
        from omnigraph.catalog.keys import id_text

        params = {"type": type_name, "id": id_text(id), **place_of(self._transport, branch, at)}
        found: dict[str, Any] | None = self._transport.call(
            "GET", "/entity", lambda found: found["entity"], params=params
        )
        return found

    def export(
        self,
        target: str | Path | IO[str],
        *,
        branch: str = "main",
        at: At = None,
        types: Sequence[str] | None = None,
        progress: Callable[[str, int], None] | None = None,
        format: ExportFormat = "ndjson",  # noqa: A002 - the name is part of the API
        engine: Engine = "auto",
        spark: Any = None,
        overwrite: bool = False,
    ) -> int:
        """Write a state to files here; see `Graph.export`."""
        from omnigraph.client.exports import fetch_export

        request = ExportRequest(
            target, branch, state_at(at), types, progress, format, engine, spark, overwrite
        )
        return fetch_export(self._transport, request, self._opened["storage_options"])

    # --- writing -----------------------------------------------------------------------------------------

    def mutate(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        message: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        actor: str | None = None,
    ) -> Receipt:
        """Run a mutation query as one commit; see `Graph.mutate`.

        `OutcomeUnknown` when the answer never came. With an `idempotency_key` the request is then sent once more.
        """
        self._acting.check(actor, message=message, if_commit=if_commit, idempotency_key=idempotency_key)
        body = {
            **_asked(self._transport, source, params, name, branch, None),
            "message": message,
            "idempotency_key": idempotency_key,
        }
        path = "/mutate" if if_commit is None else "/mutate/if-graph-commit"
        return self._transport.call(
            "POST", path, partial(decode, Receipt), body=body, headers=condition(if_commit), writes=True
        )

    def load(
        self,
        source: Any = None,
        mode: LoadMode = "append",
        *,
        branch: str = "main",
        create_from: str | None = None,
        engine: Engine = "auto",
        rejects: Rejects | None = None,
        permissive: bool = False,
        message: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        actor: str | None = None,
        progress: Callable[[str, int], None] | None = None,
        spark: Any = None,
        dry_run: bool = False,
        mapping: str | Path | Mapping[str, Any] | None = None,
    ) -> LoadReceipt:
        """Load many records as one commit; see `Graph.load`. Files that are here are sent as they are."""
        from omnigraph.client.loads import send_load

        request = LoadRequest(
            source,
            mode,
            require_text("branch", branch),
            check_text("create_from", create_from),
            engine,
            rejects,
            permissive,
            message,
            if_commit,
            idempotency_key,
            self._acting.check(actor, message=message, if_commit=if_commit, idempotency_key=idempotency_key),
            progress,
            spark,
            dry_run,
            mapping,
        )
        return send_load(self._transport, request, self._opened["storage_options"])

    def revert(
        self,
        commit_id: str | Commit,
        *,
        branch: str = "main",
        resolve: Resolve = None,
        dry_run: bool = False,
        message: str | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
        progress: Callable[[str, int], None] | None = None,  # noqa: ARG002 - servers do not tell
    ) -> Merged:
        """Undo one commit with a new one; see `Graph.revert`."""
        self._acting.check(actor, message=message, if_commit=if_commit)
        body = {
            "branch": require_text("branch", branch),
            "resolve": plain(resolve),
            "dry_run": dry_run,
            "message": message,
            "if_commit": if_commit,
        }
        path = f"/commits/{segment(id_of(commit_id))}/revert"
        return self._transport.call("POST", path, partial(decode, Merged), body=body, writes=not dry_run)

    # --- history -----------------------------------------------------------------------------------------

    def commits(self, branch: str = "main", limit: int | None = 50, actor: str | None = None) -> list[Commit]:
        """A branch's history, newest first; see `Graph.commits`."""
        check_limit(limit)
        params = {
            "branch": require_text("branch", branch),
            "limit": limit,
            "actor": check_text("actor", actor),
        }
        return self._transport.call("GET", "/commits", partial(decode, list[Commit]), params=params)

    def commit(self, id: str) -> Commit:  # noqa: A002 - the name is part of the API
        """A commit by its id."""
        return self._transport.call("GET", f"/commits/{segment(id)}", partial(decode, Commit))

    def recoveries(self) -> list[Recovery]:
        """What became of bulk writes that were interrupted; see `Graph.recoveries`."""
        return self._transport.call("GET", "/recoveries", partial(decode, list[Recovery]))

    def snapshot(self, branch: str = "main", at: At = None) -> Snapshot:
        """The state of a branch, or of a commit or moment: its commit, its schema, its types and their sizes."""
        found = self._transport.call(
            "GET", "/snapshot", decode_snapshot, params=place_of(self._transport, branch, at)
        )
        return found if at is None or isinstance(at, datetime) else replace(found, branch=branch.strip())

    # --- maintenance -------------------------------------------------------------------------------------

    def cleanup(
        self, keep: int | None = None, older_than: str | timedelta | None = None, confirm: bool = False
    ) -> dict[str, Any]:
        """Remove data that only old commits need; see `Graph.cleanup`."""
        check_retention(keep, older_than)
        if isinstance(older_than, timedelta):
            # Servers are told whole seconds; one more keeps more, and not less than was asked for.
            older_than = f"{-(-older_than // timedelta(seconds=1))}s"
        body = {"keep": keep, "older_than": older_than, "confirm": confirm}
        return self._transport.call(
            "POST", "/cleanup", partial(decode, dict[str, Any]), body=body, writes=confirm
        )

    def optimize(
        self,
        *,
        branch: str = "main",
        engine: Engine = "auto",
        message: str | None = None,
        actor: str | None = None,
        progress: Callable[[str, int], None] | None = None,  # noqa: ARG002 - servers do not tell
        spark: Any = None,
    ) -> Optimized:
        """Make a branch's types quick to read again, as one commit; see `Graph.optimize`."""
        refuse_spark(engine, spark)
        self._acting.check(actor, message=message)
        body = {"branch": require_text("branch", branch), "message": message}
        return self._transport.call("POST", "/optimize", partial(decode, Optimized), body=body, writes=True)

    def repair(self, confirm: bool = False) -> Repair:
        """Settle what interrupted bulk writes left behind; see `Graph.repair`."""
        return self._transport.call(
            "POST", "/repair", partial(decode, Repair), body={"confirm": confirm}, writes=confirm
        )

    def indexes(self, *, branch: str = "main", at: At = None) -> list[Index]:
        """The indexes, and how many rows each covers; see `Graph.indexes`."""
        return self._transport.call(
            "GET", "/indexes", partial(decode, list[Index]), params=place_of(self._transport, branch, at)
        )


def _asked(
    transport: Transport,
    source: str | Path,
    params: Mapping[str, Any] | None,
    name: str | None,
    branch: str,
    at: At,
) -> dict[str, Any]:
    place = place_of(transport, branch, at)
    return {"query": read_query(source), "name": name, "params": params_of(params), **place}
