"""The arguments with which a local graph was opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from omnigraph.api.access import ExternalBlobs, Policy
    from omnigraph.maintain.upkeep_mode import UpkeepMode
    from omnigraph.search.embeddings.embedder import Embedder


@dataclass(frozen=True)
class OpenOptions:
    """The arguments of `omnigraph.open` besides the address. A handle pickles to its address and these options."""

    mode: Literal["rw", "r"] = "rw"
    actor: str | None = None
    storage_options: Mapping[str, str] | None = None
    durability: Literal["full", "os"] = "full"
    cache_bytes: int | None = None
    embedder: Embedder | None = None
    policy: Policy | None = None
    graph_id: str | None = None
    external_blobs: ExternalBlobs | None = None
    upkeep: UpkeepMode | None = None
