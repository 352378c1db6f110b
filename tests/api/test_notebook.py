"""The tutorial notebook runs from its first cell to its last, and shows tables and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]


def test_tutorial_notebook_runs_and_shows_tables_and_pictures() -> None:
    notebook = nbformat.read(ROOT / "examples" / "notebooks" / "tutorial.ipynb", as_version=4)
    # A kernel on a busy machine takes its time to start.
    resources = {"metadata": {"path": str(ROOT)}}
    NotebookClient(notebook, timeout=None, startup_timeout=600, resources=resources).execute()
    outputs = {cell.source: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    html = [_html(found) for found in outputs.values()]
    assert sum("<table>" in text for text in html) >= 2
    assert sum("<svg" in text for text in html) == 2
    assert not any("http" in text.replace("http://www.w3.org/2000/svg", "") for text in html)
    assert _plain(outputs, "len(g.nodes") == "(5, 6)"
    assert _plain(outputs, "g.branches.merge") == "'fast_forward'"
    assert "insert Person Finn" in _plain(outputs, "g.branches.create")


def _html(outputs: list[Any]) -> str:
    return "".join(str(item.get("data", {}).get("text/html", "")) for item in outputs)


def _plain(outputs: dict[str, list[Any]], start: str) -> str:
    (found,) = (items for source, items in outputs.items() if source.startswith(start))
    return str(found[-1]["data"]["text/plain"])
