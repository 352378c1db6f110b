"""Faster Python processes of Spark, for tests. Python runs this module at its start if the folder is on its path.

Spark starts one Python daemon for each kind of work, and the daemon forks the workers. Three costs repeat in every
worker or task, and together exceed the work of the tests:

- Spark puts `pyspark.zip` on the path. Its modules have no compiled files, and every task reads the directory of
  the archive again. The installed pyspark is the same code.
- Every worker imports Lance, Arrow and omnigraph. Here the daemon imports them before it forks. They start their
  threads at the first use, which is in the worker.
- The daemon runs a full garbage collection after every task. Frozen modules are exempt.

Processes that are no Python of Spark return at once.
"""

from __future__ import annotations

import gc
import importlib
import sys
import warnings
from importlib.machinery import PathFinder
from importlib.util import find_spec

# Module names follow `-m`. A daemon gets the module of its workers as an argument.
_MODULES = [name for name in sys.orig_argv[1:] if name.startswith("pyspark.")]
_WORKER_IMPORTS = (
    "lance",
    "omnigraph.load.split_staging",
    "omnigraph.spark.datasource.datasource",
    "pandas",
    "pyarrow.dataset",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
)


def _ignore_archives() -> bool:
    """Take the archives off the path, unless pyspark is not installed otherwise. Return whether it is."""
    others = [entry for entry in sys.path if not entry.endswith(".zip")]
    if PathFinder.find_spec("pyspark", others) is None:
        return False
    sys.path[:] = others
    return True


def _import_for_workers() -> None:
    for name in _WORKER_IMPORTS:
        importlib.import_module(name)
    # Lance warns of every fork.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    gc.freeze()


# Spark looks for data sources with any `python3`, which may have neither pyspark nor omnigraph.
if _MODULES and _ignore_archives() and _MODULES[0] == "pyspark.daemon" and find_spec("omnigraph"):
    _import_for_workers()
