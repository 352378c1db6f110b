"""Carrying out a plan on the catalog: the successor of an accepted schema."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.catalog.catalog import Catalog
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
    """The catalog after a supported plan; the same catalog when the plan has no steps.

    `counter` is the lowest number that may be handed out. A graph whose branches change their schemas on
    their own passes the highest counter of all of them, so that no two branches give one number to two
    things. `backfills` are those that the plan was made with.

    An unsupported plan is `InvalidInput` with the reason of its first refusal. A plan that was made for other
    schemas than these two, or with other backfills, is a `Conflict`: the accepted schema moved in between.
    """
    named = frozenset(backfills)
    modes = (
        plan_migration(catalog, desired, allow_data_loss=hard, backfills=named) for hard in (False, True)
    )
    if plan not in modes:
        raise Conflict("the migration plan was made for another accepted schema; plan again")
    if plan.refusal is not None:
        raise InvalidInput(plan.refusal, details=plan.to_json(), hint=_way_out(plan))
    if not plan.steps:
        return catalog
    matching = match_schemas(catalog.schema, desired)
    identities = next_identities(catalog.identities, desired, matching, counter=counter)
    return Catalog(source, desired, identities)


def _way_out(plan: MigrationPlan) -> str | None:
    """What to do about the refusal that is reported."""
    refused = next(step for step in plan.steps if isinstance(step, UnsupportedChange))
    if refused.code != ADD_REQUIRED:
        return None
    kind, _, name = refused.entity.partition(":")
    rows = "existing rows"
    if kind == "interface":
        rows, name = "existing rows of each type that has it", f"Type.{name.partition('.')[2]}"
    return f'give {rows} a value: backfill={{"{name}": …}}, or --backfill {name}=…'
