"""The options of a sink. The module imports no storage library, so that Spark plans a write cheaply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.rules.external_blobs import ExternalBlobPolicy
from omnigraph.rules.load_mode import LoadMode


@dataclass(frozen=True)
class SinkOptions:
    """The options of a write of rows of one type, or of the types that `type_column` names for each row.

    `op_column` and `order_by` are columns with the operation and the order of each row. `embedding` has the
    variables of the providers that compute vectors.
    """

    uri: str
    type: str | None
    branch: str
    mode: LoadMode
    storage: Mapping[str, str] = field(repr=False)
    create_from: str | None = None
    message: str | None = None
    actor: str | None = None
    if_commit: str | None = None
    idempotency_key: str | None = None
    type_column: str | None = None
    op_column: str | None = None
    order_by: str | None = None
    require_existing: bool = False
    external_blobs: ExternalBlobPolicy = field(default_factory=ExternalBlobPolicy)
    rejects: str | None = None
    max_rejects: str | None = None
    index_later: bool = False
    embedding: Mapping[str, str] = field(default_factory=dict, repr=False)
