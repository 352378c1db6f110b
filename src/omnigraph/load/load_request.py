"""The arguments of a load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.engine.engine_choice import Engine
from omnigraph.errors import InvalidInput
from omnigraph.graph.pipeline_runs import PipelineRun
from omnigraph.graph.progress import Progress
from omnigraph.load.operation_rules import OperationRules
from omnigraph.rules.external_blobs import ExternalBlobPolicy
from omnigraph.rules.load_mode import LoadMode, WriteMode
from omnigraph.sources.row_operations import Operation, RowOperations

if TYPE_CHECKING:
    from omnigraph.search.embeddings.vector_computation import VectorComputation

# The target of rejected records: a file of JSON lines, a folder for such files, ``table:NAME``, or a function.
Rejects: TypeAlias = str | Path | Callable[[Mapping[str, Any]], None]


# The operation of the rows of each mode, unless a column has it. An overwrite has no operations.
OPERATIONS: Mapping[LoadMode, Operation] = {
    "append": Operation.INSERT,
    "merge": Operation.REPLACE,
    "patch": Operation.PATCH,
    "delete": Operation.DELETE,
}


def row_operations(mode: LoadMode, op_column: str | None, order_by: str | None) -> RowOperations | None:
    """Return the operations of the rows of a load; None if the mode applies to whole rows in input order."""
    is_plain = mode in ("append", "merge", "overwrite")
    if is_plain and op_column is None and order_by is None:
        return None
    return RowOperations(OPERATIONS[mode], op_column, order_by)


def write_mode(mode: LoadMode) -> WriteMode:
    """Return how the final rows of a mode enter their tables."""
    return mode if mode in ("append", "overwrite") else "merge"


def check_operations(mode: str, op_column: str | None, order_by: str | None) -> None:
    """Raise `InvalidInput` for an operation or order column with a mode that has none."""
    if op_column is not None and mode not in ("merge", "patch"):
        raise InvalidInput(
            f"an operation column does not apply to mode '{mode}'",
            hint="use mode 'merge' to replace whole rows or 'patch' to keep columns that are not given",
        )
    if order_by is not None and mode not in ("merge", "patch", "delete"):
        raise InvalidInput(
            f"an order column does not apply to mode '{mode}'", hint="use mode merge, patch or delete"
        )


def is_index_later(index: str) -> bool:
    """Return whether the argument `index` leaves indexes to a later optimize."""
    if index not in ("now", "later"):
        raise InvalidInput(f"index: expected now or later, got '{index}'")
    return index == "later"


def part_operations(mode: LoadMode, op_column: str | None, order_by: str | None) -> RowOperations:
    """Return the operations of a part of a batch, whose rows always have one."""
    return RowOperations(OPERATIONS[mode], op_column, order_by)


@dataclass(frozen=True, slots=True)
class LoadPart:
    """One of several sources of a load, with the operations of its rows."""

    source: Any
    operations: RowOperations | None
    mapping: Any = None
    csv_null: str = ""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The arguments of `Graph.load`, or with `parts` those of `Graph.batch`.

    `run` is the pipeline run that makes the commit. With `index_later` the rows are indexed by a later optimize.
    `vectors` computes the embeddings that rows lack.
    """

    source: Any
    mode: LoadMode
    branch: str
    create_from: str | None = None
    engine: Engine = "auto"
    rejects: Rejects | None = None
    max_rejects: int | str | None = None
    permissive: bool = False
    message: str | None = None
    if_commit: str | None = None
    idempotency_key: str | None = None
    actor: str | None = None
    progress: Progress | None = None
    spark: Any = None
    dry_run: bool = False
    mapping: Any = None
    external_blobs: ExternalBlobPolicy = field(default_factory=ExternalBlobPolicy)
    csv_null: str = ""
    run: PipelineRun | None = None
    op_column: str | None = None
    order_by: str | None = None
    require_existing: bool = False
    index_later: bool = False
    parts: tuple[LoadPart, ...] = ()
    vectors: VectorComputation | None = None

    @property
    def all_parts(self) -> tuple[LoadPart, ...]:
        """The parts of a batch, or the source of the load as the only part."""
        return self.parts or (LoadPart(self.source, self.operations, self.mapping, self.csv_null),)

    @property
    def has_operations(self) -> bool:
        """Whether the rows have operations."""
        return bool(self.parts) or self.operations is not None

    @property
    def operations(self) -> RowOperations | None:
        """The operations of the rows; None if the mode applies to whole rows in input order."""
        return row_operations(self.mode, self.op_column, self.order_by)

    @property
    def rules(self) -> OperationRules | None:
        """The options of the operations; None if the rows have none."""
        if not self.has_operations:
            return None
        columns = (part.operations.column for part in self.all_parts if part.operations is not None)
        op_column = next(filter(None, columns), None)
        return OperationRules(self.order_by, self.require_existing, op_column)

    @property
    def write_mode(self) -> WriteMode:
        """How the final rows enter their tables."""
        return write_mode(self.mode)

    @property
    def base(self) -> str:
        """The branch that the load is checked against. A dry run creates no branch and uses its parent instead."""
        return self.branch if self.create_from is None or not self.dry_run else self.create_from
