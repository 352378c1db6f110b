"""The arguments that backup, restore and clone share."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.graph.progress import Progress
from omnigraph.maintain.backup.copy_report import Verification
from omnigraph.store.storage_options import StorageOptions
from omnigraph.store.sync import Durability


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How a copy is written and checked. `storage` has the storage options of the target.

    `progress` is called with ``"copy"`` and the bytes copied so far. With `skip_damaged`, missing and damaged table
    files of the source are left out and listed in the report. Without it they raise `StorageError`.
    """

    storage: StorageOptions | None = None
    durability: Durability = "full"
    verify: Verification = "quick"
    progress: Progress | None = None
    skip_damaged: bool = False


DEFAULT_OPTIONS = CopyOptions()
