"""The documentation agrees with the repository: links lead somewhere, commands exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.record_demo import PICTURE, record
from scripts.reference import fill
from tests.architecture.test_repository import targets

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS]

FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
# Links and images alike.
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def shell_blocks(text: str) -> Iterator[str]:
    for language, body in FENCED.findall(text):
        if language in ("sh", "bash", "console"):
            yield body


def links(text: str) -> list[str]:
    return LINK.findall(FENCED.sub("", text))


def headings(text: str) -> set[str]:
    """The anchors of a page's headings, made the way forges make them."""
    found = re.findall(r"^#+ +(.*)$", FENCED.sub("", fill(text)), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


def broken_links(page: Path, text: str) -> list[str]:
    broken = []
    for link in links(text):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists():
            broken.append(link)
        elif anchor and target.suffix == ".md":
            found = headings(text if target == page else target.read_text(encoding="utf-8"))
            if anchor not in found:
                broken.append(link)
    return broken


def unknown_make_targets(text: str) -> set[str]:
    named = {target for block in shell_blocks(text) for target in re.findall(r"\bmake ([a-z][a-z-]*)", block)}
    named |= set(re.findall(r"`make ([a-z][a-z-]*)`", text))
    return named - targets()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_make_target_named_exists(page: Path) -> None:
    assert unknown_make_targets(page.read_text(encoding="utf-8")) == set()


def test_demo_picture_recorded_again_is_unchanged() -> None:
    current = PICTURE.read_text(encoding="utf-8") == record()
    assert current, "the session in README.md is outdated: run .venv/bin/python scripts/record_demo.py"


def test_the_index_links_every_page_of_the_docs() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link in links(index.read_text(encoding="utf-8"))}
    assert [name(page) for page in DOCS if page != index and page.resolve() not in linked] == []


@pytest.mark.parametrize("text", ["see [x](missing.md)", "see [x](README.md#no-such-heading)"])
def test_a_planted_dead_link_is_found(text: str) -> None:
    assert broken_links(ROOT / "README.md", text)


@pytest.mark.parametrize("text", ["```sh\nmake nonsense\n```", "run `make nonsense` first"])
def test_a_planted_unknown_target_is_found(text: str) -> None:
    assert unknown_make_targets(text) == {"nonsense"}
