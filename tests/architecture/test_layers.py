"""Imports only point down, and each library stays in its layer.

Every rule is shown to fail on a planted module before it is trusted on the real ones.
"""

from __future__ import annotations

import pytest

from tests.architecture.layers import (
    PEERS,
    RULES,
    Rule,
    every_folder_is_a_known_layer,
    imports_are_absolute,
    imports_point_down,
    init_files_hold_no_logic,
    languages_and_catalog_are_pure,
    only_store_touches_storage,
    only_surfaces_read_the_environment,
    rank,
    spark_is_imported_lazily_and_in_its_place,
)
from tests.architecture.modules import Module, modules

BAD: list[tuple[Rule, str, str]] = [
    (imports_point_down, "errors.py", "from omnigraph.lang import types"),
    (imports_point_down, "lang/gq/check.py", "from omnigraph.catalog.keys import derive"),
    (imports_point_down, "lang/gq/check.py", "import omnigraph.store"),
    (imports_point_down, "lang/gq/check.py", "from omnigraph import catalog"),
    (imports_point_down, "lang/gq/check.py", "import omnigraph"),
    (imports_point_down, "catalog/catalog.py", "def f():\n    from omnigraph.graph import graph"),
    (
        imports_point_down,
        "store/tables/tables.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from omnigraph.graph.graph import Graph",
    ),
    (
        imports_point_down,
        "store/tables/tables.py",
        "import importlib\nimportlib.import_module('omnigraph.read')",
    ),
    (imports_point_down, "graph/repository.py", "from omnigraph.load import spool"),
    (imports_point_down, "engine/duckdb.py", "from omnigraph.spark import session"),
    (imports_point_down, "mutate/mutate.py", "from omnigraph.load import spool"),
    (imports_point_down, "load/load.py", "from omnigraph.mutate import overlay"),
    (imports_point_down, "schema/apply_schema.py", "from omnigraph.load import key_checks"),
    (imports_point_down, "maintain/optimize.py", "from omnigraph.policy import gate"),
    (imports_point_down, "maintain/optimize.py", "def f():\n    from omnigraph.spark import session"),
    (imports_point_down, "merge/conflicts.py", "from omnigraph.schema import expression"),
    (imports_point_down, "sources/tabular.py", "from omnigraph.rules import delta"),
    (imports_point_down, "api/graph.py", "from omnigraph.protocol import codec"),
    (imports_point_down, "policy/gate.py", "from omnigraph import Graph"),
    (imports_point_down, "api/graph.py", "def f():\n    from omnigraph.client import graph"),
    (imports_point_down, "client/graph.py", "from omnigraph import Graph"),
    (imports_point_down, "client/graph.py", "from omnigraph.server import app"),
    (imports_point_down, "aio/entry.py", "from omnigraph.cli.main import main"),
    (imports_point_down, "server/app.py", "from omnigraph.cli import render"),
    (every_folder_is_a_known_layer, "utils/strings.py", ""),
    (languages_and_catalog_are_pure, "lang/gq/check.py", "import duckdb"),
    (languages_and_catalog_are_pure, "lang/gq/check.py", "def f():\n    import httpx"),
    (languages_and_catalog_are_pure, "catalog/keys.py", "from fastapi import FastAPI"),
    (languages_and_catalog_are_pure, "catalog/keys.py", "from urllib.request import urlopen"),
    (languages_and_catalog_are_pure, "catalog/keys.py", "from urllib import request"),
    (only_store_touches_storage, "graph/graph.py", "import lance"),
    (only_store_touches_storage, "read/execute.py", "def f():\n    from lance.fragment import x"),
    (only_store_touches_storage, "cli/main.py", "import obstore as obs"),
    (spark_is_imported_lazily_and_in_its_place, "engine/duckdb.py", "def f():\n    import pyspark"),
    (spark_is_imported_lazily_and_in_its_place, "engine/sparkling.py", "def f():\n    import pyspark"),
    (spark_is_imported_lazily_and_in_its_place, "read/spark_query.py", "def f():\n    import pyspark"),
    (
        spark_is_imported_lazily_and_in_its_place,
        "spark/engine/pattern_joins.py",
        "from pyspark.sql import functions",
    ),
    (
        spark_is_imported_lazily_and_in_its_place,
        "spark/session.py",
        "try:\n    import pyspark\nexcept: ...",
    ),
    (spark_is_imported_lazily_and_in_its_place, "spark/session.py", "class A:\n    import pyspark"),
    (only_surfaces_read_the_environment, "store/objects/objects.py", "import os\nos.environ['HOME']"),
    (only_surfaces_read_the_environment, "graph/graph.py", "import os\nos.getenv('HOME')"),
    (only_surfaces_read_the_environment, "graph/graph.py", "from os import environ"),
    (only_surfaces_read_the_environment, "policy/gate.py", "import yaml"),
    (only_surfaces_read_the_environment, "engine/base.py", "from pathlib import Path\nPath.home()"),
    (only_surfaces_read_the_environment, "engine/base.py", "p.expanduser()"),
    (imports_are_absolute, "lang/gq/check.py", "from . import types"),
    (imports_are_absolute, "lang/gq/check.py", "def f():\n    from ..errors import InvalidInput"),
    (init_files_hold_no_logic, "lang/__init__.py", "import os\nX = os.name"),
    (init_files_hold_no_logic, "lang/__init__.py", "def tidy(): ..."),
    (init_files_hold_no_logic, "lang/__init__.py", "import os\n'not a docstring'"),
    (init_files_hold_no_logic, "__init__.py", "__all__ = [name for name in dir()]"),
    (init_files_hold_no_logic, "__init__.py", "def tidy(): ..."),
    (init_files_hold_no_logic, "__init__.py", "_MODULES = {name: name for name in dir()}"),
    (init_files_hold_no_logic, "lang/__init__.py", "def __getattr__(name): ..."),
]

