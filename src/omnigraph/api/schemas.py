"""The schema of a graph: what was accepted, what a change would take, and the change itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.commits import At, Commit, state_at
from omnigraph.errors import OmnigraphError

if TYPE_CHECKING:
    from omnigraph.api.access import Guard
    from omnigraph.catalog.catalog import Catalog
    from omnigraph.catalog.migration.steps import MigrationPlan
    from omnigraph.graph.repository import Repository
    from omnigraph.schema.apply_schema import SchemaChange


@dataclass(frozen=True)
class SchemaApplied:
    """What a schema change did. `commit` is None when the schema was accepted already.

    `graph_manifest_version` is that of the branch afterwards, `before` the schema that the plan begins from.
    """

    applied: bool
    commit: Commit | None
    plan: MigrationPlan
    graph_manifest_version: int
    before: Catalog | None = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The wire shape."""
        steps = [step.to_json() for step in self.plan.steps]
        return {
            "supported": self.plan.supported,
            "applied": self.applied,
            "step_count": len(steps),
            "graph_manifest_version": self.graph_manifest_version,
            "steps": steps,
        }


class SchemaView:
    """The schema of a graph."""

    def __init__(self, repository: Repository, guard: Guard) -> None:
        self._repository = repository
        self._guard = guard

    def source(self, branch: str = "main", at: At = None) -> str:
        """The text of the schema that was accepted."""
        self._guard.admit("read")
        return self._repository.snapshot(branch, state_at(at)).catalog.source

    def plan(
        self,
        text: str | Path,
        *,
        allow_data_loss: bool = False,
        branch: str = "main",
        backfill: Mapping[str, Any] | None = None,
    ) -> MigrationPlan:
        """The steps from a branch's schema to another, refused ones included; nothing is changed.

        `backfill` is that of `apply`; only which properties it names is looked at.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-plan", schema="node City { name: String @key }")
        >>> plan = g.schema.plan("node City { name: String @key  mayor: String? }")
        >>> plan.supported, len(plan.steps)
        (True, 1)
        """
        self._guard.admit("read", branch)
        change = read_change(text, allow_data_loss, backfill)
        return change.plan(self._repository.snapshot(branch).catalog)

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
        """Make a schema the accepted one of a branch, with the data it takes, as one commit; none without steps.

        Other branches keep theirs. `backfill` has, by ``Type.property``, the value that existing rows get for a
        property that is new: one that a load would take, or ``og.expr("$this.name")``, an expression over the row
        as it was. With it a new property may be required.

        `allow_data_loss` makes drops hard: what only earlier states hold of a dropped type, or of a type that
        loses a property, is removed, unless the head of a branch needs it. Earlier states are those of all
        branches: an actor who may not change the schema of every protected one leaves them to `cleanup`.

        A plan with a refused step is `InvalidInput`, a backfill that breaks a rule `ConstraintViolation`, rows
        that others changed meanwhile a `Conflict`; the graph is as it was then.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-apply", schema="node City { name: String @key }")
        >>> _ = g.load({"City": [{"name": "Bern"}]})
        >>> wanted = "node City { name: String @key  label: String  size: I64 }"
        >>> g.schema.apply(wanted, backfill={"City.label": og.expr("$this.name"), "City.size": 0}).applied
        True
        >>> g.get("City", "Bern")
        {'id': 'Bern', 'label': 'Bern', 'name': 'Bern', 'size': 0}
        >>> g.schema.apply(wanted).applied
        False
        """
        from omnigraph.graph.write_request import WriteRequest
        from omnigraph.schema.apply_schema import prepare_schema

        actor = self._guard.admit("schema_apply", target=branch, actor=actor)
        change = read_change(text, allow_data_loss, backfill)
        request = WriteRequest("schema_apply", actor=actor, message=message, expected_head=if_commit)
        repository = self._repository
        done, result = repository.write(
            branch,
            request,
            lambda transaction: prepare_schema(transaction, change, repository.reserve_identities),
        )
        assert result is not None, "a schema change has no idempotency key, so it is always prepared"
        if done is None:
            return SchemaApplied(False, None, result.plan, result.sequence, result.before)
        if result.purged:
            self._purge(result.purged, actor)
        return SchemaApplied(True, Commit.of(done.commit), result.plan, done.commit.sequence, result.before)

    def _purge(self, paths: frozenset[str], actor: str | None) -> None:
        from omnigraph.maintain.purge import purge

        try:
            for name in self._guard.protected:
                self._guard.admit("schema_apply", target=name, actor=actor)
            purge(self._repository, paths)
        except OmnigraphError as error:
            # The commit stands; what it should have taken along goes with a later cleanup.
            self._repository.warnings.append(f"earlier versions of dropped data are left: {error.message}")


def read_change(text: str | Path, allow_data_loss: bool, backfill: Mapping[str, Any] | None) -> SchemaChange:
    """The change that is asked for: a schema from a text, or from the file that it names."""
    from omnigraph.api.files import read_schema
    from omnigraph.lang.pg.schema_compiler import load_schema
    from omnigraph.schema.apply_schema import SchemaChange

    source, name = read_schema(text)
    return SchemaChange(load_schema(source, name), source, allow_data_loss, dict(backfill or {}))
