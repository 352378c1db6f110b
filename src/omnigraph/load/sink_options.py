"""The options of a sink. The module imports no storage library, so that Spark plans a write cheaply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.rules.external_blobs import ExternalBlobPolicy
from omnigraph.rules.load_mode import WriteMode


@dataclass(frozen=True)
class SinkOptions:
    """The options of a write of rows of one type."""

    uri: str
    type: str
    branch: str
    mode: WriteMode
    storage: Mapping[str, str] = field(repr=False)
    create_from: str | None = None
    message: str | None = None
    actor: str | None = None
    if_commit: str | None = None
    idempotency_key: str | None = None
    external_blobs: ExternalBlobPolicy = field(default_factory=ExternalBlobPolicy)
    rejects: str | None = None
    max_rejects: str | None = None
