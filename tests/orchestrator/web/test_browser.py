"""The pages in Chromium: light and dark, a phone and a desk, the keyboard alone, and names that would be markup.

Wants Debian's `chromium` and `pip install playwright`; no browser is downloaded.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.orchestrator.web.test_serve import Site, every_page, ids, site

__all__ = ["site"]  # the fixture
UNPICKED = "(a => a.type === 'checkbox' && a.name === 'id' && !a.checked)(document.activeElement)"
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(
        CHROMIUM is None or importlib.util.find_spec("playwright") is None, reason="chromium or playwright is missing"
    ),
]


@pytest.fixture
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_asks_nobody_else_and_runs_no_name(site: Site, browser: Any, scheme: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    told: list[str] = []
    page.on("dialog", lambda dialog: (told.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("console", lambda message: told.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on(
        "request", lambda request: told.append(request.url) if f"127.0.0.1:{site.port}" not in request.url else None
    )
    for path, _ in every_page(site):
        page.goto(f"http://127.0.0.1:{site.port}{path}")
        wide = page.evaluate("document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth")
        assert wide <= 0, f"{path} is {wide} px too wide"
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(13, 17, 23)"), path
        assert page.locator("h1").count() == 1 and page.locator("img, iframe, object").count() == 0
    assert not [line for line in told if not line.endswith("favicon.ico")]


def test_the_keyboard_alone_filters_picks_compares_and_reads_a_mark(site: Site, browser: Any) -> None:
    one, _ = ids(site)
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"http://127.0.0.1:{site.port}/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reach(page, "document.activeElement.id === 'arm'")
    page.keyboard.type("projection")
    page.keyboard.press("Enter")
    page.wait_for_url("**arm=projection**")
    for _ in range(2):
        reach(page, UNPICKED)
        page.keyboard.press("Space")
    reach(page, "document.activeElement.textContent.startsWith('Compare the picked')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare?**")
    assert "Paired effects" in page.content()
    page.goto(f"http://127.0.0.1:{site.port}/campaign/{one}")
    reach(page, "document.activeElement.closest('.plot') !== null")
    said = page.locator(".said").text_content()
    assert "startup 1" in said and "%" in said, "a focused mark is told in words"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/case?**")


def reach(page: Any, condition: str) -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(condition):
            return
    raise AssertionError(f"Tab never comes to {condition}")
