"""The documentation site: it builds without warnings, makes no requests, and its reference pages are complete."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph import errors
from scripts.reference import OPENAPI, command_paths, commands, error_codes, fill, routes
from scripts.site_hooks import site_path

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "mkdocs.yml"
# What a browser loads on its own, unlike a link that a reader follows.
REMOTE = re.compile(
    r'<(?:script|img|iframe)[^>]+src="https?://|<link[^>]+href="https?://|@import|url\(["\']?https?://'
)


def build(config: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", target],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    built = build(CONFIG, target)
    assert built.returncode == 0, built.stdout + built.stderr
    return target


@pytest.mark.slow
def test_site_build_has_every_page_of_the_docs(site: Path) -> None:
    sources = (ROOT / "docs").rglob("*.md")
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in sources]
    assert [page for page in pages if not (site / page).is_file()] == []


@pytest.mark.slow
def test_site_pages_load_nothing_from_the_network(site: Path) -> None:
    files = [path for kind in ("*.html", "*.css", "*.svg") for path in site.rglob(kind)]
    assert [path.name for path in files if REMOTE.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.slow
def test_site_links_to_repository_files_lead_to_copies(site: Path) -> None:
    assert "../source/examples/team/schema.pg" in (site / "project" / "readme.html").read_text(
        encoding="utf-8"
    )
    copied = (site / "source" / "examples" / "team" / "schema.pg").read_text(encoding="utf-8")
    assert copied == (ROOT / "examples" / "team" / "schema.pg").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("link", ["missing.md", "#missing", "other.md#missing"])
def test_site_build_with_broken_link_fails(link: str, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Page\n\nSee [this]({link}) and [that](other.md).\n", encoding="utf-8")
    (docs / "other.md").write_text("# Other\n", encoding="utf-8")
    config = tmp_path / "mkdocs.yml"
    pages = ["index.md", "other.md"]
    changes = {"INHERIT": str(CONFIG), "docs_dir": str(docs), "nav": pages, "hooks": [], "plugins": []}
    config.write_text(json.dumps(changes), encoding="utf-8")
    built = build(config, tmp_path / "site")
    assert built.returncode != 0
    assert "missing" in built.stderr


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("docs/guide/cli.md", "guide/cli.md"),
        ("CHANGELOG.md", "project/changelog.md"),
        ("examples/team/schema.pg", "source/examples/team/schema.pg"),
    ],
)
def test_site_path_of_repository_file(source: str, expected: str) -> None:
    assert site_path(source) == expected


def test_command_reference_has_a_section_for_every_command() -> None:
    sections = re.findall(r"^## (omnigraph .*)$", commands(), flags=re.MULTILINE)
    assert sections == command_paths()
    assert {"omnigraph init", "omnigraph branch merge", "omnigraph schema plan"} <= set(sections)


def test_http_reference_has_a_section_for_every_route() -> None:
    paths = json.loads(OPENAPI.read_text(encoding="utf-8"))["paths"]
    expected = [f"### {method.upper()} {path}" for path, item in sorted(paths.items()) for method in item]
    assert [line for line in routes().splitlines() if line.startswith(("### ",)) and "/" in line] == expected


def test_error_reference_has_the_code_of_every_class() -> None:
    page = error_codes()
    assert [name for name in errors.__all__ if f"Code `{getattr(errors, name).code}`." not in page] == []


def test_reference_pages_have_no_unknown_marker() -> None:
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    assert [page.name for page in pages if "<!-- generate" in fill(page.read_text(encoding="utf-8"))] == []