GOOD: list[tuple[str, str]] = [
    ("lang/gq/check.py", "from omnigraph.errors import InvalidInput\nfrom omnigraph.lang import types"),
    ("catalog/keys.py", "from omnigraph import errors\nfrom urllib.parse import quote\nimport pyarrow"),
    ("store/tables/tables.py", "import lance\nimport obstore\nfrom omnigraph.catalog import catalog"),
    ("spark/engine/pattern_joins.py", "def session():\n    from pyspark.sql import SparkSession"),
    ("spark/engine/spark_expressions.py", "def lit():\n    from pyspark.sql import functions"),
    (
        "spark/session.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pyspark.sql import DataFrame",
    ),
    ("load/load.py", "from omnigraph.engine import committed_rows\nfrom omnigraph.graph import transaction"),
    ("__init__.py", '"""Doc."""\nfrom omnigraph.api import open\n__all__ = ["open"]\n__version__ = "1"'),
    ("__init__.py", '_MODULES = {"open": "omnigraph.api"}\ndef __getattr__(name): ...'),
    ("api/graph.py", "from omnigraph.policy import gate\nfrom omnigraph.read import execute"),
    ("client/graph.py", "from omnigraph.api.graph import Graph\nfrom omnigraph.graph import snapshot"),
    ("aio/entry.py", "from omnigraph.api import entry\nfrom omnigraph.client import entry as client"),
    ("cli/main.py", "import os, yaml\nfrom omnigraph import errors\nos.environ['X']"),
    (
        "cli/commands/serving/serve.py",
        "def serve():\n    from omnigraph.server import app\n    import omnigraph",
    ),
]


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    BAD,
    ids=[f"{rule.__name__}-{number}" for number, (rule, _, _) in enumerate(BAD)],
)
def test_a_planted_violation_is_found(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Module(path, text)))


@pytest.mark.parametrize(("path", "text"), GOOD, ids=[path for path, _ in GOOD])
def test_a_module_in_its_place_passes_every_rule(path: str, text: str) -> None:
    assert [broken for rule in RULES for broken in rule(Module(path, text))] == []


@pytest.mark.parametrize("rule", RULES, ids=[rule.__name__ for rule in RULES])
def test_the_source_tree_keeps_the_rule(rule: Rule) -> None:
    assert [broken for module in modules() for broken in rule(module)] == []


def test_every_rule_has_a_planted_violation() -> None:
    assert {rule for rule, _, _ in BAD} == set(RULES)


def test_the_guards_see_the_source_tree() -> None:
    assert {"__init__.py", "errors.py"} <= {module.path for module in modules()}


def test_neighbours_never_import_each_other_both_ways() -> None:
    assert all((there, here) not in PEERS for here, there in PEERS)
    assert all(rank(here) == rank(there) for here, there in PEERS)
