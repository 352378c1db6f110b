"""OmniGraph: a typed property-graph database on Lance tables that branches, merges and time-travels.

A name is imported from its module when it is first used, so that `import omnigraph` and the command line start
quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph import aio, errors
    from omnigraph.api.backups import backup, clone, restore
    from omnigraph.api.entry import embedder_of, init, local_embedder, open  # noqa: A004 - the name is part of the API
    from omnigraph.api.graph import Graph
    from omnigraph.api.interface.branches import Branch
    from omnigraph.api.interface.schemas import SchemaApplied
    from omnigraph.api.interface.tags import Tag
    from omnigraph.api.local.local_graph import LocalGraph
    from omnigraph.api.results.commits import Commit
    from omnigraph.api.results.history import EntityVersion, PropertyOrigin
    from omnigraph.api.results.loads import LoadReceipt
    from omnigraph.api.results.maintenance_reports import Index, Recovery, Repair
    from omnigraph.api.results.merges import Merged
    from omnigraph.api.results.receipts import Receipt
    from omnigraph.api.results.result import Result
    from omnigraph.api.schema_proposals import schema_from
    from omnigraph.client.entry import connect
    from omnigraph.errors import OmnigraphError
    from omnigraph.maintain.backup.copy_report import CopyReport
    from omnigraph.schema.expression import expr

__all__ = [
    "Branch",
    "Commit",
    "CopyReport",
    "EntityVersion",
    "Graph",
    "Index",
    "LoadReceipt",
    "LocalGraph",
    "Merged",
    "OmnigraphError",
    "PropertyOrigin",
    "Receipt",
    "Recovery",
    "Repair",
    "Result",
    "SchemaApplied",
    "Tag",
    "__version__",
    "aio",
    "backup",
    "clone",
    "connect",
    "embedder_of",
    "errors",
    "expr",
    "init",
    "local_embedder",
    "open",
    "restore",
    "schema_from",
]

__version__ = "0.1.0"

_MODULES = {
    "Branch": "omnigraph.api.interface.branches",
    "Commit": "omnigraph.api.results.commits",
    "CopyReport": "omnigraph.maintain.backup.copy_report",
    "EntityVersion": "omnigraph.api.results.history",
    "Graph": "omnigraph.api.graph",
    "Index": "omnigraph.api.results.maintenance_reports",
    "LoadReceipt": "omnigraph.api.results.loads",
    "LocalGraph": "omnigraph.api.local.local_graph",
    "Merged": "omnigraph.api.results.merges",
    "OmnigraphError": "omnigraph.errors",
    "PropertyOrigin": "omnigraph.api.results.history",
    "Receipt": "omnigraph.api.results.receipts",
    "Recovery": "omnigraph.api.results.maintenance_reports",
    "Repair": "omnigraph.api.results.maintenance_reports",
    "Result": "omnigraph.api.results.result",
    "SchemaApplied": "omnigraph.api.interface.schemas",
    "Tag": "omnigraph.api.interface.tags",
    "aio": "omnigraph.aio",
    "backup": "omnigraph.api.backups",
    "clone": "omnigraph.api.backups",
    "connect": "omnigraph.client.entry",
    "embedder_of": "omnigraph.api.entry",
    "errors": "omnigraph.errors",
    "expr": "omnigraph.schema.expression",
    "init": "omnigraph.api.entry",
    "local_embedder": "omnigraph.api.entry",
    "open": "omnigraph.api.entry",
    "restore": "omnigraph.api.backups",
    "schema_from": "omnigraph.api.schema_proposals",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULES[name])
    # `aio` and `errors` are modules themselves.
    value = module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
