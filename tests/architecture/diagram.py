"""The layer diagram of the documentation, rendered from the table that the import rules are checked with."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.layers import ROWS
from tests.architecture.modules import PACKAGE, ROOT

PAGES = (ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md")
BEGIN, END = "<!-- layers: written by scripts/layer-diagram -->", "<!-- end of layers -->"


def render_layers() -> str:
    """The rows from the top down, as a text block. Packages that do not exist yet are left out."""
    rows = [
        ("  ".join(name for name in names if _exists(name)), purpose) for names, purpose in reversed(ROWS)
    ]
    width = max(len(names) for names, _ in rows)
    lines = [f"{names:<{width}}   {purpose}" for names, purpose in rows if names]
    return "\n".join(["```text", *lines, "```"])


def replace_diagram(page: str) -> str:
    """A page with the present diagram between its two markers. `ValueError` when a marker is missing."""
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError("the page has no place for the layer diagram")
    return f"{before}{BEGIN}\n\n{render_layers()}\n\n{END}{after}"


def write_diagrams() -> None:
    """Write the diagram into every page that shows it."""
    for page in PAGES:
        page.write_text(replace_diagram(page.read_text(encoding="utf-8")), encoding="utf-8")


def _exists(name: str) -> bool:
    return name == "omnigraph" or any(Path(PACKAGE, found).exists() for found in (name, f"{name}.py"))
