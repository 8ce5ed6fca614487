"""Open every page of the built site in headless Chromium, check it, and write pictures of it to build/screenshots.

The checks: no error in the console, no request that fails, no dead link inside the site, nothing wider than a window of
360 or 1280 pixels, and a search that finds pages. Status 3 means that there is no Chromium on this machine.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

from playwright.sync_api import Browser, Error, Page, Playwright, sync_playwright

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"
SCREENSHOTS = ROOT / "build" / "screenshots"
WIDTHS = (360, 1280)
# What readers search for, and the first result.
SEARCHES = {
    "negative stride": "Negative strides and other layouts",
    "read-only": "Read-only memory",
    "environment variable": "Environment variables",
    "GpuArray": "gpuinterop.GpuArray",
}
NO_BROWSER = 3

# Elements that are cut off or make the page scroll sideways; those in a scrolling box of their own are fine.
WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll("main *, header *, footer *")]
    .filter(e => e.getBoundingClientRect().right > width + 1)
    .map(e => e.tagName + "." + e.className).slice(0, 3)
    .concat("page of " + document.documentElement.scrollWidth);
}"""
CONTENT = """() => ({
  links: [...document.links].map(a => a.href),
  ids: [...document.querySelectorAll("[id]")].map(e => e.id),
})"""


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line for each request."""

    def log_message(self, *arguments: Any) -> None:
        pass


def serve() -> str:
    """Serve the site from a thread, and return its address."""
    handler = functools.partial(QuietHandler, directory=str(SITE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


def start(driver: Playwright) -> Browser | None:
    """Start the machine's Chromium, or the one that Playwright has installed."""
    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    # The sandbox of Chromium does not work for root, nor in most containers.
    for path in [*filter(None, found), None]:
        try:
            return driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except Error as error:
            print(f"{path or 'the Chromium of Playwright'}: {str(error).splitlines()[0]}")
    return None


def visit(page: Page, address: str, name: str, faults: list[str]) -> dict[str, list[str]]:
    """Open a page at all widths; return its links and the ids to which others can link."""

    def note(text: str) -> None:
        faults.append(f"{name}: {text}")

    def note_message(message: Any) -> None:
        if message.type == "error":
            note(f"console: {message.text}")

    def note_response(response: Any) -> None:
        if response.status >= 400:
            note(f"{response.status} for {response.url}")

    def note_failure(request: Any) -> None:
        # The browser aborts what the page before was still loading, such as its icon.
        if request.failure != "net::ERR_ABORTED":
            note(f"request: {request.url} {request.failure}")

    hooks = {
        "console": note_message,
        "response": note_response,
        "pageerror": lambda error: note(f"script: {error}"),
        "requestfailed": note_failure,
    }
    for event, hook in hooks.items():
        page.on(event, hook)
    page.goto(address + name, wait_until="load")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        if wide := page.evaluate(WIDE):
            note(f"too wide for {width} pixels: {', '.join(wide)}")
        place = SCREENSHOTS / f"{name.removesuffix('.html').replace('/', '.')}-{width}.jpg"
        page.screenshot(path=place, type="jpeg", quality=60)
    content: dict[str, list[str]] = page.evaluate(CONTENT)
    for event, hook in hooks.items():
        page.remove_listener(event, hook)
    return content


def dead_links(address: str, contents: dict[str, dict[str, list[str]]]) -> list[str]:
    """Return a line for each link to a file or an anchor of the site that does not exist."""
    faults = []
    for name, content in contents.items():
        for link in sorted(set(content["links"])):
            target, anchor = urldefrag(unquote(link))
            if not target.startswith(address):
                continue
            path = target.removeprefix(address).partition("?")[0] or "index.html"
            if not (SITE / path).is_file():
                faults.append(f"{name}: no file {path}")
            elif anchor and path in contents and anchor not in contents[path]["ids"]:
                faults.append(f"{name}: no anchor {path}#{anchor}")
    return faults


def searches(page: Page, address: str) -> list[str]:
    """Return a line for each search with another first result."""
    faults = []
    for words, expected in SEARCHES.items():
        page.goto(f"{address}search.html?q={words.replace(' ', '+')}")
        try:
            # The page writes this line when all results are there.
            page.wait_for_selector(
                "#search-results p.search-summary:has-text('found')", timeout=30_000
            )
            first = page.locator("#search-results ul.search > li > a").first.text_content()
        except Error:
            first = "nothing"
        if first != expected:
            faults.append(f"search: {first} for {words!r}")
            page.screenshot(path=SCREENSHOTS / f"search-{words.replace(' ', '-')}.png")
    return faults


def check(browser: Browser) -> list[str]:
    address = serve()
    shutil.rmtree(SCREENSHOTS, ignore_errors=True)
    SCREENSHOTS.mkdir(parents=True)
    names = sorted(p.relative_to(SITE).as_posix() for p in SITE.rglob("*.html"))
    names = [name for name in names if not name.startswith("_")]
    faults: list[str] = []
    page = browser.new_page()
    contents = {name: visit(page, address, name, faults) for name in names}
    faults += dead_links(address, contents) + searches(page, address)
    print(f"{len(names)} pages opened, {len(faults)} faults")
    return faults


def main() -> int:
    with sync_playwright() as driver:
        browser = start(driver)
        if browser is None:
            return NO_BROWSER
        faults = check(browser)
        browser.close()
    for fault in faults:
        print(fault)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
