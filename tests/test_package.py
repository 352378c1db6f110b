"""What the package says about itself agrees with its project file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml

import omnigraph

ROOT = Path(__file__).parents[1]


def project() -> dict[str, object]:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert isinstance(found, dict)
    return found


def test_the_version_agrees_with_the_project_file() -> None:
    assert omnigraph.__version__ == project()["version"]


def test_changelog_version_of_the_project_file_has_a_section() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{project()['version']}]" in changelog


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


def test_every_dependency_is_pinned_by_the_constraints() -> None:
    pins = [
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    declared = project()
    wanted = list(declared["dependencies"])  # type: ignore[call-overload]
    for extra in declared["optional-dependencies"].values():  # type: ignore[attr-defined]
        wanted.extend(extra)
    names = {_bare_name(requirement) for requirement in wanted} - {"omnigraph"}
    assert names <= set(pins)
    assert "omnigraph" not in pins


def _bare_name(requirement: str) -> str:
    """
    >>> _bare_name("pyspark[connect]>=4.0,<5")
    'pyspark'
    """
    for mark in "[<>=!~; ":
        requirement = requirement.partition(mark)[0]
    return requirement.lower()
