"""A headless Chromium that a test session shares, and what a test asks of it."""

from __future__ import annotations

import base64
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from tests.harness.polling import LIMIT_S, wait_until

CHROMIUM = "chromium"
DRIVER = "chromedriver"


def missing_browser() -> str | None:
    """Return why there is no browser, or None if there is one."""
    if find_spec("selenium") is None:
        return "no Selenium (try pip install txtopo[test])"
    if not (shutil.which(CHROMIUM) and shutil.which(DRIVER)):
        return "no Chromium (chromium or chromedriver not found; try make services)"
    return None


class Browser:
    """A headless Chromium with its driver. A context manager, which ends both.

    Attributes:
        driver: The driver of Selenium.
    """

    def __init__(self) -> None:
        from selenium.webdriver import Chrome, ChromeOptions
        from selenium.webdriver.chrome.service import Service

        options = ChromeOptions()
        options.binary_location = str(shutil.which(CHROMIUM))
        for option in (
            "--headless=new",
            "--no-sandbox",  # as root there is none
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--enable-precise-memory-info",
            "--js-flags=--expose-gc",
        ):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = Chrome(options=options, service=Service(str(shutil.which(DRIVER))))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.driver.quit()

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Give the page a size in CSS pixels, and light or dark colours."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str) -> None:
        """Open an address, and forget what the console said before."""
        self.driver.get("about:blank")
        self.console()
        self.driver.get(address)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page, and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        """Return the text of an element; empty if it is not there or not shown."""
        script = "const e = document.querySelector(arguments[0]); return e ? e.innerText : ''"
        return str(self.run(script, selector))

    def wait(self, script: str, what: str, limit_s: float = LIMIT_S) -> Any:
        """Wait until an expression of the page is true, and return it."""

        def told() -> str:
            return f"{what}; the page shows {self.text('main')!r:.1500}"

        return wait_until(lambda: self.run(f"return {script}"), told, limit_s, 0.05)

    def console(self) -> list[str]:
        """Return what the console said since the last call: errors, warnings, violations."""
        log = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(line["message"]) for line in log]

    def command(self, name: str, **arguments: Any) -> Any:
        """Send a command of Chromium's own protocol."""
        return self.driver.execute_cdp_cmd(name, arguments)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what is shown, or the whole page, as a PNG."""
        clip: dict[str, Any] = {}
        if whole:
            size = self.command("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        shot = self.command("Page.captureScreenshot", format="png", **clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def memory(self) -> dict[str, int]:
        """Return the bytes of the page's scripts after garbage collection, and its nodes."""
        self.command("HeapProfiler.collectGarbage")
        script = """return {
            bytes: performance.memory.usedJSHeapSize, nodes: document.querySelectorAll('*').length
        }"""
        return dict(self.run(script))
