"""MkDocs hooks: generated reference pages, and links from the documentation to the rest of the repository.

The pages in docs/ are written to be read on a code forge too, so they link to files outside docs/, such as
../README.md or ../../examples/team/schema.pg. The site contains these files as well: Markdown files of the root as
pages in project/, others unchanged in source/.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts.reference import fill

ROOT = Path(__file__).resolve().parents[1]
# The overview on the site is the front page; the other files at the root become pages.
PROJECT = {"CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "RELEASE.md"}
README = "README.md"
FENCE = re.compile(r"^(```.*?^```)", flags=re.MULTILINE | re.DOTALL)
# The words after the language say how the tests treat a block. The site would not recognize such a block as code,
# and would take the headings after it for a part of it.
LANGUAGE = re.compile(r"\A(```\w+) .*")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages at the root of the repository, and every file that a page links to."""
    for name in sorted(PROJECT | {README}):
        files.append(File.generated(config, site_path(name), abs_src_path=str(ROOT / name)))
    pages = [file for file in files if file.is_documentation_page()]
    linked = {target for page in pages for target in _outside(page)}
    for target in sorted(linked):
        files.append(File.generated(config, site_path(target), abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Fill in the generated parts, and turn links to files of the repository into links of the site."""
    parts = FENCE.split(fill(markdown))
    parts[::2] = [LINK.sub(lambda found: _link(found, page.file), part) for part in parts[::2]]
    parts[1::2] = [LANGUAGE.sub(r"\1", part) for part in parts[1::2]]
    return "".join(parts)


def site_path(target: str) -> str:
    """Return the path in the site of a file of the repository."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if target in PROJECT | {README}:
        return f"project/{target.lower()}"
    return f"source/{target}"


def repository_path(file: File) -> str:
    """Return the path in the repository of a file of the site."""
    for name in PROJECT | {README}:
        if file.src_uri == site_path(name):
            return name
    return f"docs/{file.src_uri}"


def _target(link: str, source: str) -> str | None:
    """Return the file of the repository that a link leads to; None for other links."""
    path = link.partition("#")[0]
    if not path or "://" in link or link.startswith("mailto:"):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    return target if (ROOT / target).is_file() else None


def _outside(file: File) -> set[str]:
    source = repository_path(file)
    text = "".join(FENCE.split((ROOT / source).read_text(encoding="utf-8"))[::2])
    targets = (_target(link, source) for _, link, _ in LINK.findall(text))
    outside = {target for target in targets if target and not target.startswith("docs/")}
    return outside - PROJECT - {README}


def _link(found: re.Match[str], file: File) -> str:
    target = _target(found[2], repository_path(file))
    if target is None:
        return found[0]
    anchor = found[2].partition("#")[1:]
    relative = os.path.relpath(site_path(target), posixpath.dirname(file.src_uri) or ".")
    return f"{found[1]}{relative}{''.join(anchor)}{found[3]}"
