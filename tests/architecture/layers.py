"""The rules of the layer diagram, each a function from one module to the sentences it breaks."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tests.architecture.modules import Import, Module, imports

# From the bottom up, with what each row is for. A package imports itself and packages of lower rows.
ROWS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("errors",), "one root of all errors, with structured locations"),
    (("extras",), "optional dependencies and their errors"),
    (("budget",), "deadlines, cancellation and budgets of the current work"),
    (("lang",), ".pg and .gq to typed IR; pure"),
    (("catalog",), "accepted schema, identities, keys, migration, schema merge; pure"),
    (("store",), "the only code that touches bytes: Lance tables, objects, manifest"),
    (("graph",), "branches, commits, snapshots, publish, intents, recovery"),
    (("sources", "rules"), "where rows come from; what rows must satisfy"),
    (("engine",), "local kernels: Arrow, DuckDB, CSR, diff"),
    (("search",), "full-text and vector search, embeddings"),
    (("read",), "queries: plan, match, project; export"),
    (("changes", "maintain"), "diff, change feed, baseline; optimize, garbage collection"),
    # No operation imports another.
    (("mutate", "load", "merge", "schema"), "mutations; bulk loads; merge and revert; schema changes"),
    # Above the local work, because it distributes the same work over tasks.
    (("spark",), "the same work on Spark, and the data source; the only importer of pyspark"),
    (("policy",), "access control: one decision per actor, action and branch"),
    (("api",), "the Graph interface and its local implementation"),
    # Above the graphs that it writes; its DataFrames are made in spark/pipelines.
    (("pipelines",), "pipelines as files: sources, views, targets, audits, runs and their state"),
    (("protocol",), "HTTP requests, responses and encoding, shared by server and client"),
    (("client",), "the same interface over HTTP"),
    (("aio",), "the same interface as coroutines"),
    # Not a folder: the files directly below the package, which re-export both kinds of graphs.
    (("omnigraph",), "the public names"),
    # Below the surfaces: the command line changes a cluster, and the server serves it.
    (("cluster",), "the control plane: declared graphs, ledger, plan, apply"),
    (("cli", "server", "mcp", "studio"), "surfaces: parse, render, authenticate"),
)
LAYERS: tuple[frozenset[str], ...] = tuple(frozenset(names) for names, _ in ROWS)
SURFACES = LAYERS[-1]

# Neighbours in one row that may know each other, in this direction only. The command line is the one
# executable, so it is what starts the other surfaces. The server serves the files of the Studio, and MCP
# over HTTP.
PEERS = frozenset(
    {("cli", "server"), ("cli", "mcp"), ("cli", "studio"), ("server", "studio"), ("server", "mcp")}
)

STORAGE_LIBRARIES = frozenset({"lance", "obstore"})
# The languages and the catalog are pure: text and data in, data out.
IMPURE_LIBRARIES = STORAGE_LIBRARIES | {
    "aiohttp", "duckdb", "fastapi", "http", "httpx", "pyspark", "requests", "socket", "sqlite3",
    "starlette", "subprocess", "urllib3", "uvicorn",
}  # fmt: skip
CONFIG_LIBRARIES = frozenset({"configparser", "dotenv", "pydantic_settings", "tomllib", "yaml"})
# What a caller names and hands over is an input, whatever it is written in.
DOCUMENTS = frozenset({"sources/mapping/document.py"})
# Storage credentials follow the convention of the ecosystem: every entry point honours the usual AWS_* variables
# and the profile that AWS_PROFILE names.
STORAGE_VARIABLES = frozenset({"store/storage_options.py", "store/aws_profile.py"})
# One switch turns background work off in all processes of a deployment or of a test run.
UPKEEP_VARIABLE = frozenset({"maintain/upkeep_mode.py"})
# The values of a pipeline file's variables are those of the process that runs it.
PIPELINE_VARIABLES = frozenset({"pipelines/variables.py"})
ENVIRONMENT = frozenset({"environ", "environb", "getenv", "putenv", "unsetenv"})

Rule = Callable[[Module], Iterator[str]]


def layer_of(package: str) -> str:
    """The layer of a package; files directly below `omnigraph` that no layer names are the public face."""
    known = {name for row in LAYERS for name in row}
    return package if package in known else "omnigraph"


def rank(layer: str) -> int:
    return next(height for height, row in enumerate(LAYERS) if layer in row)


def imports_point_down(module: Module) -> Iterator[str]:
    here = layer_of(module.package)
    for found in imports(module):
        if found.top != "omnigraph":
            continue
        there = _imported_layer(found)
        if here == there or (here, there) in PEERS:
            continue
        if rank(there) >= rank(here):
            yield f"{module.path}:{found.line}: {here} imports {there} ({found.name})"


def every_folder_is_a_known_layer(module: Module) -> Iterator[str]:
    # Without this a new folder would silently count as the public face and could import nearly everything.
    if "/" in module.path and layer_of(module.package) != module.package:
        yield f"{module.path}: {module.package}/ stands in no layer"


def languages_and_catalog_are_pure(module: Module) -> Iterator[str]:
    if module.package not in ("lang", "catalog"):
        return
    for found in imports(module):
        if found.top in IMPURE_LIBRARIES or found.name.startswith("urllib.request"):
            yield f"{module.path}:{found.line}: {module.package} imports {found.name}"


def only_store_touches_storage(module: Module) -> Iterator[str]:
    if module.package == "store":
        return
    for found in imports(module):
        if found.top in STORAGE_LIBRARIES:
            yield f"{module.path}:{found.line}: only store imports {found.top}"


def spark_is_imported_lazily_and_in_its_place(module: Module) -> Iterator[str]:
    for found in imports(module):
        if found.top not in ("pyspark", "py4j"):
            continue
        if module.package != "spark":
            yield f"{module.path}:{found.line}: only spark imports {found.top}"
        elif not found.lazy:
            yield f"{module.path}:{found.line}: {found.top} is imported at the top of the module"


def only_surfaces_read_the_environment(module: Module) -> Iterator[str]:
    if module.package in SURFACES or module.path in STORAGE_VARIABLES | UPKEEP_VARIABLE | PIPELINE_VARIABLES:
        return
    for node in module.nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=attr) if attr in ENVIRONMENT:
                yield f"{module.path}:{node.lineno}: reads os.{attr}"
            case ast.ImportFrom(module="os", names=names):
                for alias in names:
                    if alias.name in ENVIRONMENT:
                        yield f"{module.path}:{node.lineno}: reads os.{alias.name}"
            case ast.Attribute(attr="expanduser") | ast.Attribute(value=ast.Name(id="Path"), attr="home"):
                yield f"{module.path}:{node.lineno}: looks into the home directory"
    for found in imports(module):
        if found.top in CONFIG_LIBRARIES and module.path not in DOCUMENTS:
            yield f"{module.path}:{found.line}: reads config files with {found.top}"


def imports_are_absolute(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            yield f"{module.path}:{node.lineno}: relative import"


def init_files_hold_no_logic(module: Module) -> Iterator[str]:
    if not module.is_init:
        return
    for position, statement in enumerate(module.tree.body):
        match statement:
            case ast.Import() | ast.ImportFrom():
                continue
            case ast.Expr(value=ast.Constant(value=str())) if position == 0:
                continue
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)) if all(
                isinstance(name, ast.Constant) for name in names
            ):
                continue
            case ast.Assign(targets=[ast.Name(id="__version__")], value=ast.Constant()):
                continue
        if module.path == "__init__.py" and _imports_on_first_use(statement):
            continue
        yield f"{module.path}:{statement.lineno}: an __init__ only re-exports"


def _imports_on_first_use(statement: ast.stmt) -> bool:
    """Whether this is a part of importing the names of the package when they are first used (PEP 562)."""
    match statement:
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[]):
            return all(isinstance(inner, ast.ImportFrom) for inner in body)
        case ast.Assign(targets=[ast.Name(id="_MODULES")], value=ast.Dict(keys=keys, values=values)):
            return all(isinstance(part, ast.Constant) for part in (*keys, *values))
        case ast.FunctionDef(name="__getattr__" | "__dir__"):
            return True
    return False


RULES: tuple[Rule, ...] = (
    imports_point_down,
    every_folder_is_a_known_layer,
    languages_and_catalog_are_pure,
    only_store_touches_storage,
    spark_is_imported_lazily_and_in_its_place,
    only_surfaces_read_the_environment,
    imports_are_absolute,
    init_files_hold_no_logic,
)


def _imported_layer(found: Import) -> str:
    parts = found.name.split(".")
    return layer_of(parts[1]) if len(parts) > 1 else "omnigraph"
