"""Takes the pictures of the Studio that the documentation shows: `python -m tests.studio.screenshots FOLDER`."""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

from tests.studio.browser import DESKTOP, Studio, browsing
from tests.studio.serving import TOKENS, serving

PAIRS = """\
query authors($year: I32) {
  match {
    $p: Person
    $p wrote $paper
    $paper.year >= $year
  }
  return { $p, $paper }
}
"""
# Each picture: page, parameters of the address, theme, and an element that shows that the page has loaded.
PICTURES = {
    "query": ("query", {"q": PAIRS, "p": '{"year":"2022"}', "view": "graph"}, "light", ".cm-content"),
    "explore": (
        "explore",
        {
            "type": "Team",
            "x": "Team/storage|Team/spark|Team/query|Team/design",
            "chosen": "Team/storage",
        },
        "dark",
        ".graph-canvas[data-settled]",
    ),
    "schema": ("schema", {"type": "Person"}, "light", ".type-card"),
    "history": ("history", {}, "light", ".entity-change"),
    "review": ("review", {"branch": "raises"}, "light", ".entity-change"),
    "conflicts": ("review", {"branch": "raises", "view": "conflicts"}, "dark", ".conflict"),
    "operate": ("operate", {}, "light", ".types-table a"),
}


def main(folder: Path) -> None:
    """Write a picture of each page to a folder."""
    with tempfile.TemporaryDirectory() as queries, serving(Path(queries)) as served, browsing() as driver:
        studio = Studio(driver, served.url)
        studio.resize(DESKTOP)
        driver.get(f"{served.url}/studio/licenses.txt")
        studio.run("sessionStorage.setItem('omnigraph-token', arguments[0])", TOKENS["ann"])
        for name, (page, params, theme, loaded) in PICTURES.items():
            studio.use_theme(theme)
            studio.open(page, **params)
            studio.find(loaded)
            if page == "query":
                studio.click("#run:enabled")
                studio.find(".graph-canvas[data-settled]")
            taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": 82})
            (folder / f"studio-{name}.webp").write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
