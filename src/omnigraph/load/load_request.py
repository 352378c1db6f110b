"""The arguments of a load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from omnigraph.engine.engine_choice import Engine
from omnigraph.graph.pipeline_runs import PipelineRun
from omnigraph.graph.progress import Progress
from omnigraph.load.operation_rules import OperationRules
from omnigraph.rules.external_blobs import ExternalBlobPolicy
from omnigraph.rules.load_mode import LoadMode, WriteMode
from omnigraph.sources.row_operations import Operation, RowOperations

# The target of rejected records: a file of JSON lines, a folder for such files, ``table:NAME``, or a function.
Rejects: TypeAlias = str | Path | Callable[[Mapping[str, Any]], None]


# The operation of the rows of each mode, unless a column has it. An overwrite has no operations.
OPERATIONS: Mapping[LoadMode, Operation] = {
    "append": Operation.INSERT,
    "merge": Operation.REPLACE,
    "patch": Operation.PATCH,
    "delete": Operation.DELETE,
}


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The arguments of `Graph.load`. `run` is the pipeline run that makes the commit."""

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

    @property
    def operations(self) -> RowOperations | None:
        """The operations of the rows; None if the mode applies to whole rows in input order."""
        is_plain = self.mode in ("append", "merge", "overwrite")
        if is_plain and self.op_column is None and self.order_by is None:
            return None
        return RowOperations(OPERATIONS[self.mode], self.op_column, self.order_by)

    @property
    def rules(self) -> OperationRules | None:
        """The options of the operations; None if the rows have none."""
        return None if self.operations is None else OperationRules(self.order_by, self.require_existing)

    @property
    def write_mode(self) -> WriteMode:
        """How the final rows enter their tables."""
        return self.mode if self.mode in ("append", "overwrite") else "merge"

    @property
    def base(self) -> str:
        """The branch that the load is checked against. A dry run creates no branch and uses its parent instead."""
        return self.branch if self.create_from is None or not self.dry_run else self.create_from
