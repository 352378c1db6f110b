"""OmniGraph: a typed property-graph database on Lance tables that branches, merges and time-travels."""

from omnigraph import aio, errors
from omnigraph.api.backups import backup, clone, restore
from omnigraph.api.entry import embedder_of, init, open  # noqa: A004 - the name is part of the API
from omnigraph.api.graph import Graph
from omnigraph.api.interface.branches import Branch
from omnigraph.api.interface.schemas import SchemaApplied
from omnigraph.api.interface.tags import Tag
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.api.results.commits import Commit
from omnigraph.api.results.loads import LoadReceipt
from omnigraph.api.results.maintenance_reports import Index, Recovery, Repair
from omnigraph.api.results.merges import Merged
from omnigraph.api.results.receipts import Receipt
from omnigraph.api.results.result import Result
from omnigraph.client.entry import connect
from omnigraph.errors import OmnigraphError
from omnigraph.maintain.backup.copy_report import CopyReport
from omnigraph.schema.expression import expr

__all__ = [
    "Branch",
    "Commit",
    "CopyReport",
    "Graph",
    "Index",
    "LoadReceipt",
    "LocalGraph",
    "Merged",
    "OmnigraphError",
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
    "open",
    "restore",
]

__version__ = "0.1.0"
