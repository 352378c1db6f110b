"""One browser and one server for all tests of the Studio."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from tests.server.running import Running
from tests.studio.browser import DESKTOP, Studio, browsing
from tests.studio.serving import TOKENS, serving


@pytest.fixture(scope="session")
def browser() -> Iterator[Chrome]:
    """Return the browser."""
    with browsing() as found:
        yield found


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return the server, with the graphs `company` and `large`. Tests that write use branches of their own."""
    with serving(tmp_path_factory.mktemp("studio")) as found:
        yield found


@pytest.fixture
def signed_out(browser: Chrome, served: Running) -> Iterator[Studio]:
    """Return the Studio without a token. A test fails if the console has errors."""
    studio = Studio(browser, served.url)
    studio.resize(DESKTOP)
    studio.use_theme("light")
    browser.get(f"{served.url}/studio/licenses.txt")
    studio.run("sessionStorage.clear(); localStorage.clear()")
    studio.problems()
    yield studio
    assert studio.problems() == []


@pytest.fixture
def studio(signed_out: Studio) -> Studio:
    """Return the Studio with the token of Ann, who may do everything."""
    signed_out.run("sessionStorage.setItem('omnigraph-token', arguments[0])", TOKENS["ann"])
    return signed_out


@pytest.fixture
def reader(signed_out: Studio) -> Studio:
    """Return the Studio with the token of Rex, who may only read."""
    signed_out.run("sessionStorage.setItem('omnigraph-token', arguments[0])", TOKENS["rex"])
    return signed_out


@pytest.fixture(scope="session")
def assets() -> Path:
    """Return the folder of the built files."""
    return Path(__file__).parents[2] / "src" / "omnigraph" / "studio" / "assets"
