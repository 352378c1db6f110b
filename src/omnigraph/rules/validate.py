"""The one place where every write is checked: mutation, load and merge hand over deltas and get a yes or an error.

The rules run in four stages, cheapest and most local first. A stage that finds something ends the check, so later
stages may rely on what the earlier ones established.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omnigraph.catalog.catalog import Catalog
from omnigraph.rules.delta import RowLookup, TableDelta
from omnigraph.rules.row_rules import row_violations
from omnigraph.rules.set_rules import (
    cardinality_violations,
    endpoint_violations,
    entity_of,
    unique_violations,
)
from omnigraph.rules.violations import Findings, refuse


def validate(catalog: Catalog, deltas: Mapping[str, TableDelta], committed: RowLookup) -> None:
    """Return when the final image of an operation keeps every rule of the schema.

    Otherwise raise `ConstraintViolation` for the first stage that found something: rows, `@unique`, endpoints,
    `@card`. It carries every violation of that stage, up to a bound, and the number of all of them.
    """
    check_row_rules(catalog, deltas)
    check_set_rules(catalog, deltas, committed)


def check_row_rules(catalog: Catalog, deltas: Mapping[str, TableDelta]) -> None:
    """The first stage alone. It needs no committed state."""
    refuse(
        Findings.merge(
            row_violations(delta.table, entity_of(catalog, delta.table), delta.rows)
            for delta in deltas.values()
        )
    )


def check_set_rules(catalog: Catalog, deltas: Mapping[str, TableDelta], committed: RowLookup) -> None:
    """The stages after the first, for rows that have passed it."""
    for found in set_findings(catalog, deltas, committed):
        refuse(found)


def set_findings(
    catalog: Catalog, deltas: Mapping[str, TableDelta], committed: RowLookup
) -> Iterator[Findings]:
    """What each set stage finds, in order and one at a time: a stage that is not asked for reads nothing."""
    yield unique_violations(catalog, deltas, committed)
    yield endpoint_violations(catalog, deltas, committed)
    yield cardinality_violations(catalog, deltas, committed)
