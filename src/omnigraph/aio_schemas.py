"""The async twin of the schema of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.commits import At
from omnigraph.api.schemas import SchemaApplied, SchemaView

if TYPE_CHECKING:
    from omnigraph.aio import _Threads
    from omnigraph.catalog.migration.steps import MigrationPlan


class AsyncSchemaView:
    """The schema of a graph, for coroutines."""

    def __init__(self, schema: SchemaView, threads: _Threads) -> None:
        self._schema = schema
        self._threads = threads

    async def source(self, branch: str = "main", at: At = None) -> str:
        """The text of the schema that was accepted."""
        return await self._threads.read(lambda: self._schema.source(branch, at))

    async def plan(
        self,
        text: str | Path,
        *,
        allow_data_loss: bool = False,
        branch: str = "main",
        backfill: Mapping[str, Any] | None = None,
    ) -> MigrationPlan:
        """The steps from a branch's schema to another; see `SchemaView.plan`."""
        return await self._threads.read(
            lambda: self._schema.plan(text, allow_data_loss=allow_data_loss, branch=branch, backfill=backfill)
        )

    async def apply(
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
        return await self._threads.write(
            lambda: self._schema.apply(
                text,
                allow_data_loss=allow_data_loss,
                branch=branch,
                backfill=backfill,
                message=message,
                if_commit=if_commit,
                actor=actor,
            )
        )
