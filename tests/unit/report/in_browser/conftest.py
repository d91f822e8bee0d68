"""A real browser, and what a hand can do to a page in it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROME = next(filter(None, map(shutil.which, NAMES)), None)
SWITCHES = (
    "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync",
    "disable-background-networking", "disable-component-update", "disable-dev-shm-usage",
    "window-size=1280,900",
)  # fmt: skip
WIDER = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
OPENED = "document.querySelectorAll('details').forEach(one => one.open = true)"
CONTRASTS = Path(__file__).with_name("contrast.js").read_text("utf-8")
POINT = "const r=arguments[0].getBoundingClientRect(); return [r.left, r.top, r.width, r.height]"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium with a profile of its own; nothing is downloaded where browser or driver are not."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if not (CHROME and shutil.which("chromedriver")):
        pytest.skip("no Chromium (or Chrome) with its chromedriver on the path")
    os.environ.update(SE_OFFLINE="true", SE_AVOID_STATS="true")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROME
    for switch in (*SWITCHES, f"user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.chrome.service.Service(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(10)
    yield driver
    driver.quit()


class Page:
    """A page that is open, and what a hand can do to it."""

    def __init__(self, browser, path) -> None:
        self.browser, self.address = browser, path.as_uri()
        for kind in ("browser", "performance"):
            browser.get_log(kind)  # what earlier pages left
        browser.get(self.address)
        self.settle()

    def find(self, selector):
        return self.browser.find_element("css selector", selector)

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.browser.execute_async_script(
            "const done=arguments[0]; requestAnimationFrame(()=>requestAnimationFrame(()=>done()))"
        )

    def state(self, name: str) -> str:
        return self.find("#gantt").get_attribute(f"data-{name}") or ""

    def view(self) -> tuple[float, float]:
        return float(self.state("start")), float(self.state("end"))

    def press(self, key: str) -> None:
        self.find("#gantt figure canvas").send_keys(key)
        self.settle()

    def mouse(self, kind: str, x: float, y: float, **more) -> None:
        """A mouse event at a place in the first chart, measured from its left upper corner."""
        left, top, _, _ = self.browser.execute_script(POINT, self.find("#gantt figure canvas"))
        event = {"type": kind, "x": left + x, "y": top + y, **more}
        self.browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)
        self.settle()

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def first_step(self) -> tuple[float, float]:
        """A place in the first box of the first row, which begins at time 0."""
        return float(self.state("gutter")) + 4, 12.0

    @contextmanager
    def shown(self, width: int, scheme: str = "light") -> Iterator[None]:
        """Within, the window is `width` pixels wide, and light or dark."""
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.settle()
        try:
            yield
        finally:
            self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
            self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    def open_details(self) -> None:
        """Unfold everything that is folded."""
        self.browser.execute_script(OPENED)
        self.settle()

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return self.browser.execute_script(WIDER)

    def contrasts(self) -> dict[str, float]:
        """The lowest contrast of each text that is shown, on the page and in its figures."""
        found: Any = self.browser.execute_script(CONTRASTS)
        return dict(sorted(found, key=lambda pair: pair[1], reverse=True))  # the last is kept

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses asked for since the page was opened, apart from its own."""
        found = []
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            of_page = message["params"].get("documentURL") == self.address
            if of_page and message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        assert self.address in found
        return [url for url in found if url != self.address and not url.startswith("data:")]


@pytest.fixture
def open_page(browser) -> Callable[[Path], Page]:
    """`open_page(path)` opens a page of HTML."""
    return lambda path: Page(browser, path)
