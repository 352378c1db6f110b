"""The project file, the package and the extras agree."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import httpx
import pytest
import yaml

import omnigraph
from omnigraph.extras import LIBRARIES
from tests.architecture.modules import Import, Module, imports, modules
from tests.server.running import host, running
from tests.support.waiting import HANG

ROOT = Path(__file__).parents[1]

# The distribution that installs a library, where the names differ. The last ones come as dependencies of another.
_DISTRIBUTIONS = {
    "lance": "pylance",
    "mcp_types": "mcp-types",
    "opentelemetry": "opentelemetry-sdk",
    "prometheus_client": "prometheus-client",
    "python_multipart": "python-multipart",
    "typing_extensions": "typing-extensions",
    "prompt_toolkit": "prompt-toolkit",
    "ulid": "python-ulid",
    "yaml": "pyyaml",
    "anyio": "httpx",
    "h11": "uvicorn",
    "py4j": "pyspark",
    "pydantic_core": "pydantic",
    "starlette": "fastapi",
}
# Extras that are no single feature, and one whose libraries are large and that `scripts/check-onnx` tests.
_INTERNAL = {"all", "bench", "dev", "docs", "onnx"}


@cache
def project() -> dict[str, object]:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert isinstance(found, dict)
    return found


@cache
def base() -> set[str]:
    """The names of the distributions that the package needs without extras."""
    return {_bare_name(requirement) for requirement in project()["dependencies"]}  # type: ignore[attr-defined]


def extras() -> dict[str, list[str]]:
    found = project()["optional-dependencies"]
    assert isinstance(found, dict)
    return found


@cache
def installed_by(extra: str) -> set[str]:
    """The names of the distributions that an extra adds, those of the extras it includes among them."""
    found: set[str] = set()
    for requirement in extras()[extra]:
        if _bare_name(requirement) == "omnigraph":
            for other in _extras_of(requirement):
                found |= installed_by(other)
        else:
            found.add(_bare_name(requirement))
    return found


def undeclared(module: Module) -> list[str]:
    """The imports of a module that the dependencies do not cover, as sentences.

    The base covers every import; an extra covers its libraries inside functions, and everywhere in the package of
    its name, which is itself imported inside a function.
    """
    return [
        f"{module.path}:{found.line}: {found.top} is not a dependency of the base"
        for found in imports(module)
        if not _is_covered(module, found)
    ]


def _is_covered(module: Module, found: Import) -> bool:
    # _typeshed exists for type checkers alone.
    if found.top in sys.stdlib_module_names or found.top in ("omnigraph", "_typeshed"):
        return True
    if module.package in ("server", "mcp") and _distribution(found.top) in installed_by(module.package):
        return True
    optional = {name for extra in LIBRARIES for name in installed_by(extra)}
    return _distribution(found.top) in (base() | optional if found.lazy else base())


def _distribution(library: str) -> str:
    return _DISTRIBUTIONS.get(library, library)


# --- The version ------------------------------------------------------------------------------------------


def test_built_package_has_the_version_of_the_module() -> None:
    asked = [sys.executable, "-m", "hatchling", "metadata", "version"]
    run = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == omnigraph.__version__


def test_version_is_written_in_one_place() -> None:
    files = [ROOT / "pyproject.toml", *(ROOT / "src").rglob("*.py")]
    literal = re.compile(rf'version\w*["\']?\s*[=:]\s*["\']{re.escape(omnigraph.__version__)}')
    found = [path.relative_to(ROOT).as_posix() for path in files if literal.search(path.read_text("utf-8"))]
    assert found == ["src/omnigraph/__init__.py"]


def test_server_reports_the_version_of_the_module() -> None:
    with running(host()) as server:
        health = httpx.get(f"{server.url}/healthz", timeout=HANG).json()
        document = httpx.get(f"{server.url}/openapi.json", timeout=HANG).json()
    assert (health["version"], document["info"]["version"]) == (omnigraph.__version__, omnigraph.__version__)


def test_version_has_a_section_in_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{omnigraph.__version__}]" in changelog


# --- The package ------------------------------------------------------------------------------------------


def test_continuous_integration_runs_every_supported_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    classifiers = project()["classifiers"]
    assert isinstance(classifiers, list)
    supported = [name.rpartition(" :: ")[2] for name in classifiers if " :: 3." in name]
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == supported


def test_every_exported_name_exists() -> None:
    assert all(hasattr(omnigraph, name) for name in omnigraph.__all__)


def test_the_package_declares_its_types() -> None:
    assert (Path(omnigraph.__file__).parent / "py.typed").is_file()


# --- Dependencies -----------------------------------------------------------------------------------------


def test_every_dependency_is_pinned_by_the_constraints() -> None:
    pins = [
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    names = base().union(*(installed_by(extra) for extra in extras()))
    assert names <= set(pins)
    assert "omnigraph" not in pins
    # pyspark has no wheel, so pip builds it; the pins cover that build too.
    assert {"setuptools", "wheel", "hatchling"} <= set(pins)


def test_extra_all_installs_every_feature_and_dev_includes_it() -> None:
    features = extras().keys() - _INTERNAL
    assert installed_by("all") == set().union(*(installed_by(extra) for extra in features))
    assert installed_by("all") <= installed_by("dev")


@pytest.mark.parametrize("extra", LIBRARIES)
def test_extra_installs_the_libraries_that_errors_name(extra: str) -> None:
    wanted = {_distribution(library) for library in LIBRARIES[extra]}
    assert wanted <= installed_by(extra)
    assert not wanted & base()


def test_base_imports_no_optional_library_eagerly() -> None:
    assert [sentence for module in modules() for sentence in undeclared(module)] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("api/graph.py", "import pandas"),
        ("cli/serve.py", "from fastapi import FastAPI"),
        ("server/app.py", "import pyspark"),
        ("api/graph.py", "def f():\n    import requests"),
    ],
)
def test_undeclared_import_is_reported(path: str, text: str) -> None:
    assert undeclared(Module(path, text)) != []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("api/graph.py", "import ulid\nimport lance\nimport json"),
        ("api/results/result.py", "def f():\n    import pandas"),
        ("server/app.py", "from starlette.types import Scope\nfrom anyio import to_thread"),
    ],
)
def test_declared_import_is_accepted(path: str, text: str) -> None:
    assert undeclared(Module(path, text)) == []


def _bare_name(requirement: str) -> str:
    """
    >>> _bare_name("pyspark[connect]>=4.0,<5")
    'pyspark'
    """
    for mark in "[<>=!~; ":
        requirement = requirement.partition(mark)[0]
    return requirement.lower()


def _extras_of(requirement: str) -> list[str]:
    """
    >>> _extras_of("omnigraph[avro,polars]")
    ['avro', 'polars']
    """
    return requirement.partition("[")[2].partition("]")[0].split(",")
