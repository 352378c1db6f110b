"""The options of a load with operations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperationRules:
    """The options of a load with operations.

    `order_by` is the column with the order of rows, `op_column` the one with their operations. With
    `require_existing` a delete of a row that is not stored is a violation.
    """

    order_by: str | None = None
    require_existing: bool = False
    op_column: str | None = None
