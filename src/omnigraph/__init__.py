"""OmniGraph: a typed property-graph database on Lance tables that branches, merges and time-travels."""

from omnigraph import aio, errors
from omnigraph.api.backups import backup, clone, restore
from omnigraph.api.branches import Branch
from omnigraph.api.commits import Commit
from omnigraph.api.entry import embedder_of, init, open  # noqa: A004 - the name is part of the API
from omnigraph.api.graph import Graph
from omnigraph.api.loads import LoadReceipt
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.api.maintenance_reports import Index, Recovery, Repair
from omnigraph.api.merges import Merged
from omnigraph.api.receipts import Receipt
from omnigraph.api.result import Result
from omnigraph.api.schemas import SchemaApplied
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
