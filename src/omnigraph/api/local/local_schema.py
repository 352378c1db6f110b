"""The schema of a local graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.api.interface.schemas import SchemaApplied, SchemaOptions, SchemaView, read_change
from omnigraph.api.results.commits import At, Commit, state_at
from omnigraph.errors import OmnigraphError

if TYPE_CHECKING:
    from omnigraph.api.local.authorizer import Authorizer
    from omnigraph.catalog.migration.steps import MigrationPlan
    from omnigraph.graph.repository import Repository


class LocalSchemaView(SchemaView):
    """`SchemaView` over a repository."""

    def __init__(self, repository: Repository, authorizer: Authorizer) -> None:
        self._repository = repository
        self._authorizer = authorizer

    def _source(self, branch: str, at: At) -> str:
        self._authorizer.authorize("read")
        return self._repository.snapshot(branch, state_at(at)).catalog.source

    def _plan(self, text: str | Path, options: SchemaOptions) -> MigrationPlan:
        self._authorizer.authorize("read", options.branch)
        change = read_change(text, options)
        return change.plan(self._repository.snapshot(options.branch).catalog)

    def _apply(self, text: str | Path, options: SchemaOptions) -> SchemaApplied:
        from omnigraph.graph.write_request import WriteRequest
        from omnigraph.schema.apply_schema import prepare_schema

        actor = self._authorizer.authorize("schema_apply", target=options.branch, actor=options.actor)
        change = read_change(text, options)
        request = WriteRequest(
            "schema_apply", actor=actor, message=options.message, expected_head=options.if_commit, alone=True
        )
        repository = self._repository
        receipt, result = repository.write(
            options.branch,
            request,
            lambda transaction: prepare_schema(transaction, change, repository.reserve_identities),
        )
        assert result is not None, "a schema change has no idempotency key, so it is always prepared"
        if receipt is None:
            return SchemaApplied(False, None, result.plan, result.sequence, result.before)
        if result.purged:
            self._purge(result.purged, actor)
        commit = Commit.of(receipt.commit)
        return SchemaApplied(True, commit, result.plan, commit.sequence, result.before)

    def _purge(self, paths: frozenset[str], actor: str | None) -> None:
        """Delete the files of dropped data from earlier states; a failure is a warning."""
        from omnigraph.maintain.purge import purge

        try:
            for name in self._authorizer.protected_branches:
                self._authorizer.authorize("schema_apply", target=name, actor=actor)
            purge(self._repository, paths)
        except OmnigraphError as error:
            # The commit stands. A later cleanup removes the data.
            self._repository.warnings.append(f"earlier versions of dropped data are left: {error.message}")
