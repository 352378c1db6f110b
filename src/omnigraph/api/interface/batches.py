"""Batches: changes of many types from many sources that become one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from omnigraph.errors import InvalidInput
from omnigraph.graph.argument_checks import check_text, require_text
from omnigraph.load.load_request import LoadPart, LoadRequest, check_operations, part_operations
from omnigraph.rules.load_mode import LOAD_MODES, LoadMode

if TYPE_CHECKING:
    from omnigraph.api.results.loads import LoadReceipt

Mapped = str | Path | Mapping[str, Any] | None


class Batch:
    """Changes that are committed together, as `Graph.batch` returns it.

    Each method adds a part; the parts apply in the order in which they were added. Rows and DataFrames are read by
    `commit`. The context manager commits at its end. After an exception it commits nothing.
    """

    def __init__(self, request: LoadRequest, load: Callable[[LoadRequest], LoadReceipt]) -> None:
        self._request = request
        self._load = load
        self._parts: list[LoadPart] = []
        self._ended = False
        self.receipt: LoadReceipt | None = None

    def append(self, type_name: str, rows: Any, *, mapping: Mapped = None) -> Batch:
        """Add rows to insert. A row whose id exists when the part applies refuses the batch."""
        return self.load({type_name: rows}, "append", mapping=mapping)

    def merge(
        self,
        type_name: str,
        rows: Any,
        *,
        op_column: str | None = None,
        order_by: str | None = None,
        mapping: Mapped = None,
    ) -> Batch:
        """Add rows that replace those with their ids, or are inserted."""
        return self.load({type_name: rows}, "merge", op_column=op_column, order_by=order_by, mapping=mapping)

    def patch(
        self,
        type_name: str,
        rows: Any,
        *,
        op_column: str | None = None,
        order_by: str | None = None,
        mapping: Mapped = None,
    ) -> Batch:
        """Add rows that update those with their ids, or are inserted. Columns that are not given stay."""
        return self.load({type_name: rows}, "patch", op_column=op_column, order_by=order_by, mapping=mapping)

    def delete(
        self, type_name: str, rows: Any, *, order_by: str | None = None, mapping: Mapped = None
    ) -> Batch:
        """Add rows to delete by key or id. Deleted nodes lose their edges."""
        return self.load({type_name: rows}, "delete", order_by=order_by, mapping=mapping)

    def load(
        self,
        source: Any,
        mode: LoadMode = "merge",
        *,
        op_column: str | None = None,
        order_by: str | None = None,
        mapping: Mapped = None,
        csv_null: str = "",
    ) -> Batch:
        """Add any source of `Graph.load`, in every mode but ``overwrite``."""
        if self._ended:
            raise InvalidInput("the batch has ended", hint="begin another batch")
        if mode not in LOAD_MODES or mode == "overwrite":
            allowed = ", ".join(item for item in LOAD_MODES if item != "overwrite")
            raise InvalidInput(f"a batch does not support mode '{mode}'", hint=f"one of {allowed}")
        check_operations(mode, check_text("op_column", op_column), check_text("order_by", order_by))
        known = {_order_of(part) for part in self._parts} - {None, order_by}
        if order_by is not None and known:
            raise InvalidInput(
                f"the rows of the batch are ordered by '{known.pop()}', not by '{order_by}'",
                hint="use one order column in a batch",
            )
        operations = part_operations(mode, op_column, order_by)
        self._parts.append(LoadPart(source, operations, mapping, require_text("csv_null", csv_null)))
        return self

    def commit(self) -> LoadReceipt | None:
        """Read and check all parts and commit them once; None for a batch without parts."""
        if self._ended:
            raise InvalidInput("the batch has ended", hint="begin another batch")
        self._ended = True
        if self._parts:
            order = next(filter(None, map(_order_of, self._parts)), None)
            self.receipt = self._load(replace(self._request, parts=tuple(self._parts), order_by=order))
        return self.receipt

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._ended = True
        elif not self._ended:
            self.commit()


def _order_of(part: LoadPart) -> str | None:
    return None if part.operations is None else part.operations.order_by
