"""The schema of a graph that a server has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.commits import At, Commit
from omnigraph.api.schemas import SchemaApplied, SchemaView, read_change
from omnigraph.client.request_names import place_of, state_of
from omnigraph.graph.argument_checks import require_text
from omnigraph.protocol.codec import decode, plain
from omnigraph.schema.expression import Expression

if TYPE_CHECKING:
    from omnigraph.catalog.migration.steps import MigrationPlan
    from omnigraph.client.server_decisions import Acting
    from omnigraph.client.transport import Transport


class RemoteSchemaView(SchemaView):
    """The schema of a graph. Texts are read and plans are made here, from the schema that the server has."""

    def __init__(self, transport: Transport, acting: Acting) -> None:
        self._transport = transport
        self._acting = acting

    def source(self, branch: str = "main", at: At = None) -> str:
        """The text of the schema that was accepted."""
        return self._transport.call(
            "GET",
            "/schema",
            lambda found: decode(str, found["schema_source"]),
            params=place_of(self._transport, branch, at),
        )

    def plan(
        self,
        text: str | Path,
        *,
        allow_data_loss: bool = False,
        branch: str = "main",
        backfill: Mapping[str, Any] | None = None,
    ) -> MigrationPlan:
        """The steps from a branch's schema to another; see `SchemaView.plan`."""
        from omnigraph.catalog.catalog import Catalog

        change = read_change(text, allow_data_loss, backfill)
        catalog = self._transport.call(
            "GET", "/snapshot", lambda found: Catalog.from_json(found["catalog"]), params=state_of(branch)
        )
        return change.plan(catalog)

    def apply(
        self,
        text: str | Path,
        *,
        allow_data_loss: bool = False,
        branch: str = "main",
        backfill: Mapping[str, Any] | None = None,
        message: str | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
    ) -> SchemaApplied:
        """Make a schema the accepted one of a branch, as one commit; see `SchemaView.apply`."""
        from omnigraph.catalog.catalog import Catalog

        self._acting.check(actor, message=message, if_commit=if_commit)
        change = read_change(text, allow_data_loss, backfill)
        body = {
            "schema_source": change.source,
            "allow_data_loss": allow_data_loss,
            "branch": require_text("branch", branch),
            "message": message,
            "if_commit": if_commit,
            "backfill": [_filling(name, value) for name, value in (backfill or {}).items()] or None,
        }

        def read(found: Mapping[str, Any]) -> SchemaApplied:
            before = Catalog.from_json(found["before"])
            return SchemaApplied(
                found["applied"],
                None if found["commit"] is None else decode(Commit, found["commit"]),
                change.plan(before),
                found["graph_manifest_version"],
                before,
            )

        return self._transport.call("POST", "/schema/apply", read, body=body, writes=True)


def _filling(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Expression):
        return {"property": name, "expr": value.text}
    return {"property": name, "value": plain(value)}
