"""The documentation shows the layers that the import rules enforce, and names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.diagram import BEGIN, END, PAGES, render_layers, replace_diagram
from tests.architecture.layers import LAYERS
from tests.architecture.modules import PACKAGE, ROOT

ARCHITECTURE = ROOT / "docs" / "architecture.md"
MODULE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)`")


def missing_modules(text: str) -> set[str]:
    """The modules that a text names in backticks and that the package does not have."""
    return {name for name in MODULE.findall(text) if not (PACKAGE / name).is_file()}


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_layer_diagram_in_page_equals_the_table_of_rules(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert replace_diagram(text) == text, "run scripts/layer-diagram"


def test_layer_diagram_names_every_existing_package_once() -> None:
    diagram = render_layers()
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    names = [name for line in diagram.splitlines()[1:-1] for name in line.split("   ")[0].split()]
    assert folders <= set(names)
    assert len(names) == len(set(names))
    assert set(names) <= {name for row in LAYERS for name in row}


def test_layer_diagram_after_edit_by_hand_is_replaced() -> None:
    page = f"a\n{BEGIN}\nold\n{END}\nb"
    assert replace_diagram(page) == f"a\n{BEGIN}\n\n{render_layers()}\n\n{END}\nb"


def test_layer_diagram_without_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="layer diagram"):
        replace_diagram(f"{BEGIN} and no end")


def test_architecture_page_names_only_modules_that_exist() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    assert len(MODULE.findall(text)) > 40
    assert missing_modules(text) == set()


def test_planted_missing_module_is_found() -> None:
    assert missing_modules("see `graph/publish.py` and `graph/absent.py`") == {"graph/absent.py"}
