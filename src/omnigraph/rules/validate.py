"""Validation of the changes of an operation: the same checks for mutations, loads and merges.

The checks run in four stages: row rules, `@unique`, edge endpoints, `@card`. A stage with violations ends the
validation, so a later stage may rely on the earlier ones.
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
from omnigraph.rules.violations import Violations, raise_violations


def validate(catalog: Catalog, deltas: Mapping[str, TableDelta], committed: RowLookup) -> None:
    """Raise `ConstraintViolation` if the final image of an operation breaks a constraint.

    The error has the violations of the first stage that fails, up to a bound, and their total number.
    """
    check_row_rules(catalog, deltas)
    check_set_rules(catalog, deltas, committed)


def check_row_rules(catalog: Catalog, deltas: Mapping[str, TableDelta]) -> None:
    """Run the first stage alone. It needs no committed rows."""
    raise_violations(
        Violations.merge(
            row_violations(delta.table, entity_of(catalog, delta.table), delta.rows)
            for delta in deltas.values()
        )
    )


def check_set_rules(catalog: Catalog, deltas: Mapping[str, TableDelta], committed: RowLookup) -> None:
    """Run the later stages, on rows that have passed the first."""
    for violations in set_violations(catalog, deltas, committed):
        raise_violations(violations)


def set_violations(
    catalog: Catalog, deltas: Mapping[str, TableDelta], committed: RowLookup
) -> Iterator[Violations]:
    """Yield the violations of `@unique`, edge endpoints and `@card`. A stage reads rows when it is asked for."""
    yield unique_violations(catalog, deltas, committed)
    yield endpoint_violations(catalog, deltas, committed)
    yield cardinality_violations(catalog, deltas, committed)
