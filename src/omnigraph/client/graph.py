"""`RemoteGraph`: a graph on a server, with the results and errors of a local graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from omnigraph.api.access import Address
from omnigraph.api.files.export_files import ExportOptions, ExportTarget
from omnigraph.api.graph import Graph
from omnigraph.api.interface.graph_maintenance import (
    BackupOptions,
    CleanupOptions,
    OptimizeOptions,
    RepairOptions,
)
from omnigraph.api.interface.graph_reads import QueryOptions
from omnigraph.api.interface.graph_writes import MutationOptions
from omnigraph.api.results.commits import At
from omnigraph.api.results.loads import LoadReceipt
from omnigraph.api.results.maintenance_reports import Index, Optimized, Repair
from omnigraph.api.results.merges import Merged, MergeRequest
from omnigraph.api.results.receipts import Receipt
from omnigraph.api.results.result import Result
from omnigraph.client.branches import RemoteBranches
from omnigraph.client.changes import RemoteChangeReads
from omnigraph.client.embeddings import RemoteEmbeddings
from omnigraph.client.history import RemoteHistory
from omnigraph.client.request_names import condition, limits_of, params_of, place_of, segment
from omnigraph.client.running_queries import RunningQuery, cancel_running, list_running
from omnigraph.client.schemas import RemoteSchemaView
from omnigraph.client.server_decisions import TokenActor, refuse_spark
from omnigraph.client.stored_query_calls import QueryEntry, StoredQueryCalls
from omnigraph.client.tags import RemoteTags
from omnigraph.client.transport import ROWS, Transport, decode_rows
from omnigraph.errors import InvalidInput
from omnigraph.graph.argument_checks import require_text
from omnigraph.load.load_request import LoadRequest
from omnigraph.maintain.backup.copy_report import CopyReport
from omnigraph.protocol.codec import decode, decode_snapshot, to_json_value

if TYPE_CHECKING:
    from omnigraph.api.results.blobs import Blob, BlobSelector
    from omnigraph.graph.progress import Progress
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.maintain.settings import GraphSettings, RetentionInput
    from omnigraph.maintain.verification.report import VerifyReport
    from omnigraph.maintain.verification.verify_options import VerifyOptions
    from omnigraph.read.neighbors import NeighborRequest


class RemoteGraph(RemoteChangeReads, RemoteHistory, Graph):
    """A `Graph` on a server. It pickles to the address and the token.

    The token determines the actor, so the `actor` of a call must be None or the same. A snapshot describes a
    state and can be passed to other calls; queries read its rows. Only `load` and `export` call `progress`.
    `load` sends local files as they are. A write whose response is lost raises `OutcomeUnknown`; `mutate` with an
    `idempotency_key` is sent once more first.
    """

    def __init__(self, transport: Transport, actor: str | None, connection: Mapping[str, Any]) -> None:
        self._transport = transport
        self._actor = TokenActor(actor)
        self._connection = dict(connection)
        self._is_view = False
        self._stored_queries = StoredQueryCalls(transport)
        self.branches = RemoteBranches(transport, self._actor)
        self.tags = RemoteTags(transport, self._actor)
        self.schema = RemoteSchemaView(transport, self._actor)
        self.embeddings = RemoteEmbeddings()

    def __reduce__(self) -> tuple[Any, ...]:
        from omnigraph.client.entry import reconnect

        return reconnect, (dict(self._connection),)

    @property
    def uri(self) -> str:
        return self._transport.url

    @property
    def actor(self) -> str | None:
        return self._actor.actor

    def acting_as(self, actor: str | None) -> RemoteGraph:
        """Return a handle that shares the connections. Raises `InvalidInput` unless the token has this actor."""
        view = RemoteGraph(self._transport, self._actor.check(actor), self._connection)
        view._is_view = True
        return view

    def close(self) -> None:
        if not self._is_view:
            self._transport.close()

    # --- stored queries ----------------------------------------------------------------------------------

    def queries(self) -> list[QueryEntry]:
        """Return the stored queries of the graph, by name."""
        return self._stored_queries.list()

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
        """Run a stored query. Return a `Result` for a read and a `Receipt` for a mutation.

        `at` applies to reads and `if_commit` to mutations, as in `query` and `mutate`. If the query is not of the
        kind that `expect_mutation` says, `InvalidInput` is raised and the query does not run. An actor without the
        permission to invoke queries gets `NotFound` for every name.
        """
        return self._stored_queries.invoke(name, params, branch, at, if_commit, expect_mutation)

    # --- running requests --------------------------------------------------------------------------------

    def running_queries(self) -> list[RunningQuery]:
        """Return the requests that the server is running for this graph, the oldest first. Needs ``admin``."""
        return list_running(self._transport)

    def cancel_query(self, id: str) -> bool:  # noqa: A002 - the name is part of the API
        """Cancel a running request by its id. Needs ``admin``.

        Returns False for a write that has begun, which is completed. Raises `NotFound` if it is not running.
        """
        return cancel_running(self._transport, id)

    # --- reads -------------------------------------------------------------------------------------------

    def _query(self, text: str, options: QueryOptions) -> Result:
        refuse_spark(options.engine, options.spark)
        body = {**self._query_body(text, options), **limits_of(options.limits)}
        return self._transport.request("POST", "/query", decode_rows, body=body, headers=ROWS)

    def _dataframe(self, text: str, options: QueryOptions) -> Any:
        from omnigraph.spark.engine.result_frame import result_frame
        from omnigraph.spark.session import session_for

        result = self._query(text, replace(options, spark=None))
        return result_frame(session_for(options.spark), result.table, result.types)

    def _explain(self, text: str, options: QueryOptions) -> str:
        body = self._query_body(text, options)
        return self._transport.call("POST", "/explain", lambda answer: decode(str, answer["plan"]), body=body)

    def _get(self, type_name: str, id_: str, branch: str, at: At) -> dict[str, Any] | None:
        params = {"type": type_name, "id": id_, **place_of(self._transport, branch, at)}
        entity: dict[str, Any] | None = self._transport.call(
            "GET", "/entity", lambda answer: answer["entity"], params=params
        )
        return entity

    def _neighbors(self, request: NeighborRequest, branch: str, at: At) -> dict[str, Any]:
        params = {
            "type": request.type_name,
            "id": request.id,
            "direction": request.direction,
            "limit": request.limit,
            **({} if request.edges is None else {"edge": list(request.edges)}),
            **place_of(self._transport, branch, at),
        }
        found: dict[str, Any] = self._transport.call(
            "GET", "/neighbors", lambda answer: answer, params=params
        )
        return found

    def _blob(self, selector: BlobSelector) -> Blob:
        from omnigraph.client.blobs import open_blob

        return open_blob(self._transport, selector)

    def _snapshot(self, branch: str, at: At) -> Snapshot:
        snapshot = self._transport.call(
            "GET", "/snapshot", decode_snapshot, params=place_of(self._transport, branch, at)
        )
        return (
            snapshot if at is None or isinstance(at, datetime) else replace(snapshot, branch=branch.strip())
        )

    def _export(self, target: ExportTarget, options: ExportOptions) -> int:
        from omnigraph.client.exports import fetch_export

        return fetch_export(self._transport, target, options, self._connection["storage_options"])

    def _query_body(self, text: str, options: QueryOptions) -> dict[str, Any]:
        place = place_of(self._transport, options.branch, options.at)
        return {"query": text, "name": options.name, "params": params_of(options.params), **place}

    # --- writes ------------------------------------------------------------------------------------------

    def _mutate(self, text: str, options: MutationOptions) -> Receipt:
        self._actor.check(
            options.actor,
            message=options.message,
            if_commit=options.if_commit,
            idempotency_key=options.idempotency_key,
        )
        body = {
            **self._query_body(text, QueryOptions(options.params, options.name, options.branch)),
            "message": options.message,
            "idempotency_key": options.idempotency_key,
        }
        path = "/mutate" if options.if_commit is None else "/mutate/if-graph-commit"
        headers = condition(options.if_commit)
        return self._transport.call(
            "POST", path, partial(decode, Receipt), body=body, headers=headers, writes=True
        )

    def _load(self, request: LoadRequest) -> LoadReceipt:
        from omnigraph.client.loads import send_load

        actor = self._actor.check(
            request.actor,
            message=request.message,
            if_commit=request.if_commit,
            idempotency_key=request.idempotency_key,
        )
        options = self._connection["storage_options"]
        return send_load(self._transport, replace(request, actor=actor), options)

    def _revert(self, commit_id: str, options: MergeRequest) -> Merged:
        self._actor.check(options.actor, message=options.message, if_commit=options.if_commit)
        body = {
            "branch": options.into,
            "resolve": to_json_value(options.resolve),
            "dry_run": options.dry_run,
            "message": options.message,
            "if_commit": options.if_commit,
        }
        path = f"/commits/{segment(commit_id)}/revert"
        return self._transport.call(
            "POST", path, partial(decode, Merged), body=body, writes=not options.dry_run
        )

    # --- maintenance -------------------------------------------------------------------------------------

    def _settings(self) -> GraphSettings:
        from omnigraph.maintain.settings import GraphSettings

        return self._transport.call("GET", "/settings", partial(decode, GraphSettings))

    def _set_settings(self, retention: RetentionInput) -> GraphSettings:
        from omnigraph.maintain.settings import GraphSettings, RetentionSetting

        body = {"retention": RetentionSetting.of(retention).to_json()}
        decode_settings = partial(decode, GraphSettings)
        return self._transport.call("PATCH", "/settings", decode_settings, body=body, writes=True)

    def _cleanup(self, options: CleanupOptions) -> dict[str, Any]:
        body = {
            "keep": options.keep,
            "older_than": _duration(options.older_than),
            "confirm": options.confirm,
            "grace": _duration(options.grace),
        }
        return self._transport.call(
            "POST", "/cleanup", partial(decode, dict[str, Any]), body=body, writes=options.confirm
        )

    def _optimize(self, options: OptimizeOptions) -> Optimized:
        refuse_spark(options.engine, options.spark)
        self._actor.check(options.actor, message=options.message)
        body = {"branch": require_text("branch", options.branch), "message": options.message}
        return self._transport.call("POST", "/optimize", partial(decode, Optimized), body=body, writes=True)

    def _verify(
        self,
        options: VerifyOptions,
        progress: Progress | None,  # noqa: ARG002 - the server does not report progress
        spark: Any,
    ) -> VerifyReport:
        from omnigraph.maintain.verification.report import VerifyReport

        refuse_spark(options.engine, spark)
        body = {
            "quick": options.quick,
            "all_commits": options.all_commits,
            "branch": options.branch,
            "record": options.record,
        }
        decode_report = partial(decode, VerifyReport)
        return self._transport.call("POST", "/verify", decode_report, body=body, writes=options.record)

    def _repair(self, options: RepairOptions) -> Repair:
        body = {
            "confirm": options.confirm,
            "force": options.force or None,
            "reset_branch": options.reset_branch,
            "to": options.to,
        }
        decode_report = partial(decode, Repair)
        return self._transport.call("POST", "/repair", decode_report, body=body, writes=options.confirm)

    def _backup(self, target: Address, options: BackupOptions) -> CopyReport:  # noqa: ARG002 - see the error
        raise InvalidInput(
            "a server does not write backups: the target would be a path or an address on the server",
            hint="run `omnigraph backup` on the storage of the graph; the server can continue to write meanwhile",
        )

    def _indexes(self, branch: str, at: At) -> list[Index]:
        return self._transport.call(
            "GET", "/indexes", partial(decode, list[Index]), params=place_of(self._transport, branch, at)
        )


def _duration(length: str | timedelta | None) -> str | None:
    """Return a duration as text in whole seconds. Rounding up keeps at least as much data as requested."""
    return f"{-(-length // timedelta(seconds=1))}s" if isinstance(length, timedelta) else length
