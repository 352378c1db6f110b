"""Application of a migration plan to the catalog."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.embedding_models import earlier_models
from omnigraph.catalog.identity import FIRST_ID, next_identities
from omnigraph.catalog.migration.migration_codes import ADD_REQUIRED
from omnigraph.catalog.migration.planner import plan_migration
from omnigraph.catalog.migration.renames import match_schemas
from omnigraph.catalog.migration.steps import MigrationPlan, UnsupportedChange
from omnigraph.errors import Conflict, InvalidInput
from omnigraph.lang.schema import Schema


def evolve(
    catalog: Catalog,
    desired: Schema,
    source: str,
    plan: MigrationPlan,
    *,
    counter: int = FIRST_ID,
    backfills: Iterable[str] = (),
) -> Catalog:
    """Return the catalog after a supported plan; the same catalog when the plan has no steps.

    `counter` is the lowest number for new identities. A graph whose branches change their schemas independently
    passes the highest counter of all branches, so that no two branches assign the same number. `backfills` are
    those that the plan was created with.

    Raises `InvalidInput` for an unsupported plan, with the reason of its first unsupported step. Raises
    `Conflict` for a plan that was created for other schemas or other backfills: the accepted schema has changed
    since.
    """
    named = frozenset(backfills)
    modes = (
        plan_migration(catalog, desired, allow_data_loss=hard, backfills=named) for hard in (False, True)
    )
    if plan not in modes:
        raise Conflict("the migration plan is outdated: the accepted schema has changed; plan again")
    if plan.refusal is not None:
        raise InvalidInput(plan.refusal, details=plan.to_json(), hint=_backfill_hint(plan))
    if not plan.steps:
        return catalog
    matching = match_schemas(catalog.schema, desired)
    identities = next_identities(catalog.identities, desired, matching, counter=counter)
    after = Catalog(source, desired, identities)
    return replace(after, earlier_models=earlier_models([catalog], after))


def _backfill_hint(plan: MigrationPlan) -> str | None:
    """Return how to backfill the required property that the first unsupported step adds, or None."""
    unsupported = next(step for step in plan.steps if isinstance(step, UnsupportedChange))
    if unsupported.code != ADD_REQUIRED:
        return None
    kind, _, name = unsupported.entity.partition(":")
    rows = "existing rows"
    if kind == "interface":
        rows, name = "existing rows of each implementing type", f"Type.{name.partition('.')[2]}"
    return f'set a value for {rows}: backfill={{"{name}": …}}, or --backfill {name}=…'
