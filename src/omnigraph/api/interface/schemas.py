"""The schema of a graph: its source text, the plan of a change, and the change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.results.commits import At, Commit

if TYPE_CHECKING:
    from omnigraph.catalog.catalog import Catalog
    from omnigraph.catalog.migration.steps import MigrationPlan
    from omnigraph.schema.apply_schema import SchemaChange


@dataclass(frozen=True)
class SchemaApplied:
    """The result of a schema change. `commit` is None if the branch already had the schema.

    `graph_manifest_version` is the version of the branch after the change. `before` is the schema that `plan`
    starts from.
    """

    applied: bool
    commit: Commit | None
    plan: MigrationPlan
    graph_manifest_version: int
    before: Catalog | None = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        steps = [step.to_json() for step in self.plan.steps]
        return {
            "supported": self.plan.supported,
            "applied": self.applied,
            "step_count": len(steps),
            "graph_manifest_version": self.graph_manifest_version,
            "steps": steps,
        }


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """The arguments of `SchemaView.plan` and `SchemaView.apply` besides the schema."""

    allow_data_loss: bool = False
    branch: str = "main"
    backfill: Mapping[str, Any] | None = None
    message: str | None = None
    if_commit: str | None = None
    actor: str | None = None


class SchemaView(ABC):
    """The schema of a graph; the `schema` attribute of `Graph`."""

    def __repr__(self) -> str:
        """Return the text of the schema of the branch ``main``."""
        return self.source()

    def _repr_html_(self) -> str:
        """Return a picture of the types of the branch ``main``, for notebooks."""
        from omnigraph.api.display.graph_picture import draw_schema
        from omnigraph.lang.pg.schema_compiler import load_schema

        return draw_schema(load_schema(self.source()))

    def source(self, branch: str = "main", at: At = None) -> str:
        """Return the text of the schema of a branch, or of the state `at`."""
        return self._source(branch, at)

    def plan(
        self,
        text: str | Path,
        *,
        allow_data_loss: bool = False,
        branch: str = "main",
        backfill: Mapping[str, Any] | None = None,
    ) -> MigrationPlan:
        """Return the steps from the schema of a branch to the schema `text`, refused steps included.

        Nothing is changed. `text` is schema text or the path of a ``.pg`` file. `backfill` has the form that
        `apply` accepts; only its keys are used.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-plan", schema="node City { name: String @key }")
        >>> plan = g.schema.plan("node City { name: String @key  mayor: String? }")
        >>> plan.supported, len(plan.steps)
        (True, 1)
        """
        return self._plan(text, SchemaOptions(allow_data_loss, branch, backfill))

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
        """Change the schema of a branch and migrate its data, as one commit.

        Other branches keep their schema. If there are no steps, nothing is committed. `text` is schema text or the
        path of a ``.pg`` file. `backfill` maps ``Type.property`` to the value of a new property in existing rows: a
        value, or ``og.expr("$this.name")``, an expression over the old row. A new property with a backfill may be
        required.

        `allow_data_loss` makes drops hard: the data of a dropped type or property is deleted from earlier states of
        all branches, unless the head of a branch needs it. If the policy does not allow the actor to change the
        schema of every protected branch, earlier states keep the data until `Graph.cleanup` removes it.

        Raises `InvalidInput` if the plan has a refused step, `ConstraintViolation` if a backfilled value violates a
        constraint, and `Conflict` if the rows changed concurrently. In each case the graph is unchanged.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-apply", schema="node City { name: String @key }")
        >>> _ = g.load({"City": [{"name": "Bern"}]})
        >>> schema = "node City { name: String @key  label: String  size: I64 }"
        >>> g.schema.apply(schema, backfill={"City.label": og.expr("$this.name"), "City.size": 0}).applied
        True
        >>> g.get("City", "Bern")
        {'id': 'Bern', 'label': 'Bern', 'name': 'Bern', 'size': 0}
        >>> g.schema.apply(schema).applied
        False
        """
        options = SchemaOptions(allow_data_loss, branch, backfill, message, if_commit, actor)
        return self._apply(text, options)

    @abstractmethod
    def _source(self, branch: str, at: At) -> str: ...

    @abstractmethod
    def _plan(self, text: str | Path, options: SchemaOptions) -> MigrationPlan: ...

    @abstractmethod
    def _apply(self, text: str | Path, options: SchemaOptions) -> SchemaApplied: ...


def read_change(text: str | Path, options: SchemaOptions) -> SchemaChange:
    """Parse a schema, given as text or as the path of a file, and return the change that it requests."""
    from omnigraph.api.files.local_files import read_schema
    from omnigraph.lang.pg.schema_compiler import load_schema
    from omnigraph.schema.apply_schema import SchemaChange

    source, name = read_schema(text)
    schema = load_schema(source, name)
    return SchemaChange(schema, source, options.allow_data_loss, dict(options.backfill or {}))
