"""The schema of a remote graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.interface.schemas import SchemaApplied, SchemaOptions, SchemaView, read_change
from omnigraph.api.results.commits import At, Commit
from omnigraph.client.request_names import place_of, state_of
from omnigraph.graph.argument_checks import require_text
from omnigraph.protocol.codec import decode, to_json_value
from omnigraph.schema.expression import Expression

if TYPE_CHECKING:
    from omnigraph.catalog.migration.steps import MigrationPlan
    from omnigraph.client.server_decisions import TokenActor
    from omnigraph.client.transport import Transport


class RemoteSchemaView(SchemaView):
    """`SchemaView` on a server. The client parses schemas and computes plans from the server's current schema."""

    def __init__(self, transport: Transport, actor: TokenActor) -> None:
        self._transport = transport
        self._actor = actor

    def _source(self, branch: str, at: At) -> str:
        return self._transport.call(
            "GET",
            "/schema",
            lambda answer: decode(str, answer["schema_source"]),
            params=place_of(self._transport, branch, at),
        )

    def _plan(self, text: str | Path, options: SchemaOptions) -> MigrationPlan:
        from omnigraph.catalog.catalog import Catalog

        change = read_change(text, options)
        catalog = self._transport.call(
            "GET",
            "/snapshot",
            lambda answer: Catalog.from_json(answer["catalog"]),
            params=state_of(options.branch),
        )
        return change.plan(catalog)

    def _apply(self, text: str | Path, options: SchemaOptions) -> SchemaApplied:
        from omnigraph.catalog.catalog import Catalog

        self._actor.check(options.actor, message=options.message, if_commit=options.if_commit)
        change = read_change(text, options)
        backfill = options.backfill or {}
        body = {
            "schema_source": change.source,
            "allow_data_loss": options.allow_data_loss,
            "branch": require_text("branch", options.branch),
            "message": options.message,
            "if_commit": options.if_commit,
            "backfill": [_backfill(name, value) for name, value in backfill.items()] or None,
        }

        def read(answer: Mapping[str, Any]) -> SchemaApplied:
            before = Catalog.from_json(answer["before"])
            return SchemaApplied(
                answer["applied"],
                None if answer["commit"] is None else decode(Commit, answer["commit"]),
                change.plan(before),
                answer["graph_manifest_version"],
                before,
            )

        return self._transport.call("POST", "/schema/apply", read, body=body, writes=True)


def _backfill(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Expression):
        return {"property": name, "expr": value.text}
    return {"property": name, "value": to_json_value(value)}
