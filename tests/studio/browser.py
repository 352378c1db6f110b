"""A real Chromium, driven with Selenium, and the steps that the Studio tests take in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.support.waiting import HANG, wait_until

T = TypeVar("T")
_PROGRAMS = ("chromium", "google-chrome", "chromium-browser")
_AXE = Path(__file__).with_name("axe.min.js")
# Without a graphics card, WebGL is computed by the processor.
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--force-prefers-reduced-motion",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--hide-scrollbars",
)
DESKTOP = (1280, 800)
PHONE = (390, 844)


class Studio:
    """The Studio of one server in a browser."""

    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    # --- addresses ---------------------------------------------------------------------------------------

    def open(self, page: str, graph: str = "company", **params: str) -> None:
        """Open a page with an empty session, as from a link."""
        self.driver.get("about:blank")
        search = f"?{urlencode(params)}" if params else ""
        self.driver.get(f"{self.url}/studio/#/{graph}/{page}{search}")

    def sign_in(self, token: str) -> None:
        """Enter a token in the form."""
        self.find("input[type=password]").send_keys(token, Keys.ENTER)

    @property
    def address(self) -> str:
        """The part of the address after the hash."""
        return str(self.driver.current_url.partition("#")[2])

    def resize(self, size: tuple[int, int]) -> None:
        """Set the size of the view."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def use_theme(self, name: str) -> None:
        """Emulate the preference for a light or a dark page."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    # --- elements ----------------------------------------------------------------------------------------

    def all(self, selector: str) -> list[WebElement]:
        """Return the elements of a CSS selector that are there now."""
        return list(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def find(self, selector: str, text: str = "") -> WebElement:
        """Wait for a visible element of a CSS selector that contains a text, and return it."""

        def look() -> WebElement | None:
            try:
                found = (
                    item
                    for item in self.all(selector)
                    if text in (item.text or item.get_attribute("value") or "")
                )
                return next((item for item in found if item.is_displayed()), None)
            except StaleElementReferenceException:
                return None

        return wait_until(look, f"{selector} with {text!r}; the page shows: {self.text[:600]!r}")

    def click(self, selector: str, text: str = "") -> None:
        """Wait for an element and click it, also if the page replaces it meanwhile."""

        def attempt() -> bool:
            try:
                self.find(selector, text).click()
            except StaleElementReferenceException:
                return False
            return True

        wait_until(attempt, f"a click on {selector}")

    def press(self, *keys: str) -> None:
        """Press keys in the focused element."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a select element by its value."""
        self.find(selector)
        self.run(
            "const box = document.querySelector(arguments[0]); box.value = arguments[1];"
            "box.dispatchEvent(new Event('change', { bubbles: true }));",
            selector,
            value,
        )

    def write(self, text: str) -> None:
        """Replace the text of the editor."""
        editor = self.find(".cm-content")
        editor.click()
        editor.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE)
        self.driver.execute_cdp_cmd("Input.insertText", {"text": text})

    def cells(self, row: int = 1) -> list[str]:
        """Return the texts of a row of the table, which counts from 1."""
        self.find(f"[role=row][aria-rowindex='{row + 1}']")
        return [item.text for item in self.all(f"[role=row][aria-rowindex='{row + 1}'] [role=gridcell]")]

    @property
    def text(self) -> str:
        """The text of the page."""
        return str(self.run("return document.body.innerText"))

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page and return its result."""
        return self.driver.execute_script(script, *arguments)

    # --- checks ------------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Return the errors in the console since the last call, such as violations of the security policy.

        A browser logs every refused request as an error too. Those with an error status are expected.
        """
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        severe = [str(item["message"]) for item in entries if item["level"] == "SEVERE"]
        return [text for text in severe if "the server responded with a status of 4" not in text]

    def accessibility_violations(self, only: str | None = None) -> list[str]:
        """Return the serious findings of axe on the present page, of all rules or of one."""
        if self.run("return typeof axe === 'undefined'"):
            self.run(_axe())
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
        rules = json.dumps({"runOnly": tags if only is None else [only], "resultTypes": ["violations"]})
        found = self.driver.execute_async_script(
            f"axe.run(document, {rules}).then(arguments[0], error => arguments[0]({{ failure: String(error) }}))"
        )
        assert "violations" in found, found
        return [
            f"{item['id']}: {item['help']}: {item['nodes'][0]['html'][:200]}"
            for item in found["violations"]
            if item["impact"] in ("serious", "critical")
        ]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the view."""
        return int(self.run("return document.documentElement.scrollWidth - innerWidth"))


@contextmanager
def browsing() -> Iterator[Chrome]:
    """Start a browser for the time of the context."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    driver = shutil.which("chromedriver")
    assert program, "the Studio tests need Chromium: run scripts/bootstrap chromium"
    assert driver, "the Studio tests need chromedriver: run scripts/bootstrap chromium"
    options = ChromeOptions()
    options.binary_location = program
    for argument in _ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = Chrome(options=options, service=Service(driver))
    try:
        browser.set_script_timeout(HANG)
        # A test checks what the page says of a download, and leaves no file behind.
        browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "deny"})
        yield browser
    finally:
        browser.quit()


@cache
def _axe() -> str:
    return _AXE.read_text(encoding="utf-8")
