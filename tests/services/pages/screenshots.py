"""Makes the pictures of docs/how-to/pages.md: ``python -m tests.services.pages.screenshots``.

A run of payments with a page, always the same rows and failures, is looked at with Chromium. Times
and process numbers differ from picture to picture.
"""

from __future__ import annotations

import os
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.harness.browser import Browser, missing_browser
from tests.harness.polling import wait_until
from tests.harness.runs import LOCAL, Storage, running
from tests.services.pages.payments import Pace, payments
from txtopo import Page

IMAGES = Path(__file__).parents[3] / "docs" / "how-to" / "images"
CAUSE = "no rate for CHF on 2026-03-01"
SHOWN = 1_203
"""A txid that fails twice, and is shown."""
FAILURES = dict.fromkeys((214, 506, 811, SHOWN), CAUSE)
PACE = Pace(rows=400, convert_s=0.09, failures=FAILURES, attempts=2, partitions=8)
CONFIG = replace(LOCAL, page=Page(port=0), max_spout_pending=6, backoff_s=0.12)


def main() -> None:
    """Make all pictures."""
    reason = missing_browser()
    if reason is not None:
        raise SystemExit(f"the pictures cannot be made: {reason}")
    IMAGES.mkdir(exist_ok=True)
    socket.gethostname = lambda: "host-3"  # the pictures name no machine
    os.chdir(tempfile.mkdtemp())
    storage = Storage("sqlite:///payments.db")
    with running(payments(storage, PACE), storage, CONFIG) as run, Browser() as browser:
        browser.size(1280, 850)
        browser.open(f"{run.page_url}/topologies/payments")
        wait_until(lambda: (run.board.summary()["txid"] or 0) > SHOWN + 25, "it has passed", 600)
        look(browser, str(run.page_url))
    for path in sorted(IMAGES.glob("*.png")):
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


def look(browser: Browser, url: str) -> None:
    """Take the pictures."""
    page = f"{url}/topologies/payments"
    drawn = "page.timeline.stats.rows > 0 && document.querySelector('.chart path')"
    browser.open(f"{page}#{SHOWN}")
    browser.wait(drawn, "the page is drawn")
    browser.wait(f"page.timeline.chosen?.txid === {SHOWN}", "the failure is in view")
    browser.run("page.timeline.choose(arguments[0], 1)", SHOWN)
    browser.wait("document.querySelector('.cause')", "its cause is shown")
    browser.run("scrollTo(0, 0)")
    browser.picture(IMAGES / "timeline.png")
    browser.size(1280, 960, dark=True)
    browser.open(page)
    browser.wait(drawn, "the page is drawn")
    browser.wait("document.querySelector('.graph .rate')", "the graph has rates")
    browser.run("document.querySelector('#graph-title').scrollIntoView()")
    browser.picture(IMAGES / "figures-dark.png")
    browser.size(375, 760)
    browser.open(page)
    browser.wait(drawn, "the page is drawn")
    browser.picture(IMAGES / "phone.png")
    browser.size(1280, 600)
    browser.open(f"{page}/states/totals.totals")
    browser.wait("document.querySelector('table.rows')", "the rows are there")
    browser.picture(IMAGES / "state.png")


if __name__ == "__main__":
    main()
