"""Operations of input rows: what a row does to the row with its id, and the order of the rows of one id.

An input has one operation for all rows, or a column with the operation of each row, as change data capture writes
it. An order column has the order in which the rows of one id apply; without one they apply in input order. The
module imports no library, because the arguments of every load refer to it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from omnigraph.errors import InvalidInput

# Columns next to the logical columns of rows with operations: the operation, the columns that the input gives, as
# one bit for each column of the table, and the order. No property can have these names.
OPERATION: Final = ".operation"
GIVEN: Final = ".given"
ORDER: Final = ".order"


class Operation(IntEnum):
    """What an input row does to the stored row with its id."""

    INSERT = 0
    REPLACE = 1
    PATCH = 2
    DELETE = 3


# Values of an operation column, in lower case: the letters of I/U/D logs and those of Debezium.
_UPSERTS: Final = frozenset("iucr")
_DELETE: Final = "d"
OPERATION_VALUES: Final = "I, U, D, or c, u, d, r"


@dataclass(frozen=True, slots=True)
class RowOperations:
    """The operation of the rows of an input.

    `default` is the operation of rows that are not deletes. `column` has the operation of each row, `order_by` the
    order of the rows of one id; it may be a property of the type.
    """

    default: Operation
    column: str | None = None
    order_by: str | None = None

    @property
    def names(self) -> list[str]:
        """The input columns that are read for the operation and the order."""
        return [name for name in (self.column, self.order_by) if name is not None]

    @property
    def is_partial(self) -> bool:
        """Whether rows may lack required values: patches, deletes, and inputs with an operation column."""
        return self.column is not None or self.default in (Operation.PATCH, Operation.DELETE)

    def parse(self, value: Any) -> Operation:
        """Return the operation of one row from the value of its operation column.

        >>> RowOperations(Operation.REPLACE, "op").parse("D").name
        'DELETE'
        """
        text = value.lower() if isinstance(value, str) else None
        if text == _DELETE:
            return Operation.DELETE
        if text in _UPSERTS:
            return self.default
        raise InvalidInput(
            f"column '{self.column}': unknown operation {json.dumps(value, default=str)}",
            hint=f"the operations are {OPERATION_VALUES}, in any case",
        )


def needs_complete_row(operation: int) -> bool:
    """Return whether a row with this operation must have all required values."""
    return operation in (Operation.INSERT, Operation.REPLACE)
