"""OmniGraph: a typed property-graph database on Lance tables that branches, merges and time-travels."""

from omnigraph import errors
from omnigraph.errors import OmnigraphError

__all__ = ["OmnigraphError", "__version__", "errors"]

__version__ = "0.1.0"
